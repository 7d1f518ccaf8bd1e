"""Answers queries for the configuration, and defines the fields of all."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...storage import errors
from ...storage.cluster.damage import undamaged
from ...storage.ganeti.queries.answering import query_fields
from ...storage.ganeti.queries.filters import FILTERS
from ...storage.ganeti.queries.paging import check_fields
from ...storage.ganeti.queries.queue_resources import RESOURCES
from ...storage.ganeti.queries.resources import RESOURCES as OBJECTS
from ...storage.wording import brief
from ...transport import messages
from . import query_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...storage.ganeti.queries.answering import ParsedQuery, Resource
    from ...transport.envelopes import Envelope
    from ..config.installed_parts import PartContext

    WithSource = Callable[[ParsedQuery[Any], Callable[[object], None]], None]


class ConfigQueries:
    """Answers queries from a snapshot, a page at a time."""

    def __init__(self, context: PartContext, with_source: WithSource) -> None:
        """``with_source`` calls with what a query looks at that is not for filter rules."""
        self._runtime = context.runtime
        self._configuration = context.configuration
        self._with_source = with_source
        self._answered: dict[str, Resource[Any]] = {FILTERS.name: FILTERS, **OBJECTS}
        self._defined: dict[str, Resource[Any]] = {**RESOURCES, **OBJECTS}

    def answer(
        self, envelope: Envelope, message: messages.QueryConfiguration | messages.QueryFields
    ) -> None:
        """Reply with definitions, or with one page of an answer. Raises `BadRequestError`."""
        if isinstance(message, messages.QueryFields):
            check_fields(message.fields or ())
            found = query_fields(resource_named(self._defined, message.what), message.fields)
            envelope.reply(messages.QueryAnswered(fields=found["fields"], rows=b"[]"))
            return
        asked = query_pages.checked(resource_named(self._answered, message.what), message)
        then = functools.partial(self._reply, envelope, asked, message.after)
        if asked.resource is FILTERS:
            then(self._configuration.snapshot)
        else:
            self._with_source(asked, then)

    def _reply(
        self, envelope: Envelope, asked: ParsedQuery[Any], after: str | None, source: object
    ) -> None:
        give = functools.partial(query_pages.answered, self._runtime, asked, source, after)
        try:
            envelope.reply(undamaged(self._configuration.snapshot, give, errors.IntegrityError))
        except errors.GangerError as error:
            envelope.refuse(error)


def resource_named(known: Mapping[str, Resource[Any]], what: str) -> Resource[Any]:
    """The resource of this name. Raises `BadRequestError`, which names those that there are."""
    found = known.get(what)
    if found is None:
        text = f"what: {brief(what)}: expected one of {', '.join(sorted(known))}"
        raise errors.BadRequestError(text)
    return found
