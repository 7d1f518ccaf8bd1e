"""The calls that a host answers by name: their arguments, replies and time limits.

A call is a structure: its fields are the arguments, ``call`` is its name, ``reply`` the type of
what comes back. Who calls gives either the structure or a name with arguments:

    ganger.node.call("web1", NodeInfo(paths=["/srv"])).memory_free
    ganger.node.call("web1", "node_info", paths=["/srv"])["memory_free"]

| call | reply | limit |
|---|---|---|
| `Version` | `VersionRead`: version and protocol of the node daemon | 60 s |
| `NodeInfo` | `NodeInfoRead`: memory, CPUs, load, boot id, version, sizes of file systems | 60 s |
| `TestDelay` | None, after ``duration`` seconds | ``duration`` + 5 s |
| `GetFileInfo` | `FileInfo`: is there such a file, and its mode, owner and sizes | 300 s |
| `UploadFile` | `FileStored`: the file is there, whole, with mode and owner | 900 s |
| `WriteSsconfFiles` | names of the files written, in ``cluster`` of its data directory | 900 s |
| `RestrictedCommand` | the output of a program in the directory that node.toml names | 3600 s |

Names, arguments and limits are those of Ganeti's node daemon where it has such a call. A package
adds calls of its own: classes derived from `NodeCall` with a method ``run``, named under the entry
point `GROUP`. What Ganger's own do is in `actors.operations.host_answers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, TypeVar

import msgspec

from .. import errors

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "ganger.node_calls"
"""Installed packages name their calls under this entry point group, each by the call's name."""

SSCONF_BYTES_MAX: Final = 128 * 1024
"""The largest value of an ssconf file, as in Ganeti."""

_ANSWER_SECONDS: Final = 60.0
_FILE_INFO_SECONDS: Final = 300.0
_FILE_SECONDS: Final = 900.0
_COMMAND_SECONDS: Final = 3600.0
_DELAY_EXTRA_SECONDS: Final = 5.0

ReplyT = TypeVar("ReplyT")

AbsolutePath = Annotated[str, msgspec.Meta(pattern=r"^/[^\0]*$")]
Mode = Annotated[int, msgspec.Meta(ge=0, le=0o777)]
Megabytes = int


class NodeCall(
    msgspec.Struct, Generic[ReplyT], kw_only=True, frozen=True, forbid_unknown_fields=True
):
    """A call to a host, with its arguments. ``ReplyT`` is the type of the reply."""

    call: ClassVar[str] = ""
    """Its name: small letters, digits and underscores."""

    reply: ClassVar[Any] = object
    """The type that the reply must have; another one is an error of the call."""

    seconds_max: ClassVar[float] = _ANSWER_SECONDS
    """How long an answer may take; then the call is ended, and that is an error."""

    def time_limit(self) -> float:
        """The limit of this very call, in seconds."""
        return self.seconds_max

    def run(self) -> ReplyT:
        """Answer, on the host, in a process of its own. What JSON cannot hold is an error."""
        raise NotImplementedError(f"nothing on this host answers {self.call!r}")


