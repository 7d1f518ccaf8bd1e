"""The limits of the disk in the cluster object: read, judged and changed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...storage.cluster.objects import worded
from ...storage.disk.disk_parts import DISK_FIELD, DiskLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...transport.messages import SetLimits


class JudgedLimits(NamedTuple):
    """The limits that are in force, and what is wrong with those that stand there, if it is."""

    limits: DiskLimits
    problems: tuple[str, ...] = ()

    def changed(self, message: SetLimits) -> dict[str, Any]:
        """The cluster's field with the limits that the message gives; empty: it gives none."""
        names = DiskLimits.__struct_fields__
        given = {name: found for name in names if (found := getattr(message, name)) is not None}
        if not given:
            return {}
        return {DISK_FIELD: msgspec.to_builtins(msgspec.structs.replace(self.limits, **given))}


def disk_limits_of(cluster: Mapping[str, Any]) -> JudgedLimits:
    """The limits that the cluster object sets. Only a file that was changed by hand has bad ones.

    >>> disk_limits_of({"disk_limits": {"keep_seconds": 60}}).limits.keep_seconds
    60.0
    >>> disk_limits_of({"disk_limits": {"keep_seconds": -1}}).problems
    ('cluster.disk_limits.keep_seconds: expected float >= 0.0',)
    """
    found = cluster.get(DISK_FIELD)
    if found is None:
        return JudgedLimits(DiskLimits())
    try:
        return JudgedLimits(msgspec.convert(found, DiskLimits))
    except msgspec.ValidationError as error:
        return JudgedLimits(DiskLimits(), (worded(f"cluster.{DISK_FIELD}", str(error)),))
