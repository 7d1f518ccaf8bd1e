"""What is done to the files of a healthy queue directory, and what that may lead to."""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from ganger.storage import errors, settings
from ganger.storage.disk.paths import Places
from ganger.storage.jobs import jobs
from ganger.storage.log import records

ID_UNBELIEVABLE = 10**18 - 1
"""The highest number that the name of a job file can have."""


class Damage(msgspec.Struct, kw_only=True):
    """What was done, and which answers of the product are right ones.

    A damage with ``refuses`` keeps the component from starting until ``mend`` was called: it
    must say so with that file's name, and change nothing.
    """

    description: str
    jobs: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    """Jobs of which no file is left."""
    is_of_journal: bool = False
    """Whether the journal has lost records."""
    named: str = ""
    """What must be named beside the jobs: how that line begins."""
    component: str = "job_queue"
    is_of_log: bool = False
    """Whether a segment cannot be read: the configuration store needs the log, too."""
    refuses: str = ""
    mend: Callable[[], object] = bool
    serial: int | None = None
    """What the serial file says now, to be believed; 0: nothing."""


Mutation = Callable[[Places, Random], Damage | None]
"""Damages the directory; None if there is nothing in it that it could hit."""


# ---------------------------------------------------------------- job files


def _job_file(places: Places, chance: Random) -> Path | None:
    found = sorted(path for path in places.queue.glob("job-*") if _is_job_file(path))
    found += sorted(path for path in places.archive.glob("*/job-*") if _is_job_file(path))
    return chance.choice(found) if found else None


def _is_job_file(path: Path) -> bool:
    return re.fullmatch(r"job-([1-9]|1[0-2])", path.name) is not None and _is_open(path)


def _is_open(path: Path) -> bool:
    return path.is_file() and bool(path.stat().st_mode & 0o400)


def _on_job(how: str, put: Callable[[Path, Random], object]) -> Mutation:
    def mutation(places: Places, chance: Random) -> Damage | None:
        if (path := _job_file(places, chance)) is None:
            return None
        put(path, chance)
        hit = frozenset({int(path.name.removeprefix("job-"))})
        gone = frozenset() if os.path.lexists(path) else hit
        return Damage(description=f"{path.name} {how}", jobs=hit, gone=gone)

    return mutation


def _rewritten(how: str, change: Callable[[bytes, Random], bytes]) -> Mutation:
    return _on_job(how, lambda path, chance: path.write_bytes(change(path.read_bytes(), chance)))


def _replaced(how: str, put: Callable[[Path], object]) -> Mutation:
    def replace(path: Path, _: Random) -> None:
        path.unlink()
        put(path)

    return _on_job(how, replace)


def _flipped(data: bytes, chance: Random) -> bytes:
    if not data:
        return b"x"
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def _other_job(data: bytes, _: Random) -> bytes:
    """A whole job, of a higher serial, that is not the one that the name says."""
    try:
        job = jobs.decode_job(data)
    except errors.StorageError:
        return b""
    job.id += 100
    job.advance_serial()
    return jobs.encode_job(job)


def _grown(data: bytes, _: Random) -> bytes:
    """The same job with a comment that fits into no frame, as Ganeti may have written it."""
    try:
        job = jobs.decode_job(data)
    except errors.StorageError:
        return data
    for op in job.ops:
        op.input["comment"] = "x" * settings.FRAME_BYTES_MAX
    return jobs.encode_job(job)


def _unsigned(data: bytes) -> bytes:
    """Without the checksum: as of a writer that makes none."""
    return re.sub(rb',"ganger_crc":"[0-9a-f]{8}"}$', b"}", data)


def _make_full_directory(path: Path) -> None:
    path.mkdir()
    (path / "kept").write_text(f"somebody put this into {path.name}")


def _link_outside(path: Path) -> None:
    """A link to a foreign file, into which no component may write."""
    target = path.parent / f"of-somebody-else-{path.name}"
    target.write_text("not a job, and not ours")
    path.symlink_to(target.name)


def _link_hard(path: Path, _: Random) -> None:
    """Another name for a file that is damaged: a copy of the directory made of links."""
    path.write_bytes(b"{torn")
    name = path.parent / f"copy-of-{path.name}"
    # The same damage may have come to it before.
    name.unlink(missing_ok=True)
    os.link(path, name)