class VersionRead(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a node daemon, and that of the protocol that it speaks."""

    version: str
    protocol: int


class Version(NodeCall[VersionRead], kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The version of the node daemon."""

    call: ClassVar[str] = "version"
    reply: ClassVar[Any] = VersionRead


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """The file system of a path, in MiB; ``problem``: why nothing is known of it."""

    path: str
    total: Megabytes = 0
    free: Megabytes = 0
    problem: str = ""


class NodeInfoRead(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of itself. Memory in MiB; ``load``: means over 1, 5 and 15 minutes."""

    version: str
    boot_id: str
    boot_time: float
    """When it booted, in epoch seconds on its own clock."""
    time: float
    """What its clock says, in epoch seconds."""
    memory_total: Megabytes
    memory_free: Megabytes
    cpus: int
    load: tuple[float, float, float]
    storage: list[Storage]


class NodeInfo(NodeCall[NodeInfoRead], kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Memory, processors, boot id and version of a host, and the file systems of ``paths``."""

    call: ClassVar[str] = "node_info"
    reply: ClassVar[Any] = NodeInfoRead

    paths: list[AbsolutePath] = []


class TestDelay(NodeCall[None], kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Wait for ``duration`` seconds."""

    __test__: ClassVar[bool] = False
    """No test, whatever its name."""

    call: ClassVar[str] = "test_delay"
    reply: ClassVar[Any] = None

    duration: Annotated[float, msgspec.Meta(gt=0)]

    def time_limit(self) -> float:
        """As in Ganeti."""
        return self.duration + _DELAY_EXTRA_SECONDS


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a host; if it does not exist, nothing else is known.

    ``kind``: ``file``, ``directory``, ``link`` or ``other``. ``owner``, ``group``: a name, or the
    number if there is no name.
    """

    exists: bool
    kind: str = ""
    size: int = 0
    mode: int = 0
    owner: str = ""
    group: str = ""
    modified: float = 0.0


class GetFileInfo(NodeCall[FileInfo], kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Whether a file exists, and what the file system says of it."""

    call: ClassVar[str] = "get_file_info"
    reply: ClassVar[Any] = FileInfo
    seconds_max: ClassVar[float] = _FILE_INFO_SECONDS

    path: AbsolutePath


class FileStored(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was put on a host: where it is, its bytes, and their SHA-256 in hexadecimal."""

    path: str
    size: int
    sha256: str


class UploadFile(NodeCall[FileStored], kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Put a small file on a host, entirely or not at all. ``OP_NODE_COPY`` takes large ones.

    A directory as ``path`` is refused. ``owner`` and ``group``: a name or a number; the daemon's
    own without them, or those of the file that is replaced. ``mode``: likewise, else 0644.
    """

    call: ClassVar[str] = "upload_file"
    reply: ClassVar[Any] = FileStored
    seconds_max: ClassVar[float] = _FILE_SECONDS

    path: AbsolutePath
    content: bytes
    """In JSON as Base64."""
    mode: Mode | None = None
    owner: str | None = None
    group: str | None = None


class WriteSsconfFiles(NodeCall[list[str]], kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Write ``cluster/ssconf_NAME`` in the node's data directory, for each name its value."""

    call: ClassVar[str] = "write_ssconf_files"
    reply: ClassVar[Any] = list[str]
    seconds_max: ClassVar[float] = _FILE_SECONDS

    values: dict[
        Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_-]*$")],
        Annotated[str, msgspec.Meta(max_length=SSCONF_BYTES_MAX)],
    ]


class RestrictedCommand(NodeCall[str], kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Run a program of the host's directory of restricted commands: its output.

    `restricted_commands` in the host's node.toml names the directory; without it there are none.
    """

    call: ClassVar[str] = "restricted_command"
    reply: ClassVar[Any] = str
    seconds_max: ClassVar[float] = _COMMAND_SECONDS

    cmd: str


OWN: Final[Mapping[str, type[NodeCall[Any]]]] = {
    kind.call: kind
    for kind in (
        *(Version, NodeInfo, TestDelay, GetFileInfo, UploadFile, WriteSsconfFiles),
        RestrictedCommand,
    )
}
"""The calls that each host answers."""


def find(name: str) -> type[NodeCall[Any]]:
    """The call of this name: Ganger's own, or that of an installed package.

    It imports code of other people, each time anew: a package that comes later is found.
    `BadRequestError` names the calls that there are, or what is wrong with the package's.
    """
    if (own := OWN.get(name)) is not None:
        return own
    # Slow to import, and Ganger's own calls do without.
    from importlib.metadata import entry_points  # noqa: PLC0415

    for entry in entry_points(group=GROUP, name=name):
        return _loaded(entry)
    known = ", ".join(sorted({*OWN, *(entry.name for entry in entry_points(group=GROUP))}))
    raise errors.BadRequestError(f"there is no call {name!r}; calls of this host: {known}")


def _loaded(entry: EntryPoint) -> type[NodeCall[Any]]:
    package = f"package {entry.dist.name}" if entry.dist else entry.value
    place = f"call {entry.name!r} of {package}"
    try:
        found = entry.load()
    # A foreign module may raise anything, even SystemExit.
    except BaseException as error:
        text = f"{place} cannot be loaded: {type(error).__name__}: {error}"
        raise errors.BadRequestError(" ".join(text.split())) from error
    if not (isinstance(found, type) and issubclass(found, NodeCall)):
        raise errors.BadRequestError(f"{place} is not a class derived from NodeCall")
    if found.call != entry.name:
        raise errors.BadRequestError(f"{place} calls itself {found.call!r}")
    return found


def with_arguments(kind: type[NodeCall[Any]], arguments: Mapping[str, Any]) -> NodeCall[Any]:
    """The call with these arguments; `BadRequestError` names what is wrong with them."""
    try:
        call: NodeCall[Any] = msgspec.convert(arguments, kind, builtin_types=())
    except msgspec.ValidationError as error:
        raise errors.BadRequestError(f"call {kind.call!r}: {error}") from error
    return call


def arguments_of(call: NodeCall[Any]) -> dict[str, Any]:
    """The arguments as plain values."""
    found: dict[str, Any] = msgspec.to_builtins(call)
    return found


def checked_reply(kind: type[NodeCall[ReplyT]], plain: object) -> ReplyT:
    """The typed reply; `BadRequestError` if it is not what the call declares."""
    try:
        reply: ReplyT = msgspec.convert(plain, kind.reply)
    except msgspec.ValidationError as error:
        raise errors.BadRequestError(
            f"call {kind.call!r}: its reply is malformed: {error}"
        ) from error
    return reply
