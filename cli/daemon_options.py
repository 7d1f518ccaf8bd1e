"""The options of the daemon: `ganger daemon` takes them, and `ganger up` passes them on to it.

A daemon that is ready records its own. `ganger up` starts the next one with the same, but for those
that are given, and can say which options a daemon that runs already does not follow. A daemon in
the foreground says which ones of the last it was started without.
"""

from __future__ import annotations

import functools
import importlib
import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec
from click.core import ParameterSource

from ..storage import errors, settings
from ..storage.access import rapi_settings
from ..storage.disk import documents
from . import choices

if TYPE_CHECKING:
    from ..storage.disk.paths import Places
    from .call import Call


_OF_PACKAGE = "ganger.cli.ganeti.daemon_options"
"""Its ``Options`` is the subclass of `DaemonOptions` that is used where the module is here."""


class DaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What stood on the command line, else the defaults."""

    remote: str | None = None
    placement: str = settings.PLACEMENTS[0]
    hung_after: float = settings.HUNG_SECONDS
    fresh_processes: bool = False
    no_rapi: bool = False
    rapi_address: str = rapi_settings.ADDRESS
    rapi_port: int | None = None
    rapi_no_tls: bool = False
    rapi_anonymous_reads: bool = False
    rapi_host: tuple[str, ...] = ()
    test_hooks: bool = False

    more: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """Options of a package's subclass, which come last in the help; the last of them first."""

    def given(self) -> dict[str, Any]:
        """The options that do not have their default, by name."""
        return _unlike(self, type(self)())

    def words(self) -> list[str]:
        """These as they stand on a command line."""
        found: list[str] = []
        for name, value in self.given().items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                found.append(option)
            else:
                several = value if isinstance(value, tuple) else (value,)
                found += [word for one in several for word in (option, _word(one))]
        return found

    def closed_to_users(self) -> list[str]:
        """A sentence for each option that lets users in who cannot enter the socket's folder."""
        return []

    def listener_options(self) -> dict[str, dict[str, Any] | None]:
        """What listeners of packages are to know, as `Host.listener_options` has it."""
        return {}

    def moves_sockets(self) -> bool:
        """Whether a listener of a package has its socket at a place that may be taken."""
        return False

    def check(self) -> None:
        """Raise `click.UsageError` for options that would have no effect."""

    def dropped(self, last: DaemonOptions) -> str:
        """A sentence about the options of ``last`` that this one leaves out; or nothing."""
        own = self.given()
        left = {name: value for name, value in last.given().items() if name not in own}
        text = shlex.join(type(self)(**left).words())
        return text and f"the last daemon was started with `{text}`, and this one without"

    def record(self, places: Places) -> None:
        """Write them down for the next daemon, if they are not those of the last."""
        own = msgspec.structs.replace(self, test_hooks=False)
        if recorded(places) != own:
            documents.replace(places.options_file, msgspec.json.encode(own.given()), flush=False)


def _word(value: object) -> str:
    # A span has no exponent on a command line.
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _unlike(one: DaemonOptions, other: DaemonOptions) -> dict[str, Any]:
    own, theirs = msgspec.structs.asdict(one), msgspec.structs.asdict(other)
    return {name: value for name, value in own.items() if value != theirs[name]}


@functools.cache
def kind() -> type[DaemonOptions]:
    """The class with the options of the package for Ganeti, if that is here."""
    try:
        found = importlib.import_module(_OF_PACKAGE)
    except ModuleNotFoundError:
        return DaemonOptions
    more: type[DaemonOptions] = found.Options
    return more


def recorded(places: Places) -> DaemonOptions:
    """The options of the daemon that runs, else of the last one, as far as they are known."""
    with suppress(errors.StorageError, msgspec.MsgspecError):
        return msgspec.json.decode(documents.read(places.options_file) or b"", type=kind())
    return kind()()