def _beside(name: str, data: bytes, *, is_named: bool = False) -> Mutation:
    def mutation(places: Places, _: Random) -> Damage | None:
        (places.queue / name).write_bytes(data)
        return Damage(description=f"{name} beside the others", named=f"{name}:" if is_named else "")

    return mutation


def _archived_beside(name: str) -> Mutation:
    def mutation(places: Places, _: Random) -> Damage | None:
        path = places.archive / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{torn")
        return Damage(description=f"{name} in the archive")

    return mutation


def _quarantined(name: str) -> Mutation:
    def mutation(places: Places, _: Random) -> Damage | None:
        places.quarantine.mkdir(exist_ok=True)
        (places.quarantine / name).write_bytes(b"{torn")
        return Damage(description=f"{name} in quarantine")

    return mutation


# ---------------------------------------------------------------- serial and version


def _serial(data: bytes | None, said: int = 0) -> Mutation:
    def mutation(places: Places, _: Random) -> Damage | None:
        path = places.queue / "serial"
        path.unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)
        return Damage(description=f"serial {data!r:.40}", serial=said)

    return mutation


def _serial_closed(places: Places, _: Random) -> Damage | None:
    path = places.queue / "serial"
    if path.exists():
        path.chmod(0)
    return Damage(description="serial of mode 0", serial=0 if is_closed(path) else None)


def _version(data: bytes | None) -> Mutation:
    def mutation(places: Places, _: Random) -> Damage | None:
        path = places.queue / "version"
        if not _is_open(path) or (healthy := path.read_bytes()) != b"1\n":
            return None
        path.unlink()
        description = f"version {data!r}"
        if data is None:
            return Damage(description=description)
        path.write_bytes(data)
        mend = _writer(path, healthy)
        return Damage(description=description, refuses=os.fspath(path), mend=mend)

    return mutation


def _writer(path: Path, data: bytes) -> Callable[[], object]:
    def write() -> None:
        path.chmod(0o640)
        path.write_bytes(data)

    return write


# ---------------------------------------------------------------- the journal

_HEAD = struct.Struct("<II")


def record_ends(data: bytes) -> list[int]:
    """Where the records of a healthy segment end, by their lengths and checksums alone."""
    ends, offset = [], 0
    while offset + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, offset)
        payload = data[offset + _HEAD.size :][:length]
        if not length or len(payload) != length or zlib.crc32(payload) != checksum:
            break
        offset += _HEAD.size + length
        ends.append(offset)
    return ends


def _on_segment(how: str, change: Callable[[bytes, list[int], Random], bytes]) -> Mutation:
    def mutation(places: Places, chance: Random) -> Damage | None:
        found = sorted(filter(_is_open, places.journal.glob("0000000*.journal")))
        if not found:
            return None
        path = chance.choice(found)
        data = path.read_bytes()
        ends = record_ends(data)
        if not ends or data[ends[-1] :].strip(b"\0"):
            return None
        damaged = change(data, ends, chance)
        path.write_bytes(damaged)
        left = len(record_ends(damaged))
        # Records behind the damage, at the very places where they were.
        starts = [0, *ends[:-1]]
        behind = any(
            damaged[start:end] == data[start:end]
            for start, end in list(zip(starts, ends, strict=True))[left + 1 :]
        )
        return Damage(
            description=f"{path.name} {how}",
            is_of_journal=left < len(ends),
            named=f"journal/{path.name}: there are records behind" if behind else "",
        )

    return mutation


