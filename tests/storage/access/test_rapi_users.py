"""The users file: read as Ganeti reads it, refused by line, changed without losing anything."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.access import rapi_settings, rapi_users
from ganger.storage.access.rapi_users import User

HA1 = "{HA1}" + "0123456789abcdef" * 2


@pytest.fixture(name="path")
def file(tmp_path: Path) -> Path:
    return tmp_path / "rapi" / "users"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def only(text: str) -> User:
    [user] = rapi_users.parse(text).values()
    return user


def refusal(text: str) -> str:
    with pytest.raises(errors.BadRequestError) as caught:
        rapi_users.parse(text)
    return caught.value.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("joe secret", User("joe", "secret")),
        ("  joe\tsecret   write", User("joe", "secret", frozenset({"write"}))),
        ("joe secret read , write", User("joe", "secret", frozenset({"read", "write"}))),
        (f"joe {HA1} read,", User("joe", HA1, frozenset({"read"}))),
        ("joe {md5}what", User("joe", "{md5}what")),
        (
            "joe s operate,opcode:OP_A,exec,opcode:OP_B",
            User("joe", "s", frozenset({"operate", "exec"}), frozenset({"OP_A", "OP_B"})),
        ),
    ],
)
def test_a_line_is_a_name_a_secret_and_options(text: str, expected: User) -> None:
    assert only(text) == expected


def test_comments_and_empty_lines_are_ignored_and_users_keep_their_lines() -> None:
    found = rapi_users.parse("# joe x write\n\n   \njoe x\n  # more\njim y\n")
    assert {number: user.name for number, user in found.items()} == {4: "joe", 6: "jim"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a x\njoe", "line 2: expected NAME SECRET [OPTION,...]"),
        ("joe s wirte", "line 1: unknown option 'wirte'; known: admin, exec, operate, read, write"),
        ("joe s read\njoe t", "line 2: user joe is in line 1 already"),
        ("a:b s", "line 1: a name must not contain a colon or control characters"),
        ("a\x07b s", "line 1: a name must not contain a colon or control characters"),
        ("joe {HA1}123", "line 1: {HA1} needs 32 hexadecimal digits"),
        ("joe {BCRYPT}123", "line 1: {BCRYPT} needs a hash such as $2b$12$..."),
        ("joe s opcode:OP_x", "line 1: expected opcode:OP_..., got 'OP_x'"),
        ("joe s opcode:", "line 1: expected opcode:OP_..., got ''"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(text: str, expected: str) -> None:
    assert refusal(text) == expected


@pytest.mark.parametrize(
    "text", ["joe {HA1}4711", "joe {ARGON2ID}4711", "joe {BCRYPT}4711", "j:e 4711", "joe 4711 x"]
)
def test_a_refusal_repeats_no_secret(text: str) -> None:
    assert "4711" not in refusal(text)


def test_too_many_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "USERS_MAX", 2)
    assert refusal("a x\nb x\nc x") == "line 3: more than 2 users"


def test_a_user_is_shown_without_the_secret() -> None:
    assert "4711" not in repr(User("joe", "4711", frozenset({"read"})))


def test_without_a_file_there_are_no_users(path: Path) -> None:
    assert rapi_users.read(path) == {}


def test_what_was_added_is_read_back_and_private(path: Path) -> None:
    joe = User("joe", HA1, frozenset({"operate", "exec"}), frozenset({"OP_B", "OP_A"}))
    jim = User("jim", "x")
    rapi_users.add(path, joe)
    rapi_users.add(path, jim)
    assert list(rapi_users.read(path).values()) == [joe, jim]
    assert path.read_text() == f"joe {HA1} operate,exec,opcode:OP_A,opcode:OP_B\njim x\n"
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_a_user_is_replaced_only_on_demand_and_in_the_same_line(path: Path) -> None:
    for name in ("a", "b", "c"):
        rapi_users.add(path, User(name, "x"))
    with pytest.raises(errors.BadRequestError, match="there is a user b already"):
        rapi_users.add(path, User("b", "y"))
    rapi_users.add(path, User("b", "y"), is_replaced=True)
    assert path.read_text() == "a x\nb y\nc x\n"


def test_comments_stay_where_they_are(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("# ours\na x\n\n# theirs\nb x")
    rapi_users.add(path, User("c", "x"))
    rapi_users.remove(path, "a")
    assert path.read_text() == "# ours\n\n# theirs\nb x\nc x\n"


def test_a_user_who_is_not_there_cannot_be_removed(path: Path) -> None:
    with pytest.raises(errors.BadRequestError, match="there is no user joe"):
        rapi_users.remove(path, "joe")
    rapi_users.add(path, User("jim", "x"))
    with pytest.raises(errors.BadRequestError, match="there is no user joe"):
        rapi_users.remove(path, "joe")


@pytest.mark.parametrize("name", ["", "a b", "-a", "a:b", "#a", "ä", "x" * 65, "a\n"])
def test_a_new_name_is_plain(path: Path, name: str) -> None:
    with pytest.raises(errors.BadRequestError, match="expected up to 64 letters"):
        rapi_users.add(path, User(name, "x"))
    assert not path.exists()


def test_a_file_that_is_wrong_is_not_changed(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("joe\n")
    with pytest.raises(errors.StorageError, match=f"{path}: line 1: expected NAME"):
        rapi_users.add(path, User("a", "x"))
    with pytest.raises(errors.StorageError, match=f"{path}: line 1: expected NAME"):
        rapi_users.remove(path, "joe")
    assert path.read_text() == "joe\n"


def test_a_file_that_everybody_may_write_is_refused(path: Path) -> None:
    rapi_users.add(path, User("a", "x"))
    path.chmod(0o602)
    with pytest.raises(errors.StorageError, match="every user may write into it"):
        rapi_users.read(path)


def test_a_file_that_is_too_large_or_no_text_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    path.write_bytes(b"joe \xff\n")
    with pytest.raises(errors.StorageError, match="not UTF-8"):
        rapi_users.read(path)
    monkeypatch.setattr(rapi_settings, "USERS_BYTES_MAX", 5)
    with pytest.raises(errors.StorageError, match="larger than 5 bytes"):
        rapi_users.read(path)


def test_changes_at_the_same_time_are_all_made(path: Path) -> None:
    names = [f"u{number}" for number in range(24)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: rapi_users.add(path, User(name, "x")), names))
    assert sorted(user.name for user in rapi_users.read(path).values()) == sorted(names)
