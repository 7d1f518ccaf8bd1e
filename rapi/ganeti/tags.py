"""Tags of the cluster and of its objects. Source: Ganeti 3.0, RAPI, ``/2/tags`` and the like."""

from __future__ import annotations

from typing import Final

from ...storage import errors
from .. import problems
from ..declarations import Call, Method, Parameter, Resource, Right
from ..problems import HttpError
from . import noun_rows, submitting

_TAG: Final = Parameter("tag", list, "A tag; may be repeated.")


def _given(call: Call) -> list[str]:
    return call.query.get("tag", [])


def _needed(call: Call) -> list[str]:
    found = _given(call)
    if not found:
        raise HttpError(400, "Cannot delete all tags: name them by the 'tag' parameter")
    return found


def tags(path: str, kind: str, what: str = "", name: str = "") -> Resource:
    """The tags of objects: ``what`` they are in queries, and which part of the path names one.

    Without these two the tags of the cluster.
    """

    async def show(call: Call) -> list[str]:
        if not what:
            [cluster] = await call.client.objects("cluster")
            return sorted(cluster.get("tags") or ())
        try:
            wanted = ["==", "name", call.path[name]]
            [found] = await noun_rows.objects(call, what, ["tags"], wanted)
        except errors.UnknownObjectError as error:
            raise problems.of_query(error) from error
        return sorted(found["tags"] or ())

    target = submitting.Part("name", lambda call: call.path[name] if name else None)
    common = (submitting.constant("kind", kind), target)
    whose = what or "cluster"
    return Resource(
        path=path,
        methods={
            "GET": Method(handler=show, right=Right.READ, summary=f"List tags of the {whose}."),
            "PUT": submitting.submits(
                "OP_TAGS_SET",
                f"Add tags to the {whose}.",
                *common,
                submitting.Part("tags", _given, _TAG),
                submitting.DRY_RUN,
            ),
            "DELETE": submitting.submits(
                "OP_TAGS_DEL",
                f"Remove tags from the {whose}.",
                *common,
                submitting.Part("tags", _needed, _TAG),
                submitting.DRY_RUN,
            ),
        },
    )


RESOURCES = (tags("/2/tags", "cluster"),)
