"""How ``OP_CLUSTER_SET_PARAMS`` changes where disks lie: templates, volume group, directories.

Source: Ganeti's ``LUClusterSetParams``; the texts of the errors are Ganeti's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...cluster.objects import ObjectKind
from ...opcodes import OperationError
from . import disk_access, values
from .base import Code, prerequisite_error, warning
from .cluster_draft import ClusterDraft
from .lookups import Object

_LVM: Final = frozenset({"plain", "drbd"})
_DIRECTORIES: Final = {
    "file_storage_dir": ("file", "Global file storage dir"),
    "shared_file_storage_dir": ("sharedfile", "Global shared file storage dir"),
    "gluster_storage_dir": ("gluster", "Global gluster storage dir"),
}
"""For each directory its disk template, and what the log calls it."""


def set_templates(draft: ClusterDraft) -> None:
    """Enable and disable disk templates; one with disks stays."""
    wanted = draft.opcode.enabled_disk_templates
    if not wanted:
        return
    for template in draft.texts("enabled_disk_templates"):
        if template not in wanted:
            _check_unused(draft, template)
    draft.put("enabled_disk_templates", list(dict.fromkeys(wanted)))


def set_volume_group(draft: ClusterDraft) -> None:
    """Set or unset the volume group, which LVM needs."""
    wanted, before = draft.opcode.vg_name, draft.before.get("volume_group_name")
    has_lvm = not _LVM.isdisjoint(draft.texts("enabled_disk_templates"))
    if wanted is None:
        if before is None and has_lvm:
            text = "Please specify a volume group when enabling lvm-based disk-templates."
            raise prerequisite_error(text, Code.WRONG_INPUT)
        return
    if not wanted and has_lvm:
        text = "Cannot unset volume group if lvm-based disk templates are or get enabled."
        raise prerequisite_error(text, Code.WRONG_INPUT)
    if not wanted and any(_disks_of(draft, "plain")):
        text = "Cannot disable lvm storage while lvm-based instances exist"
        raise prerequisite_error(text, Code.WRONG_INPUT)
    if (wanted or None) == before:
        draft.log.append("Cluster LVM configuration already in desired state, not changing")
    elif has_lvm:
        draft.unchecked.append("vg_name")
    draft.put("volume_group_name", wanted or None)


def set_directories(draft: ClusterDraft) -> None:
    """Set or unset the directories of disk templates that keep files."""
    for field, (template, name) in _DIRECTORIES.items():
        wanted = getattr(draft.opcode, field)
        if wanted is None:
            continue
        is_enabled = template in draft.texts("enabled_disk_templates")
        if not wanted and is_enabled:
            text = (
                f"Unsetting the '{template}' storage directory while having '{template}' storage"
                " enabled is not permitted."
            )
            raise prerequisite_error(text, Code.WRONG_INPUT)
        if wanted and not is_enabled:
            text = (
                f"Specified a {template} storage directory, although {template} storage is not"
                " enabled."
            )
            draft.log.append(warning(text))
        if wanted == draft.before.get(field):
            draft.log.append(f"{name} already set to value '{wanted}'")
        draft.put(field, wanted)


def set_drbd_helper(draft: ClusterDraft) -> None:
    """Set or unset the helper program that DRBD needs."""
    wanted, before = draft.opcode.drbd_helper, draft.before.get("drbd_usermode_helper")
    is_enabled = "drbd" in draft.texts("enabled_disk_templates")
    was_enabled = "drbd" in (draft.before.get("enabled_disk_templates") or ())
    if wanted is None:
        if is_enabled and not was_enabled and before is None:
            text = "Cannot enable DRBD without a DRBD usermode helper set."
            raise prerequisite_error(text, Code.WRONG_STATE)
        return
    if not wanted and is_enabled:
        text = "Cannot disable drbd helper while DRBD is enabled."
        raise prerequisite_error(text, Code.WRONG_STATE)
    if not wanted and any(_disks_of(draft, "drbd")):
        text = "Cannot disable drbd helper while drbd-based instances exist"
        raise prerequisite_error(text, Code.WRONG_INPUT)
    if not is_enabled:
        draft.log.append(
            "Note that you specified a drbd user helper, but did not enable the drbd disk template."
        )
    if (wanted or None) == before:
        draft.log.append("Cluster DRBD helper already in desired state, not changing")
    elif is_enabled:
        draft.unchecked.append("drbd_helper")
    draft.put("drbd_usermode_helper", wanted or None)


def set_disk_parameters(draft: ClusterDraft) -> None:
    """Set parameters of disk templates."""
    if not draft.opcode.diskparams:
        return
    new = checked_disk_parameters(draft.opcode.diskparams)
    disk_access.check_usable(
        draft.snapshot, new, [one for _, one in draft.snapshot.objects(ObjectKind.INSTANCE)]
    )
    found = draft.of("diskparams")
    draft.put(
        "diskparams",
        {**found, **{name: {**found.get(name, {}), **own} for name, own in new.items()}},
    )


def checked_disk_parameters(given: values.Values) -> dict[str, values.Values]:
    """The ``diskparams`` of an opcode in their types. Raises `OperationError`."""
    found = values.new_disk_parameters(given)
    try:
        values.check_access_modes(found)
    except OperationError as error:
        raise values.disk_problem(error) from error
    return found


def _check_unused(draft: ClusterDraft, template: str) -> None:
    snapshot = draft.snapshot
    disks = list(_disks_of(draft, template))
    if disks:
        users = {
            uuid: instance["name"]
            for _, instance in snapshot.objects(ObjectKind.INSTANCE)
            for uuid in instance.get("disks") or ()
        }
        described = [f"{one['uuid']} ({_user(users.get(one['uuid']))})" for one in disks]
        raise _in_use(template, "disk", described)
    without = [
        one["name"] for _, one in snapshot.objects(ObjectKind.INSTANCE) if not one.get("disks")
    ]
    if template == "diskless" and without:
        raise _in_use(template, "instance", without[:1])


def _user(name: str | None) -> str:
    return "detached" if name is None else f"on {name}"


def _in_use(template: str, noun: str, users: list[str]) -> OperationError:
    listed = "\n * ".join(users)
    return prerequisite_error(
        f"Cannot disable disk template '{template}', because there is at least one {noun} using"
        f" it:\n * {listed}",
        Code.WRONG_STATE,
    )


def _disks_of(draft: ClusterDraft, template: str) -> Iterator[Object]:
    """The disks of this template, and those with parts of it."""
    return (
        one for _, one in draft.snapshot.objects(ObjectKind.DISK) if _is_based_on(one, template)
    )


def _is_based_on(disk: Object, template: str) -> bool:
    if disk.get("dev_type") == template:
        return True
    return any(_is_based_on(one, template) for one in disk.get("children") or ())
