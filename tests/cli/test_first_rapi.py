"""What the first start of a daemon makes for the remote API, and when it takes it back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganger.cli import first_rapi, start_report
from ganger.cli.first_rapi import FirstCredentials
from ganger.rapi import roles
from ganger.rapi.declarations import Right
from ganger.storage import errors
from ganger.storage.access import rapi_passwords, rapi_users
from ganger.storage.access.rapi_users import User
from ganger.storage.disk import paths
from ganger.storage.disk.paths import Places

URL = "https://127.0.0.1:5080/"


@pytest.fixture(name="places")
def directory(tmp_path: Path) -> Places:
    return paths.Places(tmp_path, tmp_path / "run")


def test_the_first_start_makes_a_certificate_and_a_user_whose_password_it_tells(
    places: Places,
) -> None:
    assert first_rapi.is_missing(places, has_tls=True)
    made = first_rapi.prepare_apart(places, "127.0.0.1", has_tls=True)
    assert made is not None
    assert not first_rapi.is_missing(places, has_tls=True)
    [user] = rapi_users.read(places.rapi_users).values()
    assert user.name == "admin"
    assert user.options == {"admin", "exec"}
    assert rapi_passwords.matches(user.secret, user.name, made.password)
    assert made.password not in places.rapi_users.read_text()
    assert made.password not in repr(made)
    assert "PRIVATE KEY" in places.rapi_certificate.read_text()
    before = places.rapi_users.read_bytes(), places.rapi_certificate.read_bytes()
    assert first_rapi.prepare_apart(places, "127.0.0.1", has_tls=True) is None
    assert before == (places.rapi_users.read_bytes(), places.rapi_certificate.read_bytes())


@pytest.mark.parametrize(
    ("address", "has_tls", "may"),
    [
        *(("127.0.0.1", False, True), ("::1", False, True), ("0.0.0.0", True, True)),
        *(("0.0.0.0", False, False), ("::", False, False), ("localhost", False, False)),
    ],
)
def test_the_first_user_runs_commands_unless_others_may_read_the_password(
    places: Places,
    address: str,
    has_tls: bool,  # noqa: FBT001
    may: bool,  # noqa: FBT001
) -> None:
    assert first_rapi.prepare(places, address, has_tls=has_tls) is not None
    [user] = rapi_users.read(places.rapi_users).values()
    assert ("exec" in user.options) == may
    assert roles.refusal(user, Right.SUBMIT, ["OP_TEST_DELAY"]) is None


def test_only_what_is_missing_is_made(places: Places) -> None:
    rapi_users.add(places.rapi_users, User("joe", "x"))
    assert not first_rapi.is_missing(places, has_tls=False)
    assert first_rapi.prepare(places, "", has_tls=False) is None
    assert not places.rapi_certificate.exists()
    assert first_rapi.prepare(places, "", has_tls=True) is None
    assert places.rapi_certificate.exists()
    assert [user.name for user in rapi_users.read(places.rapi_users).values()] == ["joe"]


def test_a_directory_in_which_nothing_can_be_made_is_the_reason(places: Places) -> None:
    places.rapi_users.parent.write_text("in the way")
    with pytest.raises(errors.StorageError, match=r"rapi"):
        first_rapi.prepare_apart(places, "", has_tls=False)


def test_a_user_whose_password_was_not_shown_is_taken_back(places: Places) -> None:
    made = first_rapi.prepare(places, "", has_tls=False)
    assert made is not None
    first_rapi.forget(places, made)
    assert first_rapi.is_missing(places, has_tls=False)
    first_rapi.forget(places, made)
    first_rapi.forget(places, None)


def test_a_user_whose_password_was_shown_stays_and_so_do_others(places: Places) -> None:
    made = first_rapi.prepare(places, "", has_tls=False)
    assert made is not None
    rapi_users.add(places.rapi_users, User("joe", "x"))
    made.url = URL
    first_rapi.forget(places, made)
    assert len(rapi_users.read(places.rapi_users)) == 2
    made.url = ""
    first_rapi.forget(places, made)
    assert [user.name for user in rapi_users.read(places.rapi_users).values()] == ["joe"]


def test_a_foreground_daemon_shows_the_credentials_once(
    places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(start_report.READY_VARIABLE, raising=False)
    credentials = FirstCredentials("admin", "4711", URL)
    start_report.Announcement(places).ready(credentials)
    shown = capsys.readouterr().out
    assert f"Remote API: {URL}\nUser:       admin\nPassword:   4711\n" in shown
    start_report.Announcement(places).ready()
    assert "Remote API" not in capsys.readouterr().out


def test_credentials_go_to_the_command_through_a_pipe_and_nowhere_else(
    places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setenv(start_report.READY_VARIABLE, str(writer))
    credentials = FirstCredentials("admin", "4711 \n", URL)
    start_report.Announcement(places).ready(credentials)
    with open(reader, encoding="utf-8") as report:
        code, _, text = report.read().strip().partition(" ")
    assert code == "ready"
    assert first_rapi.read(text) == credentials
    assert first_rapi.read("") is None
    assert "4711" not in capsys.readouterr().out


def test_a_server_that_could_not_start_is_told_with_the_credentials() -> None:
    """The password must not go to whoever listens there instead."""
    credentials = FirstCredentials("admin", "4711", URL, "cannot start: Address already in use")
    assert credentials.lines()[0] == (
        f"Remote API: {URL} NOT READY: cannot start: Address already in use"
    )
    assert FirstCredentials("admin", "4711", URL).lines()[0] == f"Remote API: {URL}"