def _flip_records(data: bytes, ends: list[int], chance: Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        data = _flipped(data[: ends[-1]], chance) + data[ends[-1] :]
    return data


def _zero_block(data: bytes, ends: list[int], chance: Random) -> bytes:
    start = chance.randrange(ends[-1])
    length = min(chance.choice([1, 16, 512]), ends[-1] - start)
    return data[:start] + bytes(length) + data[start + length :]


def _cut_records(data: bytes, ends: list[int], chance: Random) -> bytes:
    return data[: chance.randrange(ends[-1])]


def _add_garbage(data: bytes, ends: list[int], chance: Random) -> bytes:
    # Behind the last whole record, as a write that the power cut through.
    return data[: ends[-1]] + b"\xff" + chance.randbytes(chance.randint(1, 200))


def _foreign_in_journal(name: str) -> Mutation:
    def mutation(places: Places, chance: Random) -> Damage | None:
        places.journal.mkdir(exist_ok=True)
        (places.journal / name).write_bytes(chance.randbytes(50))
        return Damage(description=f"{name} in the journal")

    return mutation


def _later_journal(payload: bytes) -> Mutation:
    def mutation(places: Places, _: Random) -> Damage | None:
        path = places.journal / "00000099.journal"
        if path.exists():
            return None
        path.write_bytes(_HEAD.pack(len(payload), zlib.crc32(payload)) + payload)
        mend = path.unlink
        return Damage(
            description=f"a journal with {payload!r}",
            is_of_log=True,
            refuses=os.fspath(path),
            mend=mend,
        )

    return mutation


def _directory_in_journal(places: Places, _: Random) -> Damage | None:
    path = places.journal / "00000098.journal"
    if path.exists():
        return None
    path.mkdir()
    return Damage(
        description="a segment is a directory",
        is_of_log=True,
        refuses=os.fspath(path),
        mend=path.rmdir,
    )


# ---------------------------------------------------------------- other files


def _stray_lock_file(places: Places, chance: Random) -> Damage | None:
    pipe = places.lock_files / "job_999999_1"
    if pipe.exists():
        return None
    places.lock_files.mkdir(parents=True, exist_ok=True)
    (places.lock_files / f"job_{chance.randrange(99):06d}_1").write_bytes(chance.randbytes(30))
    os.mkfifo(pipe)
    return Damage(description="garbage among the lock files")


def _beside_data(
    component: str, how: str, change: Callable[[bytes], bytes | None], *, with_copy: bool = False
) -> Mutation:
    """Damage to ``config.data`` or ``locks.data``, which is made anew.

    ``with_copy``: to ``config.data`` and its copy, which is refused.
    """

    def mutation(places: Places, _: Random) -> Damage | None:
        path = places.config if component == "config_store" else places.locks
        if not _is_open(path) or not _is_sound(path):
            return None
        healthy = path.read_bytes()
        data = change(healthy)
        for one in [path, places.config_copy] if with_copy else [path]:
            if data is None:
                one.unlink(missing_ok=True)
            else:
                one.write_bytes(data)
        if data is None:
            return Damage(description=f"{path.name} {how}", component=component)
        refuses = os.fspath(path) if with_copy else ""
        mend = _writer(path, healthy)
        return Damage(
            description=f"{path.name} {how}", component=component, refuses=refuses, mend=mend
        )

    return mutation


def _closed(component: str, find: Callable[[Places], Path]) -> Mutation:
    """A file of mode 0, for a component that cannot go on without it."""

    def mutation(places: Places, _: Random) -> Damage | None:
        path = find(places)
        if not _is_open(path) or (component != "job_queue" and not _is_sound(path)):
            return None
        path.chmod(0)
        # There is a copy of the configuration.
        refuses = os.fspath(path) if is_closed(path) and component != _CONFIG else ""
        mend = lambda: path.chmod(0o640)  # noqa: E731 - nothing but the undoing
        return Damage(
            description=f"{path.name} of mode 0",
            component=component,
            is_of_log=path.parent == places.journal,
            refuses=refuses,
            mend=mend,
        )

    return mutation


def _is_sound(path: Path) -> bool:
    """Whether nothing else has damaged this JSON file."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return path.name != "config.data" or found["cluster"]["max_running_jobs"] > 0


def is_closed(path: Path) -> bool:
    """Whether this process may not read the file: its mode hinders some users only."""
    try:
        path.open("rb").close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _segment_path(places: Places) -> Path:
    return next(iter(sorted(places.journal.glob("0000000*.journal"))), places.journal / "none")


def _absurd_limit(data: bytes) -> bytes:
    changed = json.loads(data)
    changed["cluster"]["max_running_jobs"] = -3
    return json.dumps(changed).encode()


_CONFIG, _LOCKS = "config_store", "lock_manager"
_NEST = b'{"x":' + b"[" * 100_000

JOB_MUTATIONS: list[Mutation] = [
    _rewritten("is empty", lambda _data, _chance: b""),
    _rewritten("is cut off", lambda data, chance: data[: chance.randrange(len(data) or 1)]),
    _rewritten("has a bit flipped", _flipped),
    _rewritten("is not UTF-8", lambda _data, chance: b"\xff\xfe" + chance.randbytes(50)),
    _rewritten("is zeros", lambda data, _chance: bytes(len(data))),
    _rewritten("is another JSON", lambda _data, _chance: b'[1, {"ops": null}]'),
    _rewritten("is another job's", _other_job),
    _rewritten("has another id", lambda data, _: _unsigned(data).replace(b'"id":', b'"id":77', 1)),
    _rewritten(
        "has absurd values",
        lambda data, _: _unsigned(data).replace(b'"priority":0', b'"priority":[]'),
    ),
    _rewritten("nests deeply", lambda _data, _chance: b"[" * 100_000),
    _rewritten("is larger than a frame", _grown),
    _on_job("is of mode 0", lambda path, _: path.chmod(0)),
    _on_job("is gone", lambda path, _: path.unlink()),
    _on_job("is torn and has another name", _link_hard),
    _replaced("is a directory", _make_full_directory),
    _replaced("is a FIFO", os.mkfifo),
    _replaced("points to itself", lambda path: path.symlink_to(path.name)),
    _replaced("points nowhere", lambda path: path.symlink_to("gone")),
    _replaced("points to another's file", _link_outside),
]
"""Those that hit the file of a job."""

OTHER_MUTATIONS: list[Mutation] = [
    _beside("job-", b"{}"),
    _beside("job-abc", b"{}"),
    _beside("job-7.bak", b"{}"),
    _beside("job-" + "9" * 25, b"{}", is_named=True),
    _beside("job-0100", b"{}", is_named=True),
    _beside("job-50", b"{torn", is_named=True),
    _beside(f"job-{ID_UNBELIEVABLE}", b"{torn", is_named=True),
    _beside(".tmp-job-4.1.2", b"half"),
    _archived_beside("0/job-40"),
    _archived_beside(f"{ID_UNBELIEVABLE // 10_000}/job-{ID_UNBELIEVABLE}"),
    _archived_beside("99/job-3"),
    _archived_beside("notes/job-900"),
    _quarantined("job-60.2"),
    _quarantined(f"job-{ID_UNBELIEVABLE}"),
    _serial(None),
    _serial(b""),
    _serial(b"many"),
    _serial(b"9" * 5_000),
    _serial(b"-4"),
    _serial(b"70\n", 70),
    _serial(b"%d\n" % ID_UNBELIEVABLE),
    _serial_closed,
    _version(None),
    _version(b""),
    _version(b"one\n"),
    _version(b"2\n"),
    _version(b"\xff\0\xff"),
    _closed("job_queue", lambda places: places.queue / "version"),
    _on_segment("has bits flipped", _flip_records),
    _on_segment("has bits flipped", _flip_records),
    _on_segment("has zeros in it", _zero_block),
    _on_segment("is torn", _cut_records),
    _on_segment("has garbage behind its end", _add_garbage),
    _closed("job_queue", _segment_path),
    _foreign_in_journal("notes.txt"),
    _foreign_in_journal("00000001.journal.bak"),
    _foreign_in_journal("7.journal"),
    _foreign_in_journal("\u0663.journal"),
    _foreign_in_journal("9" * 30 + ".journal"),
    _later_journal(msgspec.msgpack.encode(["begun", records.FORMAT_VERSION + 1, 0])),
    _later_journal(msgspec.msgpack.encode(["of a later version", 3])),
    _directory_in_journal,
    _stray_lock_file,
    _beside_data(_CONFIG, "is gone", lambda _: None),
    _beside_data(_CONFIG, "is empty", lambda _: b""),
    _beside_data(_CONFIG, "is torn", lambda data: data[: len(data) // 2]),
    _beside_data(_CONFIG, "is not UTF-8", lambda _: b'{"cluster": "\xff"}'),
    _beside_data(_CONFIG, "nests deeply", lambda _: _NEST),
    _beside_data(_CONFIG, "has an absurd limit", _absurd_limit),
    _beside_data(_CONFIG, "is gone with its copy", lambda _: None, with_copy=True),
    _beside_data(_CONFIG, "is empty with its copy", lambda _: b"", with_copy=True),
    _beside_data(
        _CONFIG, "is torn with its copy", lambda data: data[: len(data) // 2], with_copy=True
    ),
    _closed(_CONFIG, lambda places: places.config),
    _beside_data(_LOCKS, "is gone", lambda _: None),
    _beside_data(_LOCKS, "is empty", lambda _: b""),
    _beside_data(_LOCKS, "is torn", lambda data: data[: len(data) // 2]),
    _beside_data(_LOCKS, "is not UTF-8", lambda _: b'{"x": "\xff"}'),
    _beside_data(_LOCKS, "nests deeply", lambda _: _NEST),
    _closed(_LOCKS, lambda places: places.locks),
]
