"""Both clients against a small daemon with real sockets."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transport.client.both_clients import Aside, Connect, shown
from tests.transport.client.fake_daemon import PATIENCE_SECONDS, FakeDaemon

from ganger import Client
from ganger.storage import errors, settings
from ganger.storage.access import keys
from ganger.storage.disk import documents, paths
from ganger.storage.jobs.job_views import JobInfo, LogLine, StatusChange
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.client import connection, reachability
from ganger.transport.zmq.sockets import new_key_pair

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
Start = Callable[..., FakeDaemon]


def some(parts: Iterator[StatusChange | LogLine], count: int) -> list[str]:
    return [shown(next(parts)) for _ in range(count)]


def received(daemon: FakeDaemon) -> list[messages.Message]:
    found = []
    with contextlib.suppress(queue.Empty):
        while True:
            found.append(daemon.received.get_nowait())
    return found


def seen(daemon: FakeDaemon) -> list[type[messages.Message]]:
    return [type(message) for message in received(daemon)]


# Verbs.


def test_a_submitted_job_arrives_as_it_was_written(daemon: FakeDaemon, client: Client) -> None:
    before = time.time_ns()
    job_id = client.submit(OP, reason="backup", priority=-3, depends=[4, [5, ["error"]]])
    spec = daemon.store.specs[job_id]
    ((source, text, stamp),) = spec.reason
    assert (spec.ops, spec.priority, source, text) == ([OP], -3, "gnt:user", "backup")
    assert before <= stamp <= time.time_ns()
    assert spec.depends == [(4, ["success"]), (5, ["error"])]


def test_names_go_with_jobs_and_plans_and_find_them(daemon: FakeDaemon, client: Client) -> None:
    client.submit(OP, name="backup")
    client.submit_many([{"ops": [OP], "name": "dump"}, [OP]], plan="nightly")
    assert [spec.name or None for spec in daemon.store.specs.values()] == ["backup", "dump", None]
    sent = [one for one in received(daemon) if isinstance(one, messages.SubmitJobs)]
    assert [one.plan for one in sent] == [None, "nightly"]
    assert client.find("dump", "x", "backup") == [[2], [], [1]]
    assert client.find() == []
    for wrong in ({"name": "17"}, {"name": 5}, {"plan": "@x"}):
        with pytest.raises(errors.BadRequestError, match=next(iter(wrong))):
            client.submit_many([OP], **wrong)


@pytest.mark.parametrize(
    "size", [0, 1, settings.STDIN_PART_BYTES, 5 * settings.STDIN_PART_BYTES // 2]
)
def test_an_input_is_sent_in_parts(daemon: FakeDaemon, client: Client, size: int) -> None:
    data = b"\xff" * size
    name = client.store_input([data[:7], data[7:]])
    assert {f"upload-{token}": kept for token, kept in daemon.store.inputs.items()} == {name: data}
    last = [one.is_last for one in received(daemon) if isinstance(one, messages.StoreInput)]
    assert last == [False] * (len(last) - 1) + [True]


def test_the_newest_jobs_come_first_over_several_pages(
    client: Client, monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon
) -> None:
    client.submit_many([[OP]] * 7)
    monkeypatch.setattr(settings, "LIST_PAGE_ROWS", 2)
    received(daemon)
    assert [job.id for job in client.jobs(last=5)] == [7, 6, 5, 4, 3]
    assert len(received(daemon)) == 3
    assert [job.id for job in client.jobs(last=99)] == [7, 6, 5, 4, 3, 2, 1]
    with pytest.raises(errors.BadRequestError, match="last: expected a number from 1 on"):
        list(client.jobs(last=0))


def test_many_jobs_get_their_ids_in_order(daemon: FakeDaemon, client: Client) -> None:
    assert client.submit_many([[OP], {"ops": [OP, OP], "depends": [-1]}, OP]) == [1, 2, 3]
    assert daemon.store.specs[2].depends == [(-1, ["success"])]


@pytest.mark.usefixtures("daemon")
def test_a_key_stores_once_and_without_one_each_submission_counts(client: Client) -> None:
    assert [client.submit(OP, key="nightly") for _ in range(2)] == [1, 1]
    assert [client.submit(OP) for _ in range(2)] == [2, 3]
    assert [client.submit_many([[OP], OP], key="k") for _ in range(2)] == [[4, 5], [4, 5]]


def test_a_dry_run_stores_nothing(daemon: FakeDaemon, client: Client) -> None:
    assert client.submit(OP, dry_run=True) == 0
    assert daemon.store.specs == {}


def test_jobs_come_page_by_page_without_being_read_whole(
    daemon: FakeDaemon, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "LIST_PAGE_ROWS", 2)
    client.submit_many([OP] * 5)
    seen(daemon)
    jobs = list(client.jobs())
    assert [job.id for job in jobs] == [1, 2, 3, 4, 5]
    assert {job.ops for job in jobs} == {None}
    assert seen(daemon) == [messages.ListJobs] * 3


@pytest.mark.usefixtures("daemon")
def test_jobs_can_be_chosen_by_id_and_status(client: Client) -> None:
    client.submit_many([OP] * 5)
    client.cancel(3)
    assert [job.id for job in client.jobs(statuses=["canceled"])] == [3]
    assert [job.id for job in client.jobs([5, 2, 2])] == [2, 5]
    with pytest.raises(errors.UnknownJobError, match="job 9: there is no such job"):
        list(client.jobs([9]))
    with pytest.raises(errors.UnknownJobError):
        list(client.jobs([9], fields=["ops"]))


@pytest.mark.usefixtures("daemon")
def test_whole_jobs_are_read_when_their_opcodes_are_wanted(client: Client) -> None:
    client.submit_many([OP] * 20)
    jobs = list(client.jobs(fields=["id", "ops"]))
    assert [job.id for job in jobs] == list(range(1, 21))
    assert all(job.ops is not None and job.ops[0].input == OP for job in jobs)


@pytest.mark.usefixtures("daemon")
def test_one_job_is_shown_whole(client: Client) -> None:
    client.submit(OP)
    job = client.job(1)
    assert isinstance(job, JobInfo)
    assert job.ops is not None
    assert (job.ops[0].op_id, job.ops[0].status) == ("OP_TEST_DELAY", "queued")
    with pytest.raises(errors.UnknownJobError):
        client.job(2)


@pytest.mark.usefixtures("daemon")
def test_the_smaller_verbs_give_the_daemons_answers(client: Client) -> None:
    client.submit(OP)
    assert not client.set_priority(1, 5).accepted
    assert client.cancel(1).text == "Job 1 canceled"
    assert client.archive(1).archived == [1]
    assert client.autoarchive(3600).left == 2
    purged = client.purge(older_than=3600)
    assert (purged.jobs, purged.left_out) == ({1: 4096, 2: 4096}, {9: "there is no job 9"})
    assert purged.freed_bytes == 8192
    assert [row.name for row in client.locks()] == ["node/n1"]
    client.stop()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda client: client.submit("OP_EXEC"), errors.OpcodeError),
        (lambda client: client.submit([5]), errors.OpcodeError),
        (lambda client: client.submit({"OP_ID": "OP_EXEC", "x": object()}), errors.BadRequestError),
        (lambda client: client.submit(OP, depends=["x"]), errors.DependencyError),
        (lambda client: client.jobs(fields=["colour"]), errors.BadRequestError),
        (lambda client: client.jobs(statuses=["done"]), errors.BadRequestError),
        (lambda client: client.job("1"), errors.BadRequestError),
        (lambda client: client.watch(0), errors.BadRequestError),
        (lambda client: client.follow("1"), errors.BadRequestError),
        (lambda client: client.logs(1, stream="both"), errors.BadRequestError),
        (lambda client: client.logs(1, follow=True, tail=-1), errors.BadRequestError),
        (
            lambda client: client.submit({**OP, "comment": "x" * settings.FRAME_BYTES_MAX}),
            errors.FrameError,
        ),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_sent(
    client: Client, call: Callable[[Client], object], error: type[errors.GangerError]
) -> None:
    with pytest.raises(error):
        call(client)


@pytest.mark.usefixtures("daemon")
def test_a_frame_larger_than_the_limit_reaches_no_daemon(client: Client) -> None:
    with pytest.raises(errors.FrameError, match=f"more than {settings.FRAME_BYTES_MAX}"):
        client.submit({**OP, "comment": "x" * settings.FRAME_BYTES_MAX})
    assert client.submit(OP) == 1


# Deadlines and errors.


def test_a_call_ends_at_its_own_deadline(start: Start, client: Client) -> None:
    start(silent_to=(messages.SubmitJobs,))
    with pytest.raises(errors.DeadlineError, match="submit_jobs is unknown: no answer"):
        client.submit(OP, timeout=0.05)


def test_errors_of_the_daemon_arrive_with_their_class_and_text(
    daemon: FakeDaemon, client: Client
) -> None:
    daemon.refusals[messages.SubmitJobs] = [errors.RejectedError("rule 7 rejects this")]
    with pytest.raises(errors.RejectedError, match="rule 7 rejects this"):
        client.submit(OP)


def test_a_busy_daemon_is_asked_again(daemon: FakeDaemon, client: Client) -> None:
    daemon.refusals[messages.SubmitJobs] = [errors.BusyError(), errors.ComponentRestartedError()]
    assert client.submit(OP) == 1
    assert seen(daemon) == [messages.SubmitJobs] * 3


def test_without_a_data_directory_the_error_says_at_once_how_to_start(
    data: Path, client: Client
) -> None:
    with pytest.raises(errors.DaemonUnreachableError) as caught:
        client.info()
    assert caught.value.text == (
        f"no daemon answers for data directory {data}; start one: GANGER_DATA={data} ganger up"
    )


def test_the_data_directory_of_the_environment_is_used(
    data: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGER_DATA", str(data))
    with pytest.raises(errors.DaemonUnreachableError) as caught:
        connect().info()
    assert caught.value.text.endswith(f"{data}; start one: ganger up")


@pytest.mark.parametrize("has_socket", ["has socket", ""])
def test_the_word_left_by_a_dead_daemon_is_seen_through(
    daemon: FakeDaemon,
    data: Path,
    client: Client,
    has_socket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reachability, "GRACE_SECONDS", 0.5)
    daemon.kill()
    if not has_socket:
        paths.places(data).socket.unlink()
    began = time.monotonic()
    # Long before the deadline of the call.
    with pytest.raises(errors.DaemonUnreachableError, match="ganger up"):
        client.info(timeout=settings.CLIENT_DEADLINE_SECONDS)
    assert reachability.GRACE_SECONDS <= time.monotonic() - began < settings.CLIENT_DEADLINE_SECONDS


def test_a_client_that_found_no_daemon_finds_it_later(start: Start, client: Client) -> None:
    with pytest.raises(errors.DaemonUnreachableError):
        client.submit(OP)
    daemon = start()
    assert client.submit(OP) == 1
    daemon.kill()
    with pytest.raises(errors.DaemonUnreachableError):
        client.submit(OP, timeout=0.1)
    start()
    assert client.submit(OP) == 1


def test_a_word_that_no_daemon_wrote_is_named(data: Path, client: Client) -> None:
    documents.make_directory(data)
    (data / "daemon.json").write_text("{}")
    with pytest.raises(errors.StorageError, match=r"daemon\.json: no daemon wrote this"):
        client.info()


@pytest.mark.parametrize("torn", [b"", b"\0" * 200, b'{"pid": 1, "version": "0.'])
def test_a_torn_endpoint_file_counts_as_none(data: Path, client: Client, torn: bytes) -> None:
    documents.make_directory(data)
    (data / "daemon.json").write_bytes(torn)
    with pytest.raises(errors.DaemonUnreachableError, match="no daemon answers"):
        client.info()


def test_a_client_waits_for_a_successor_that_has_not_repaired_a_torn_endpoint_file(
    start: Start, data: Path, client: Client
) -> None:
    daemon = start()
    assert client.submit(OP) == 1
    daemon.kill()
    (data / "daemon.json").write_bytes(b"")
    successor = threading.Timer(0.5, start)
    successor.start()
    assert client.submit(OP, timeout=PATIENCE_SECONDS) == 1
    successor.join()


@pytest.mark.usefixtures("daemon")
def test_a_closed_client_refuses_calls(client: Client) -> None:
    watch = client.watch()
    client.submit(OP)
    assert some(watch, 1) == ["1:queued"]
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.submit(OP)
    with pytest.raises(RuntimeError, match="closed"):
        next(watch)


# Restarts.


def test_a_submission_cut_off_by_a_restart_is_stored_once(start: Start, client: Client) -> None:
    first = start(silent_to=(messages.SubmitJobs,))
    call = Aside(lambda: client.submit_many([OP, OP]))
    first.wait_for(messages.SubmitJobs)
    first.kill()
    second = start(first.store)
    assert call.result() == [1, 2]
    second.wait_for(messages.SubmitJobs)
    assert len(second.store.specs) == 2


def test_a_daemon_that_comes_back_elsewhere_is_found(
    start: Start, data: Path, client: Client, tmp_path: Path
) -> None:
    first = start()
    client.submit(OP)
    first.kill()
    paths.places(data).socket.unlink()
    start(first.store, socket=tmp_path / "elsewhere" / "socket")
    assert client.submit(OP) == 2


def test_a_watch_goes_on_after_a_restart_without_repeating_or_losing(
    start: Start, client: Client
) -> None:
    first = start()
    client.submit_many([OP, OP])
    parts = client.watch(1, 2)
    assert sorted(some(parts, 2)) == ["1:queued", "2:queued"]
    first.change(1, JobStatus.RUNNING)
    first.log(1, "one")
    assert some(parts, 2) == ["1:running", "1#one"]
    first.kill()

    # Meanwhile the jobs go on.
    first.store.statuses[2] = JobStatus.SUCCESS
    first.store.logs[1].append((2, (1, 0), "message", "two"))
    second = start(first.store)
    assert sorted(some(parts, 2)) == ["1#two", "2:success"]
    second.log(1, "three")
    second.change(1, JobStatus.ERROR)
    assert [shown(part) for part in parts] == ["1#three", "1:error"]


def test_a_watch_that_the_daemon_has_dropped_is_revived(
    daemon: FakeDaemon, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CLIENT_HEARTBEAT_SECONDS", 0.05)
    client.submit(OP)
    parts = client.watch(1)
    assert some(parts, 1) == ["1:queued"]
    daemon.lose_watches()
    daemon.change(1, JobStatus.SUCCESS)
    assert [shown(part) for part in parts] == ["1:success"]


def test_stopping_a_daemon_that_goes_without_a_word_is_a_success(
    start: Start, client: Client
) -> None:
    daemon = start(silent_to=(messages.StopDaemon,))
    call = Aside(client.stop)
    daemon.wait_for(messages.StopDaemon)
    daemon.kill()
    assert call.result() is None


# Following.


def test_waiting_returns_whole_jobs_in_the_order_given(daemon: FakeDaemon, client: Client) -> None:
    client.submit_many([OP] * 3)
    call = Aside(lambda: client.wait(3, 1, 3))
    daemon.wait_for(messages.WatchJobs)
    daemon.change(1, JobStatus.SUCCESS)
    daemon.change(3, JobStatus.ERROR)
    jobs = call.result()
    assert [(job.id, job.status) for job in jobs] == [(3, "error"), (1, "success"), (3, "error")]
    assert jobs[0].ops[0].status == "error"


@pytest.mark.usefixtures("daemon")
def test_waiting_for_jobs_that_have_ended_returns_at_once(client: Client) -> None:
    client.submit(OP)
    client.cancel(1)
    (job,) = client.wait(1, fields=["status"])
    assert (job.status, job.ops) == ("canceled", None)
    assert client.wait(1) == [client.job(1)]
    assert client.wait() == []


@pytest.mark.usefixtures("daemon")
def test_waiting_too_long_names_the_jobs_that_go_on(client: Client) -> None:
    client.submit_many([OP] * 3)
    client.cancel(2)
    with pytest.raises(errors.DeadlineError, match=r"not final in .*: 1 \(queued\), 3 \(queued\)$"):
        client.wait(1, 2, 3, timeout=0.1)


@pytest.mark.parametrize("endless", [math.inf, 1e300, 10**400], ids=["inf", "large", "whole"])
def test_whoever_has_endless_patience_may_say_so(
    data: Path, daemon: FakeDaemon, connect: Connect, endless: float
) -> None:
    client = connect(data, timeout=endless)
    job_id = client.submit(OP)
    assert client.job(job_id, timeout=endless).id == job_id
    watch = client.watch(job_id, timeout=endless, pause=endless)
    first = next(watch)
    assert first is not None
    assert shown(first) == "1:queued"
    daemon.change(job_id, JobStatus.SUCCESS)
    assert [job.id for job in client.wait(job_id, timeout=endless)] == [job_id]


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("wrong", [math.nan, True, "5"])
def test_what_is_no_span_of_time_is_refused(data: Path, connect: Connect, wrong: Any) -> None:
    client = connect(data)
    asks: list[Callable[[], object]] = [
        lambda: connect(data, timeout=wrong),
        lambda: client.job(1, timeout=wrong),
        lambda: client.wait(1, timeout=wrong),
        lambda: next(client.watch(1, timeout=wrong)),
        lambda: next(client.watch(1, pause=wrong)),
        lambda: client.await_change(1, ["status"], seconds=wrong),
    ]
    for ask in asks:
        with pytest.raises(errors.BadRequestError, match=": expected a number of seconds, got "):
            ask()


@pytest.mark.usefixtures("daemon")
def test_waiting_for_an_unknown_job_is_an_error(client: Client) -> None:
    with pytest.raises(errors.UnknownJobError):
        client.wait(7)


@pytest.mark.usefixtures("daemon")
def test_calls_can_be_made_between_the_parts_of_a_watch(client: Client) -> None:
    client.submit(OP)
    got = []
    for part in client.watch(1):
        got.append(shown(part))
        if len(got) == 1:
            assert client.cancel(1).accepted
    assert got == ["1:queued", "1:canceled"]


def test_all_jobs_can_be_followed(daemon: FakeDaemon, client: Client) -> None:
    client.submit(OP)
    parts = client.watch()
    assert some(parts, 1) == ["1:queued"]
    client.submit(OP)
    daemon.change(2, JobStatus.WAITING)
    assert some(parts, 1) == ["2:waiting"]


def test_changes_of_all_jobs_may_come_together(daemon: FakeDaemon, client: Client) -> None:
    client.submit(OP)
    parts = client.watch(gathered=True)
    assert some(parts, 1) == ["1:queued"]
    client.submit(OP)
    daemon.change(2, JobStatus.WAITING)
    daemon.change(2, JobStatus.RUNNING)
    assert some(parts, 2) == ["2:waiting", "2:running"]
    watched = [each for each in received(daemon) if isinstance(each, messages.WatchJobs)]
    assert [each.is_gathered for each in watched] == [True]


@pytest.mark.parametrize("verb", ["watch", "follow"])
def test_the_daemon_learns_that_a_watch_was_left(
    daemon: FakeDaemon, client: Client, verb: str
) -> None:
    client.submit(OP)
    for _ in getattr(client, verb)(1):
        break
    daemon.wait_for(messages.StopWatch)


def test_the_daemon_learns_that_the_client_was_closed(daemon: FakeDaemon, client: Client) -> None:
    with client:
        client.submit(OP)
        assert some(client.watch(1), 1) == ["1:queued"]
        watch = client.watch(1)
        assert some(watch, 1) == ["1:queued"]
        daemon.wait_for(messages.StopWatch)
    daemon.wait_for(messages.StopWatch)


def test_a_watch_with_pauses_gives_none_while_nothing_comes(
    daemon: FakeDaemon, client: Client
) -> None:
    client.submit(OP)
    parts = client.watch(1, pause=0.01)
    # On a busy machine a pause may pass before the first part.
    assert shown(next(part for part in parts if part is not None)) == "1:queued"
    assert [next(parts), next(parts)] == [None, None]
    client.cancel(1)
    assert [shown(part) for part in parts if part is not None] == ["1:canceled"]
    daemon.kill()


def test_a_daemon_that_is_away_makes_no_pause(daemon: FakeDaemon, client: Client) -> None:
    client.submit(OP)
    parts = client.watch(1, pause=0.01, timeout=0.5)
    assert next(part for part in parts if part is not None) is not None
    assert next(parts) is None
    daemon.kill()
    left: list[object] = []
    with pytest.raises(errors.GangerError):
        left.extend(parts)
    # The loss of the connection may be noticed only after another pause.
    assert len(left) <= 1


def test_a_watch_without_log_gives_none(daemon: FakeDaemon, client: Client) -> None:
    client.submit(OP)
    daemon.log(1, "line")
    parts = client.watch(1, log=False)
    assert some(parts, 1) == ["1:queued"]
    client.cancel(1)
    assert [shown(part) for part in parts] == ["1:canceled"]


# Several callers.


@pytest.mark.usefixtures("daemon")
def test_several_threads_may_use_a_client(client: Client) -> None:
    calls = [Aside(lambda: [client.submit(OP) for _ in range(20)]) for _ in range(4)]
    ids = [job_id for call in calls for job_id in call.result()]
    assert sorted(ids) == list(range(1, 81))


# The remote listener.


def test_a_remote_client_needs_an_authorised_key(
    start: Start, data: Path, connect: Connect, tmp_path: Path
) -> None:
    daemon = start(remote="tcp://127.0.0.1:*")
    pair = new_key_pair()
    keys.create_key(tmp_path / "key", pair)
    client = connect(
        endpoint=daemon.endpoints[1],
        key_file=tmp_path / "key",
        server_key=daemon.router.server_key,
    )
    with pytest.raises(errors.NotAllowedError, match="does not know this key"):
        client.submit(OP)
    keys.authorise(data / "keys", pair.public, "tester")
    assert client.submit(OP) == 1


def test_a_remote_client_with_another_servers_key_gets_an_error_that_names_the_key(
    start: Start, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "GRACE_SECONDS", 0.5)
    daemon = start(remote="tcp://127.0.0.1:*")
    keys.create_key(tmp_path / "key", new_key_pair())
    client = connect(
        endpoint=daemon.endpoints[1],
        key_file=tmp_path / "key",
        server_key=new_key_pair().public,
    )
    with pytest.raises(errors.DaemonUnreachableError, match="is the server key right"):
        client.submit(OP)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endpoint": "tcp://127.0.0.1:1"}, "key_file: the endpoint .* needs a key"),
        ({"endpoint": "tcp://127.0.0.1:1", "key_file": "K"}, "server_key: needed"),
        (
            {"endpoint": "tcp://127.0.0.1:1", "key_file": "K", "server_key": "short"},
            "server_key: expected 64 hexadecimal digits",
        ),
        ({"key_file": "K"}, "only a tcp endpoint has keys"),
    ],
)
def test_what_a_remote_client_lacks_is_named(
    connect: Connect,
    tmp_path: Path,
    options: dict[str, str],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    keys.create_key(Path("K"), new_key_pair())
    with pytest.raises(errors.BadRequestError, match=text):
        connect(**options)


def test_a_crowded_daemon_is_busy_until_a_client_leaves(
    start: Start,
    data: Path,
    client: Client,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "PEERS_MAX", 1)
    monkeypatch.setattr(connection, "REREAD_SECONDS", 0.02)
    start()
    with connect(data) as first:
        first.submit(OP)
        with pytest.raises(errors.BusyError, match="too many connections"):
            client.submit(OP, timeout=0.3)
    assert client.submit(OP) == 2


def test_waiting_for_another_state_of_locks_does_not_run_into_the_usual_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def call(_: object, message: messages.AwaitLocks, timeout: float) -> messages.LocksListed:
        limits.append((message.seconds, timeout))
        return messages.LocksListed([], 1)

    monkeypatch.setattr("ganger.transport.client.caller.Caller.call", call)
    with Client(tmp_path, timeout=5.0) as client:
        client.watch_locks(seconds=40.0)
        client.watch_locks(seconds=40.0, timeout=1.0)
    assert limits == [(40.0, 45.0), (40.0, 1.0)]