_OPTIONS = (
    click.option("--test-hooks", is_flag=True, hidden=True),
    click.option(
        "--rapi-anonymous-reads/--no-rapi-anonymous-reads",
        default=False,
        help="Let everybody read by the remote API, as Ganeti does, but no private parameters and "
        "no output.",
    ),
    click.option(
        "--rapi-host",
        metavar="NAME",
        multiple=True,
        help="A further name by which clients reach the remote API. May be repeated.",
    ),
    click.option(
        "--rapi-no-tls/--rapi-tls",
        default=False,
        help="Serve the remote API without TLS, for a proxy on this machine.",
    ),
    click.option(
        "--rapi-port",
        metavar="PORT",
        type=choices.WholeRange(1, 65_535),
        help=f"Where the remote API listens ({rapi_settings.PORT}, or the next free one).",
    ),
    click.option(
        "--rapi-address",
        metavar="ADDRESS",
        default=rapi_settings.ADDRESS,
        show_default=True,
        help="The address at which the remote API listens.",
    ),
    click.option(
        "--no-rapi/--rapi", default=False, help="Serve neither the remote API nor the page."
    ),
    click.option(
        "--fresh-processes/--lasting-processes",
        default=False,
        help="Make a process for each job, also for jobs that leave their process clean.",
    ),
    click.option(
        "--hung-after",
        metavar="TIME",
        type=choices.Seconds(least=2.0),
        default=settings.HUNG_SECONDS,
        show_default=f"{settings.HUNG_SECONDS:g} seconds",
        help="Replace a component that has worked at one message for longer.",
    ),
    click.option(
        "--placement",
        type=click.Choice(settings.PLACEMENTS),
        default=settings.PLACEMENTS[0],
        show_default=True,
        help="Keep locks and configuration in the daemon's process, or in one of their own.",
    ),
    click.option(
        "--remote",
        metavar="ENDPOINT",
        type=choices.Endpoint(),
        help="Also listen for remote clients, such as at tcp://0.0.0.0:7610 (off by default). "
        "They need a key that was let in (`ganger key`).",
    ),
)
"""The last comes first in the help."""


def daemon_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take them all as ``options``."""

    @functools.wraps(function)
    def command(*arguments: Any, options: DaemonOptions, given: object, **more: Any) -> Any:  # noqa: ANN401 - click calls it
        del given
        options.check()
        return function(*arguments, options=options, **more)

    return _with_options(command)


def remembered_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `daemon_options`; those that are not given are the last daemon's.

    ``changes`` returns the words of the command line by which they differ from that daemon's.
    ``--forget``: options that are not given have their defaults.
    """

    @click.option(
        "--forget",
        is_flag=True,
        help="Forget the options of the last start (`ganger status` shows them).",
    )
    @functools.wraps(function)
    def command(
        *arguments: Any,  # noqa: ANN401
        options: DaemonOptions,
        given: frozenset[str],
        forget: bool,
        **more: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        call: Call = click.get_current_context().obj
        own = {name: getattr(options, name) for name in given}
        last = kind()() if forget else recorded(call.places)
        options = msgspec.structs.replace(last, **own)
        _require_effect(options, given)
        options.check()
        changes = functools.partial(_changes, call.places, options, given, forget=forget)
        return function(*arguments, options=options, changes=changes, **more)

    return _with_options(command)


def _require_effect(options: DaemonOptions, given: frozenset[str]) -> None:
    """Raise `UsageError` for an option that is given for what the daemon is not to serve."""
    chosen = options.given()
    for name in chosen:
        subject = name.removeprefix("no_")
        vain = sorted(one for one in given & chosen.keys() if one.startswith(f"{subject}_"))
        if subject != name and vain:
            option = vain[0].replace("_", "-")
            whose = "" if name in given else " of the last start"
            text = f"--{option}: has no effect with --no-{subject}{whose}; give --{subject}, too"
            raise errors.UsageError(text)


def _changes(
    places: Places, options: DaemonOptions, given: frozenset[str], *, forget: bool
) -> list[str]:
    """The words by which the options differ from those of the daemon that runs now."""
    unlike = _unlike(options, recorded(places))
    unlike.pop("test_hooks", None)
    words = ["--forget"] if forget and not unlike.keys() <= given else []
    for parameter in click.get_current_context().command.params:
        if parameter.name in given & unlike.keys():
            words += _typed(parameter, unlike[parameter.name])
    return words


def _typed(parameter: click.Parameter, value: object) -> list[str]:
    if isinstance(value, bool):
        return (parameter.opts if value else parameter.secondary_opts)[:1]
    several = value if isinstance(value, tuple) else (value,)
    return [word for one in several for word in (parameter.opts[0], _word(one))]


def _with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function gets the values as ``options``, and as ``given`` the names of those given."""

    @functools.wraps(function)
    def command(*arguments: Any, **values: Any) -> Any:  # noqa: ANN401 - click calls it
        names = kind().__struct_fields__
        options = kind()(**{name: values.pop(name) for name in names})
        source = click.get_current_context().get_parameter_source
        given = frozenset(name for name in names if source(name) is not ParameterSource.DEFAULT)
        return function(*arguments, options=options, given=given, **values)

    wrapped: Callable[..., Any] = command
    for option in (*kind().more, *_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
