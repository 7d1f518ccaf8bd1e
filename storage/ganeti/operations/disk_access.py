"""Whether hypervisors can use the way in which disks are accessed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...cluster.configuration import Configuration
from ...opcodes import OperationError
from . import values
from .lookups import Object, disks_of_instance


def check_usable(
    snapshot: Configuration, parameters: Mapping[str, values.Values], instances: Iterable[Object]
) -> None:
    """Raise `OperationError` if the hypervisor of an instance cannot use the access of its disks.

    ``parameters``: by disk template; those that are not named are not looked at.
    """
    for instance in instances:
        for disk in disks_of_instance(snapshot, instance):
            template, hypervisor = disk["dev_type"], instance.get("hypervisor")
            if template not in values.TEMPLATES_WITH_ACCESS or hypervisor == "kvm":
                continue
            access = parameters.get(template, {}).get("access", values.KERNEL_SPACE)
            if access != values.KERNEL_SPACE:
                raise OperationError(
                    "OpPrereqError",
                    f"Instance {instance['name']}: cannot use '{access}' access setting with"
                    f" {hypervisor} hypervisor and {template} disk type.",
                )
