"""What a host answers to the calls that Ganger itself has (`storage.nodes.named_calls.OWN`).

Runs in a process of its own for each call; errors are `OperationError` or `GangerError`.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...storage.disk import documents
from ...storage.nodes.named_calls import (
    FileInfo,
    FileStored,
    GetFileInfo,
    NodeCall,
    NodeInfo,
    NodeInfoRead,
    RestrictedCommand,
    Storage,
    TestDelay,
    UploadFile,
    Version,
    VersionRead,
    WriteSsconfFiles,
)
from ...storage.opcodes import OperationError
from ...storage.version import version
from ...transport.messages.base import PROTOCOL
from ..processes import machine
from . import host_files, restricted_commands

if TYPE_CHECKING:
    from collections.abc import Callable

_MIB = 1024 * 1024
_SSCONF_MODE = 0o444


def answer(call: NodeCall[Any], data: Path) -> object:
    """The reply to a call; ``data``: the data directory of this host's daemon."""
    match call:
        case Version():
            return VersionRead(version=version(), protocol=PROTOCOL)
        case NodeInfo():
            return _node_info(call)
        case TestDelay():
            time.sleep(call.duration)
            return None
        case GetFileInfo():
            return _file_info(call.path, data)
        case UploadFile():
            return _upload(call, data)
        case WriteSsconfFiles():
            return _write_ssconf(call, data)
        case RestrictedCommand():
            return restricted_commands.run(call.cmd, data)
        case _:
            return call.run()


def _node_info(call: NodeInfo) -> NodeInfoRead:
    total, available = machine.memory()
    return NodeInfoRead(
        version=version(),
        boot_id=machine.boot_id(),
        boot_time=machine.boot_time(),
        time=time.time(),
        memory_total=total // _MIB,
        memory_free=available // _MIB,
        cpus=machine.processors() or 0,
        load=os.getloadavg(),
        storage=[_storage(path) for path in call.paths],
    )


def _storage(path: str) -> Storage:
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Storage(path=path, problem=os.strerror(error.errno or 0))
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    return Storage(path=path, total=total // _MIB, free=free // _MIB)


def _file_info(path: str, data: Path) -> FileInfo:
    host_files.check(path, data)
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return FileInfo(exists=False)
    except OSError as error:
        raise host_files.refused(path, error) from error
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return FileInfo(
        exists=True,
        kind=kinds.get(stat.S_IFMT(found.st_mode), "other"),
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        owner=_name(lambda: pwd.getpwuid(found.st_uid).pw_name, found.st_uid),
        group=_name(lambda: grp.getgrgid(found.st_gid).gr_name, found.st_gid),
        modified=found.st_mtime,
    )


def _name(find: Callable[[], str], number: int) -> str:
    try:
        return find()
    except KeyError:
        return str(number)


def _upload(call: UploadFile, data: Path) -> FileStored:
    if Path(call.path).is_dir():
        raise OperationError("OpExecError", f"{call.path}: is a directory")
    kept = host_files.Kept(mode=call.mode, owner=call.owner, group=call.group)
    return host_files.put([call.content], call.path, kept, data)


def _write_ssconf(call: WriteSsconfFiles, data: Path) -> list[str]:
    folder = data / "cluster"
    documents.make_private_directory(folder)
    contents = {folder / f"ssconf_{name}": text.encode() for name, text in call.values.items()}
    documents.replace_all(folder, contents, mode=_SSCONF_MODE)
    return sorted(call.values)
