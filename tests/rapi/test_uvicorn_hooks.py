"""A version of uvicorn without the hooks of the guards is named before anything is served."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from ganger.rapi import guards, uvicorn_hooks
from ganger.storage import errors

ROOT = Path(__file__).parents[2]


def test_the_installed_version_has_every_hook() -> None:
    uvicorn_hooks.require()
    uvicorn_hooks.require(protocol())


def protocol(**changed: object) -> type:
    """uvicorn's protocol with other members."""
    own = {name: value for name, value in vars(H11Protocol).items() if not name.startswith("__d")}
    return type("Changed", (), {**own, **changed})


@pytest.mark.parametrize("name", [name for name in uvicorn_hooks.NEEDED if name != "__init__"])
def test_a_hook_that_is_gone_is_named(name: str) -> None:
    changed = protocol(**{name: None})
    with pytest.raises(errors.OperatorError, match=rf"uvicorn \S+ lacks what .*\b{name}\b"):
        uvicorn_hooks.require(changed)


def test_a_hook_that_nobody_calls_any_more_is_named() -> None:
    def data_received(self: object, data: bytes) -> None:
        """Reads by itself."""

    changed = protocol(data_received=data_received)
    with pytest.raises(errors.OperatorError) as caught:
        uvicorn_hooks.require(changed)
    assert "(data_received using handle_events); install" in caught.value.text


def test_every_overridden_method_of_uvicorn_is_looked_for() -> None:
    own = vars(guards.GuardedProtocol).keys() & vars(H11Protocol).keys()
    assert {name for name in own if callable(getattr(H11Protocol, name))} - {
        "__init__"
    } <= uvicorn_hooks.NEEDED.keys()
    assert {"handle_events", "send_400_response", "on_response_complete"} <= own


def test_asyncio_that_takes_no_size_is_named() -> None:
    with pytest.raises(errors.OperatorError, match="lacks max_size"):
        uvicorn_hooks.require(tls=object)


def test_uvicorn_is_bound_to_the_versions_that_were_looked_at() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [bound] = [one for one in project["dependencies"] if one.startswith("uvicorn")]
    assert ",<" in bound
