"""A data directory is used by its owner alone. Needs root, to give files to others."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.disk import ownership, paths
from ganger.storage.disk.paths import Places
from ganger.storage.fsck import checking, survey
from ganger.storage.fsck.findings import Finding, FindingKind

NAMELESS = 54_321
"""A user that no table knows."""

OTHER = pwd.getpwnam("nobody").pw_uid

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@pytest.fixture(name="places")
def directory(tmp_path: Path) -> Places:
    """A data directory with a job in it, as a daemon leaves it."""
    places = paths.places(tmp_path / "data")
    clients = places.keys / "clients"
    for path in (places.data, places.queue, places.journal, places.spool, clients):
        path.mkdir(mode=0o750, parents=True)
    (places.queue / "version").write_text("1\n")
    for path in (places.queue / "job-1", places.queue / "serial", places.journal / "1.journal"):
        path.write_text("1")
    places.rapi_users.parent.mkdir(mode=0o700)
    for path in (places.rapi_users, places.rapi_certificate):
        path.write_text("1")
    for path in (places.config, clients / "a.pub", places.queue / "job-2", places.spool / "x"):
        path.write_text("1")
    return places


PARTS: dict[str, Callable[[Places], Path]] = {
    "data directory": lambda places: places.data,
    "queue": lambda places: places.queue,
    "journal": lambda places: places.journal,
    "keys": lambda places: places.keys,
    "job": lambda places: places.queue / "job-2",
    "serial": lambda places: places.queue / "serial",
    "segment": lambda places: places.journal / "1.journal",
    "spool": lambda places: places.spool,
    "input of a job": lambda places: places.spool / "x",
    "configuration": lambda places: places.config,
    "folder of the remote API's users": lambda places: places.rapi_users.parent,
    "remote API's users": lambda places: places.rapi_users,
    "remote API's certificate": lambda places: places.rapi_certificate,
    "client's key": lambda places: places.keys / "clients" / "a.pub",
}


def refusal(places: Places) -> str:
    with pytest.raises(errors.NotOwnerError) as caught:
        ownership.require_own(places, "up")
    return caught.value.text


def test_the_owner_of_everything_may_use_it(places: Places) -> None:
    ownership.require_own(places, "up")


def test_a_directory_that_is_not_there_belongs_to_the_user_that_makes_it(tmp_path: Path) -> None:
    ownership.require_own(paths.places(tmp_path / "missing"), "up")


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_root_does_not_run_the_queue_of_another_user(
    places: Places, part: Callable[[Places], Path]
) -> None:
    path = part(places)
    os.chown(path, OTHER, -1)
    text = refusal(places)
    assert text.startswith(f"{path}: belongs to nobody (uid {OTHER}), and this is root (uid 0)")


def test_the_refusal_names_the_command_that_runs_it_as_the_owner(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(places.queue, OTHER, -1)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/sudo")
    assert refusal(places).endswith(f"owner: sudo -u nobody ganger --data {places.data} up")
    os.chown(places.queue, NAMELESS, -1)
    assert refusal(places).endswith(f"owner: sudo -u '#{NAMELESS}' ganger --data {places.data} up")
    monkeypatch.setattr("shutil.which", lambda _: None)
    ending = f"--reuid {NAMELESS} --regid {NAMELESS} --clear-groups ganger --data {places.data} up"
    assert refusal(places).endswith(ending)


def test_a_link_of_another_user_is_refused_and_so_is_a_links_target(places: Places) -> None:
    elsewhere = places.data / "elsewhere"
    elsewhere.write_text("{}")
    link = places.queue / "job-3"
    link.symlink_to(elsewhere)
    ownership.require_own(places, "up")
    os.lchown(link, OTHER, -1)
    assert refusal(places).startswith(f"{link}: belongs to nobody")
    os.lchown(link, 0, -1)
    os.chown(elsewhere, OTHER, -1)
    assert refusal(places).startswith(f"{link}: belongs to nobody")


def test_another_user_finds_a_queue_of_root_refused(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    text = refusal(places)
    assert text.startswith(f"{places.queue}: belongs to root (uid 0), and this is nobody")


def test_a_queue_in_a_directory_of_root_may_be_used_by_its_owner(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (places.queue, *places.queue.iterdir()):
        os.chown(path, OTHER, -1)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    ownership.require_own(places, "up")


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_files_into_which_every_user_may_write_are_refused(
    places: Places, part: Callable[[Places], Path]
) -> None:
    path = part(places)
    path.chmod(path.stat().st_mode | stat.S_IWOTH)
    text = refusal(places)
    assert text.startswith(f"{path}: every user may write into it, and so run commands as root")
    assert text.endswith(f"look what is in it, then: chmod o-w {path}")


def test_a_group_that_may_write_is_named_but_a_private_one_is_not(places: Places) -> None:
    places.queue.chmod(0o770)
    assert ownership.group_warnings(places) == []
    os.chown(places.queue, -1, NAMELESS)
    (warning,) = ownership.group_warnings(places)
    assert warning == (
        f"{places.queue}: group {NAMELESS} may write into it, and so run commands as "
        f"root (uid 0); chmod g-w {places.queue} if it should not"
    )


def test_a_denied_access_names_the_owner_of_the_denying_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "closed" / "file"
    path.parent.mkdir()
    os.chown(path.parent, OTHER, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    text = ownership.explained(path, PermissionError(13, "Permission denied"))
    assert text == (
        f"{path}: Permission denied ({path.parent} belongs to nobody (uid {OTHER}), "
        "and this is root (uid 0))"
    )
    path.touch()
    os.chown(path, NAMELESS, -1)
    text = ownership.explained(path, PermissionError(13, "Permission denied"))
    assert f"(it belongs to uid {NAMELESS}," in text


def test_other_errors_and_own_files_have_the_text_of_the_system(tmp_path: Path) -> None:
    assert ownership.explained("/x", OSError(28, "No space left")) == "/x: No space left"
    own = ownership.explained(tmp_path, PermissionError(13, "Permission denied"))
    assert own == f"{tmp_path}: Permission denied"


def findings(places: Places) -> list[Finding]:
    kinds = {FindingKind.OTHER_USER, FindingKind.OWNER, FindingKind.OPEN_TO_ALL}
    return [one for one in checking.check(survey.survey(places)) if one.kind in kinds]


def test_a_check_names_files_that_the_owner_of_the_queue_does_not_own(places: Places) -> None:
    for name in ("job-1", "job-2"):
        os.chown(places.queue / name, OTHER, -1)
    places.config.chmod(0o666)
    first, second = findings(places)
    assert first.kind is FindingKind.OWNER
    assert first.what == f"belongs to nobody (uid {OTHER}), with 1 other in its directory"
    assert (second.kind, second.path) == (FindingKind.OPEN_TO_ALL, str(places.config))


def test_a_check_by_another_user_names_the_owner_of_the_queue(places: Places) -> None:
    everything = [places.data, *places.data.rglob("*")]
    for path in everything:
        os.chown(path, OTHER, -1)
    (finding,) = findings(places)
    assert (finding.kind, finding.path) == (FindingKind.OTHER_USER, str(places.queue))
    assert finding.what == f"belongs to nobody (uid {OTHER})"


def test_a_file_of_another_user_is_not_judged_unreadable(places: Places) -> None:
    """A repair would put it aside, although its owner's daemon might read it well."""
    os.chown(places.queue / "job-1", OTHER, -1)
    found = checking.check(survey.survey(places))
    kinds = {one.kind for one in found if one.path.endswith("job-1")}
    assert kinds == {FindingKind.OWNER}
