"""Why a node is silent, as far as the hub can know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganger.actors.nodes.silences import Silences

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

WHERE = "10.0.0.7"
WHY = (
    "a host at 10.0.0.7 calls with a key that is not known; "
    "`ganger node invite web1` lets it join anew"
)


def test_a_silent_node_whose_key_is_not_known_any_more_is_told_of(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    silences = Silences(lambda: 5.0, tmp_path / "silent.json")
    silences.tell = told.append
    silences.begin("web1", WHERE)
    silences.begin("web2", "[fd00::7]:41234")
    silences.refuse_caller("10.0.0.8")
    assert (told, silences.why("web1")) == ([], "")
    for port in (41_234, 41_235):
        silences.refuse_caller(f"{WHERE}:{port}")
    assert (told, silences.why("web1"), silences.why("web2")) == (["web1"], WHY, "")
    silences.refuse_caller("fd00::7")
    assert told == ["web1", "web2"]
    silences.end("web1")
    assert (silences.why("web1"), silences.since) == ("", {"web2": 5.0})


def test_a_node_that_has_not_called_yet_is_silent_since_the_hub_began(
    tmp_path: Path,
) -> None:
    clock = iter([5.0, 9.0])
    silences = Silences(lambda: next(clock), tmp_path / "silent.json")
    assert [silences.since_of("web1"), silences.since_of("web1")] == [5.0, 5.0]
    silences.begin("web1", WHERE)
    assert silences.since_of("web1") == 9.0
    assert silences.since_of("web2") == 5.0
    assert list(silences.since) == ["web1"]


def test_a_refusal_is_told_once_until_a_node_has_called(
    tmp_path: Path,
) -> None:
    """Hosts call again every few seconds: a line for each filled the disk of the master."""
    silences = Silences(lambda: 5.0, tmp_path / "silent.json")
    assert [silences.is_news(one) for one in ("a", "a", "b", "a")] == [True, False, True, False]
    silences.end("web1")
    assert silences.is_news("a")
    many = [silences.is_news(str(number)) for number in range(3_000)]
    assert all(many)
    assert len(silences._told) <= 1_000


def test_a_successor_knows_since_when_nodes_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock = tmp_path / "silent.json", iter(range(1, 100))

    def hub() -> Silences:
        silences = Silences(lambda: float(next(clock)), path)
        silences.read(["web1", "web2", "web3"])
        return silences

    first = hub()
    first.end("web1")
    first.end("web2")
    first.begin("web2", WHERE)
    # The connection of web1 has ended with the first one: at some time before the second one began.
    assert hub().since == {"web1": 3.0, "web2": 2.0, "web3": 1.0}
    assert hub().since == {"web1": 3.0, "web2": 2.0, "web3": 1.0}
    path.write_text("{")
    assert set(hub().since.values()) == {5.0}
    monkeypatch.setattr("ganger.storage.alive.process_identity.boot", lambda: "another")
    assert set(hub().since.values()) == {6.0}
