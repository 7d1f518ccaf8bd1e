"""Documents in YAML. Only what is no JSON comes here: the library takes a while to be imported."""

from __future__ import annotations

import functools
from typing import Any

import yaml

from ..storage import errors


def parse_yaml(text: str, source: str) -> object:
    """``text`` as YAML; `PlanError` names ``source``, line and column."""
    try:
        return yaml.load(text, _loader())  # noqa: S506 - one that makes plain data alone
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise errors.PlanError(f"{source}{place}: {error.problem}") from error
    except RecursionError as error:
        raise errors.PlanError(f"{source}: nested deeper than can be read") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise errors.PlanError(f"{source}: neither JSON nor YAML: {error}") from error


@functools.cache
def _loader() -> type[yaml.SafeLoader]:
    """The safe loader, but 2026-11-21 without quotes is text, not a date."""

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 - as the library has it
            sign: [(tag, form) for tag, form in resolvers if not tag.endswith(":timestamp")]
            for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def compose_mapping_node(self, anchor: Any) -> Any:  # noqa: ANN401 - the library's
            """Refuse a key that stands twice; the library would silently take its last value."""
            node = super().compose_mapping_node(anchor)
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                    continue
                if (key.tag, key.value) in seen:
                    problem = f"the key {key.value!r} stands in a mapping twice"
                    raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
            return node

    return Loader
