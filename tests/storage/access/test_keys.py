"""Key files: made once, private, and refused with the file's name when they are wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.access import keys

# The test vector of the Z85 specification, and another.
PUBLIC, SECRET = (
    "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
    "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6",
)
OTHER = "0" * keys.KEY_CHARACTERS
PAIR = keys.KeyPair(public=PUBLIC, secret=SECRET)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def never() -> keys.KeyPair:
    raise AssertionError


def test_a_pair_reads_back_as_it_was_written(tmp_path: Path) -> None:
    pair = keys.KeyPair(public=PUBLIC, secret=SECRET, server=OTHER)
    keys.create_key(tmp_path / "k", pair)
    assert keys.read_key(tmp_path / "k") == pair
    assert keys.read_public_key(tmp_path / "k") == PUBLIC


# Their values: the bytes of the specification's example.
HEX = (
    "54fcba24e93249969316fb617c872bb0c1d1ff14800427c594cbfacf1bc2d652",
    "8e0bdd697628b91d8f245587ee95c5b04d48963f79259877b49cd9063aead3b7",
)


def test_keys_are_written_and_shown_in_hexadecimal_digits(tmp_path: Path) -> None:
    keys.create_key(tmp_path / "k", PAIR)
    assert (tmp_path / "k").read_text().splitlines()[1:] == [f"public {HEX[0]}", f"secret {HEX[1]}"]
    assert keys.to_hex(PUBLIC) == HEX[0]
    for written in (HEX[0], HEX[0].upper(), PUBLIC):
        assert keys.check_key(written, "key") == PUBLIC


def test_keys_of_earlier_versions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_text(f"public {PUBLIC}\nsecret {SECRET}\n")
    path.chmod(0o600)
    assert keys.read_key(path) == PAIR


def test_a_revoked_client_is_not_known_any_more(tmp_path: Path) -> None:
    keys.authorise(tmp_path, HEX[0], "laptop")
    keys.authorise(tmp_path, OTHER, "other")
    assert keys.name_of(tmp_path, PUBLIC) == "laptop"
    keys.revoke(tmp_path, "laptop")
    assert keys.name_of(tmp_path, PUBLIC) is None
    assert keys.known_keys(tmp_path) == {OTHER: "other"}
    for name, expected in (("laptop", "no client is called 'laptop'"), ("../x", "expected up to")):
        with pytest.raises(errors.BadRequestError, match=expected):
            keys.revoke(tmp_path, name)


def test_a_key_file_is_for_its_owner_alone_and_the_only_file_left(tmp_path: Path) -> None:
    keys.create_key(tmp_path / "k", PAIR)
    assert mode(tmp_path / "k") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def test_a_key_file_is_never_replaced(tmp_path: Path) -> None:
    keys.create_key(tmp_path / "k", PAIR)
    other = keys.KeyPair(public=OTHER, secret=OTHER)
    with pytest.raises(errors.BadRequestError, match="k: exists already"):
        keys.create_key(tmp_path / "k", other)
    assert keys.read_key(tmp_path / "k") == PAIR
    assert len(list(tmp_path.iterdir())) == 1


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k"
    keys.create_key(path, PAIR)
    path.chmod(0o640)
    with pytest.raises(errors.StorageError, match="others may read this secret"):
        keys.read_key(path)
    assert keys.read_public_key(path) == PUBLIC


def test_a_secret_is_not_shown_by_accident() -> None:
    assert SECRET not in repr(PAIR)
    assert SECRET not in f"{PAIR}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a line 'public KEY'"),
        (f"public {PUBLIC}\n", "expected a line 'secret KEY'"),
        (f"public {PUBLIC[:-1]}\n", "line 1: expected 64 hexadecimal digits"),
        (f"# c\npublic {'#' * 40}\n", "line 2: expected 64 hexadecimal digits"),
        (f"public {PUBLIC[:-1]}~\n", "line 1: expected 64 hexadecimal digits"),
        (f"{PUBLIC}\n", "line 1: expected each of public, secret, server once"),
        (f"public {PUBLIC}\npublic {PUBLIC}\n", "line 2: expected each of"),
        ("x" * 5000, "too large for a key file"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "bad.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(errors.StorageError, match=r"bad\.key: ") as caught:
        keys.read_key(path)
    assert expected in caught.value.text


def test_a_file_and_its_words_are_read_up_to_their_bounds(tmp_path: Path) -> None:
    path = tmp_path / "just.key"
    # The last is the largest number of 32 bits, and one more has five digits too.
    lines = f"public {'%nSc0' * 8}\nsecret {'0' * 40}\n"
    for comment, word in ((keys._FILE_BYTES_MAX - len(lines) - 1, "%nSc0"), (9, "%nSc1")):
        path.write_text("#" * comment + "\n" + lines.replace("%nSc0\n", f"{word}\n"))
        path.chmod(0o600)
        if word == "%nSc0":
            assert keys.read_key(path).public == word * 8
    with pytest.raises(errors.StorageError, match="line 2: expected 64 hexadecimal digits"):
        keys.read_key(path)
    path.write_text("#" * (keys._FILE_BYTES_MAX - len(lines)) + "\n" + lines)
    with pytest.raises(errors.StorageError, match="too large"):
        keys.read_key(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.StorageError, match="nothing"):
        keys.read_key(tmp_path / "nothing")


def test_the_daemons_pair_is_made_once(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "keys"
    assert keys.server_pair(directory, lambda: PAIR) == PAIR
    assert keys.server_pair(directory, never) == PAIR
    assert (mode(directory), mode(directory / "server.key")) == (0o700, 0o600)


def test_of_two_that_make_the_daemons_pair_at_once_both_get_the_first(tmp_path: Path) -> None:
    def make() -> keys.KeyPair:
        keys.create_key(tmp_path / "server.key", PAIR)
        return keys.KeyPair(public=OTHER, secret=OTHER)

    assert keys.server_pair(tmp_path, make) == PAIR


def test_an_authorised_client_is_known_by_its_key(tmp_path: Path) -> None:
    assert keys.known_keys(tmp_path) == {}
    assert not (keys.name_of(tmp_path, PUBLIC) is not None)
    keys.authorise(tmp_path, PUBLIC, "backup@host-1")
    assert keys.known_keys(tmp_path) == {PUBLIC: "backup@host-1"}
    assert keys.name_of(tmp_path, PUBLIC) is not None
    assert not (keys.name_of(tmp_path, OTHER) is not None)
    assert mode(tmp_path / "clients") == 0o700
    assert mode(tmp_path / "clients" / "backup@host-1.pub") == 0o600


def test_authorising_twice_is_harmless_but_a_name_stands_for_one_key(tmp_path: Path) -> None:
    keys.authorise(tmp_path, PUBLIC, "a")
    keys.authorise(tmp_path, PUBLIC, "a")
    with pytest.raises(errors.BadRequestError, match="another key has this name"):
        keys.authorise(tmp_path, OTHER, "a")
    assert keys.known_keys(tmp_path) == {PUBLIC: "a"}


def test_a_name_that_was_not_flushed_is_flushed_when_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, flushed = os.fsync, []
    clients = tmp_path / "keys" / "clients"

    def fail(descriptor: int) -> None:
        is_of_clients = os.readlink(f"/proc/self/fd/{descriptor}") == str(clients)
        if is_of_clients and (clients / "a.pub").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def flush(descriptor: int) -> None:
        fsync(descriptor)
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    for calls in (("fsync",), ("fsync", "unlink")):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            if "unlink" in calls:
                patch.setattr(os, "unlink", lambda *_, **__: None)
            with pytest.raises(errors.StorageError, match="Input/output error"):
                keys.authorise(tmp_path / "keys", PUBLIC, "a")
        assert (clients / "a.pub").exists() == ("unlink" in calls)
        flushed.clear()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", flush)
            keys.authorise(tmp_path / "keys", PUBLIC, "a")
        assert str(clients) in flushed
        (clients / "a.pub").unlink()
    link = os.link

    def link_too_late(source: Path, target: Path) -> None:
        # Another process makes the same file just before, and has not flushed it yet.
        link(source, target)
        flushed.clear()
        raise FileExistsError

    monkeypatch.setattr(os, "link", link_too_late)
    monkeypatch.setattr(os, "fsync", flush)
    keys.authorise(tmp_path / "keys", PUBLIC, "a")
    assert flushed == [str(clients)]


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "a b", "a" * 65, "ä"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.BadRequestError, match="name"):
        keys.authorise(tmp_path, PUBLIC, name)
    assert list(tmp_path.iterdir()) == []


def test_a_malformed_key_is_not_authorised(tmp_path: Path) -> None:
    with pytest.raises(
        errors.BadRequestError, match="the public key: expected 64 hexadecimal digits"
    ):
        keys.authorise(tmp_path, "short", "a")


def test_a_bad_file_is_named_but_keeps_only_its_own_client_out(tmp_path: Path) -> None:
    keys.authorise(tmp_path, PUBLIC, "good")
    (tmp_path / "clients" / "bad.pub").write_text("rubbish")
    assert keys.name_of(tmp_path, PUBLIC) is not None
    with pytest.raises(errors.StorageError, match=r"bad\.pub: line 1"):
        keys.known_keys(tmp_path)


def test_a_client_whose_file_is_deleted_may_not_connect_any_more(tmp_path: Path) -> None:
    keys.authorise(tmp_path, PUBLIC, "a")
    (tmp_path / "clients" / "a.pub").unlink()
    assert not (keys.name_of(tmp_path, PUBLIC) is not None)


def test_a_key_that_cannot_be_stored_is_refused_with_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "no-such-folder" / "k"
    with pytest.raises(errors.StorageError) as refused:
        keys.create_key(path, PAIR)
    assert refused.value.text == f"{path}: No such file or directory"
