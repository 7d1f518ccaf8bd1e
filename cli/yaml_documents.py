"""Documents in YAML. Only what is no JSON comes here: the library takes a while to be imported."""

from __future__ import annotations

import functools
import gc
from typing import TYPE_CHECKING, Any

import yaml

from ..storage import errors

if TYPE_CHECKING:
    from collections.abc import Callable


def parse_yaml(text: str, source: str, check_jobs: Callable[[int], None] | None = None) -> object:
    """``text`` as YAML; `PlanError` names ``source``, line and column.

    ``check_jobs`` is told of each job of a plan how many have come, and may raise `PlanError`.
    """
    is_collecting = gc.isenabled()
    # Only what is kept is made here: each collection would walk through all of it in vain.
    gc.disable()
    try:
        is_short = len(text) <= _PRECISE_CHARACTERS_MAX
        is_fast = check_jobs is not None or not is_short
        try:
            return _parsed(text, check_jobs, is_fast=is_fast)
        except yaml.YAMLError:
            if not (is_fast and is_short):
                raise
            return _parsed(text, check_jobs, is_fast=False)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise errors.PlanError(f"{source}{place}: {error.problem}") from error
    except RecursionError as error:
        raise errors.PlanError(f"{source}: nested deeper than can be read") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise errors.PlanError(f"{source}: neither JSON nor YAML: {error}") from error
    finally:
        if is_collecting:
            gc.enable()


def _parsed(text: str, check_jobs: Callable[[int], None] | None, *, is_fast: bool) -> object:
    loader = _loader(is_fast=is_fast)(text)
    loader.jobs.check = check_jobs
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


_JOB_DEPTH_MAX = 3
"""Where the jobs of a plan stand: below the document and its key ``jobs``, or one level higher."""


class _Jobs:
    """Counts the jobs of a plan while it is read."""

    def __init__(self) -> None:
        self.check: Callable[[int], None] | None = None
        self._is_within = False

    def look(self, depth: int, place: object) -> None:
        """A node comes. ``place``: its number in a list, or its key in a mapping."""
        if depth > _JOB_DEPTH_MAX or self.check is None:
            return
        if not isinstance(place, int):
            self._is_within = getattr(place, "value", None) == "jobs"
        elif depth < _JOB_DEPTH_MAX or self._is_within:
            self.check(place + 1)


_DEPTH_MAX = 300
"""Deepest nesting of nodes: a lower one is refused where documents are checked."""


_PRECISE_CHARACTERS_MAX = 64 * 1024
"""Up to this length documents but plans are read without libyaml, and plans with a mistake again.

libyaml is several times as fast, but says less precisely where a mistake is.
"""


@functools.cache
def _loader(*, is_fast: bool) -> Any:  # noqa: ANN401 - a class that is made here
    """The safe loader, but 2026-11-21 without quotes is text, not a date."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if is_fast else yaml.SafeLoader

    class Loader(base):  # type: ignore[misc]  # chosen when this runs
        yaml_implicit_resolvers = {  # noqa: RUF012 - as the library has it
            sign: [(tag, form) for tag, form in resolvers if not tag.endswith(":timestamp")]
            for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self.jobs = _Jobs()
            self._depth = 0
            self._flattened: set[int] = set()

        def descend_resolver(self, parent: Any, place: Any) -> None:  # noqa: ANN401 - the library's
            """Count the levels, for libyaml, which would go on until the stack is used up."""
            self._depth += 1
            if self._depth > _DEPTH_MAX:
                raise RecursionError
            self.jobs.look(self._depth, place)
            super().descend_resolver(parent, place)

        def ascend_resolver(self) -> None:
            self._depth -= 1
            super().ascend_resolver()

        def flatten_mapping(self, node: Any) -> None:  # noqa: ANN401 - the library's
            """Refuse a key that stands twice; the library would silently take its last value."""
            if id(node) not in self._flattened:
                # Afterwards it may have a key of its own and the same one of a merged mapping.
                self._flattened.add(id(node))
                _refuse_double_keys(node)
            super().flatten_mapping(node)

    return Loader


def _refuse_double_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
            continue
        if (key.tag, key.value) in seen:
            problem = f"the key {key.value!r} stands in a mapping twice"
            raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
        seen.add((key.tag, key.value))
