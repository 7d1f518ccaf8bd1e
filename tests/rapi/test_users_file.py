"""A change of the users file is in force with the next look; an invalid one changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.rapi.noted import Noted

from ganger.rapi.users_file import UsersFile
from ganger.storage.access import rapi_users
from ganger.storage.access.rapi_users import User

HASH = "{MD5}x"


@pytest.fixture(name="path")
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rapi" / "users"
    rapi_users.add(path, User("joe", HASH))
    return path


def names(users: UsersFile) -> list[str]:
    users.look()
    return sorted(users.users)


def test_a_user_is_known_with_the_next_look_after_being_added_and_no_more_after_removal(
    path: Path,
) -> None:
    users = UsersFile(path, Noted())
    assert names(users) == ["joe"]
    rapi_users.add(path, User("jim", HASH))
    assert names(users) == ["jim", "joe"]
    rapi_users.remove(path, "joe")
    assert names(users) == ["jim"]
    path.unlink()
    assert names(users) == []


def test_a_file_that_comes_later_is_read(tmp_path: Path) -> None:
    users = UsersFile(tmp_path / "rapi" / "users", Noted())
    assert names(users) == []
    rapi_users.add(tmp_path / "rapi" / "users", User("joe", HASH))
    assert names(users) == ["joe"]


@pytest.mark.parametrize("text", ["joe", "joe x wirte", "a x\na y", "\xff"])
def test_an_invalid_file_leaves_the_old_users_in_force_and_is_told_once(
    path: Path, text: str
) -> None:
    notes = Noted()
    users = UsersFile(path, notes)
    before = users.users
    notes.taken()
    path.write_bytes(text.encode("latin-1"))
    for _ in range(3):
        users.look()
    assert users.users == before
    [(level, event, fields)] = notes.taken()
    assert (level, event) == ("warning", "users file cannot be used; the users stay as they were")
    assert fields["problem"].startswith(str(path))
    assert fields["users"] == 1
    path.write_text("jim {MD5}x\n")
    assert names(users) == ["jim"]


def test_a_file_that_cannot_be_read_leaves_the_old_users_in_force(path: Path) -> None:
    users = UsersFile(path, Noted())
    path.chmod(0o606)
    assert names(users) == ["joe"]
    path.unlink()
    path.symlink_to(path.with_name("nothing"))
    assert names(users) == ["joe"]
    path.unlink()
    # Nobody writes into it: it seems empty.
    os.mkfifo(path, 0o600)
    assert names(users) == ["joe"]


def test_a_file_is_read_only_when_it_has_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = UsersFile(path, Noted())
    reads: list[Path] = []
    real = rapi_users.read

    def read(where: Path) -> dict[int, User]:
        reads.append(where)
        return real(where)

    monkeypatch.setattr(rapi_users, "read", read)
    for _ in range(5):
        users.look()
    assert reads == []
    os.utime(path, ns=(1, 1))
    for _ in range(5):
        users.look()
    assert reads == [path]


def test_secrets_that_can_be_read_or_never_match_are_named_by_line_and_not_shown(
    path: Path,
) -> None:
    notes = Noted()
    path.write_text("# ours\njoe 4711 read\njim {MD5}4711\nann {HA1}" + "4711" * 8 + "\n")
    users = UsersFile(path, notes)
    assert names(users) == ["ann", "jim", "joe"]
    told = [(event.split(" ")[-1], fields) for _, event, fields in notes.taken()]
    assert told == [
        ("it", {"user": "joe", "line": 2}),
        ("matches", {"user": "jim", "line": 3}),
        ("it", {"user": "ann", "line": 4}),
    ]
    assert "4711" not in repr(told)


def test_of_many_secrets_that_can_be_read_only_some_are_named(path: Path) -> None:
    path.write_text("".join(f"u{number} clear\n" for number in range(5_000)))
    notes = Noted()
    UsersFile(path, notes)
    lines = notes.taken()
    assert [fields.get("line") for _, _, fields in lines] == [*range(1, 21), None]
    assert lines[-1] == (
        "warning",
        "further passwords are not as they should be",
        {"count": 4_980},
    )
