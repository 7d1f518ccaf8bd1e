"""Objects by what may be written for their names."""

from __future__ import annotations

from .configuration import Configuration
from .objects import Object, ObjectKind


def expanded(configuration: Configuration, kind: ObjectKind, name: str) -> Object | None:
    """The object with this name, or the only one whose name goes on with a dot.

    Large and small letters are the same, unless a name is written exactly so.
    """
    exact: Object | None = configuration.find_by_name(kind, name)
    return exact if exact is not None else _alike(configuration, kind, name)


def _alike(configuration: Configuration, kind: ObjectKind, name: str) -> Object | None:
    wanted = name.upper()
    objects: list[Object] = [one for _, one in configuration.objects(kind)]
    same = [one for one in objects if one["name"].upper() == wanted]
    if len(same) == 1:
        return same[0]
    longer = [one for one in objects if f"{one['name'].upper()}.".startswith(f"{wanted}.")]
    return longer[0] if len(longer) == 1 else None
