"""Instance policies: syntax, updates, and which instances violate them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clusters import made_configuration, uuid_of

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti import parameters
from ganger.storage.ganeti.operations import policies
from ganger.storage.opcodes import OperationError

CLUSTER: dict[str, Any] = made_configuration()["cluster"]
SIZES = {
    "memory-size": 128, "disk-size": 1024, "disk-count": 1,
    "cpu-count": 1, "nic-count": 1, "spindle-use": 1,
}  # fmt: skip
LARGE = dict.fromkeys(SIZES, 1_000_000)
BOUNDS = {"min": SIZES, "max": LARGE}
WITHOUT_CPU = {name: size for name, size in SIZES.items() if name != "cpu-count"}


def refused(error: pytest.ExceptionInfo[OperationError]) -> str:
    name, details = error.value.name, error.value.details
    assert (name, details[1:]) == ("OpPrereqError", ["wrong_input"])
    return str(details[0])


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"minmax": [{"min": SIZES}]}, "Missing instance specification: max"),
    ({"minmax": ["wide"]}, "Missing instance specification: max, min"),
    ({"minmax": 3}, "'minmax' (value 3) is not a list"),
    (
        {"minmax": [{"min": WITHOUT_CPU, "max": LARGE}]},
        "Missing instance specs parameters for min: cpu-count",
    ),
    (
        {"minmax": [{"min": {**SIZES, "cpu-count": 9}, "max": {**LARGE, "cpu-count": 8}}]},
        "Invalid specification of min/max values for cpu-count: 9/8",
    ),
    ({"disk-templates": ["plain", "floppy", 3]}, "Invalid disk template(s) 3, floppy"),
    ({"disk-templates": [["plain"]]}, "Invalid disk template(s) ['plain']"),
    ({"disk-templates": "plain"}, "'disk-templates' (value plain) is not a list"),
]


@pytest.mark.parametrize(("policy", "text"), INVALID)
def test_a_malformed_policy_is_refused_for_a_new_group_and_a_changed_one(
    policy: dict[str, Any], text: str
) -> None:
    with pytest.raises(OperationError) as added:
        policies.new_group_policy(CLUSTER, policy)
    with pytest.raises(OperationError) as changed:
        policies.updated_policy({}, policy, of_group=True)
    assert refused(added) == refused(changed) == f"Invalid instance policy: {text}"


def test_a_new_group_has_only_what_it_gives_itself_in_its_types() -> None:
    sizes = {name: str(size) for name, size in SIZES.items()}
    given = {"minmax": [{"min": sizes, "max": LARGE}], "vcpu-ratio": "2"}
    assert policies.new_group_policy(CLUSTER, given) == {
        "minmax": [{"min": SIZES, "max": LARGE}],
        "vcpu-ratio": 2.0,
    }


def test_a_new_group_with_nothing_or_unknown_keys_in_its_policy_is_refused() -> None:
    with pytest.raises(OperationError) as raised:
        policies.new_group_policy(CLUSTER, {"minmax": []})
    assert refused(raised) == "Invalid instance policy: Empty minmax specifications"
    with pytest.raises(OperationError) as raised:
        policies.new_group_policy(CLUSTER, {"disk-templates": []})
    assert refused(raised) == (
        "Invalid instance policy: Instance policy must contain at least one disk template"
    )
    with pytest.raises(OperationError) as raised:
        policies.new_group_policy(CLUSTER, {"colour": []})
    assert refused(raised) == "Invalid instance policy: Invalid keys in ipolicy: colour"


def test_the_sizes_in_a_policy_are_numbers() -> None:
    with pytest.raises(OperationError, match="is not a valid integer"):
        policies.updated_policy(
            {}, {"minmax": [{"min": {**SIZES, "disk-size": "huge"}}]}, of_group=True
        )


def test_a_ratio_is_a_finite_number() -> None:
    assert policies.updated_policy({}, {"spindle-ratio": "1.5"}, of_group=True) == {
        "spindle-ratio": 1.5
    }
    with pytest.raises(OperationError) as raised:
        policies.updated_policy({}, {"vcpu-ratio": "two"}, of_group=True)
    assert refused(raised) == (
        "Invalid value for attribute 'vcpu-ratio': 'two',"
        " error: could not convert string to float: 'two'"
    )
    with pytest.raises(OperationError) as raised:
        policies.updated_policy({}, {"vcpu-ratio": "inf"}, of_group=True)
    assert refused(raised) == "Invalid value for attribute 'vcpu-ratio': 'inf', error: not finite"


@pytest.mark.parametrize("nothing", ["default", ["default"], [], None, ""])
def test_a_group_drops_what_is_default_or_empty_and_the_cluster_keeps_it(nothing: Any) -> None:
    old = {"minmax": [BOUNDS], "vcpu-ratio": 2.0}
    assert policies.updated_policy(old, {"minmax": nothing}, of_group=True) == {"vcpu-ratio": 2.0}
    assert policies.updated_policy(old, {"std": nothing}, of_group=True) == old
    with pytest.raises(OperationError) as raised:
        policies.updated_policy({**old, "std": SIZES}, {"minmax": nothing}, of_group=False)
    assert refused(raised) == "Can't unset ipolicy attribute 'minmax' on the cluster'"


def test_the_standard_size_is_the_clusters_and_fits_the_bounds() -> None:
    with pytest.raises(OperationError) as raised:
        policies.updated_policy({}, {"std": SIZES}, of_group=True)
    assert refused(raised) == "std cannot appear in group instance specs"
    old = {"minmax": [BOUNDS], "std": SIZES}
    changed = policies.updated_policy(old, {"std": {"cpu-count": "2"}}, of_group=False)
    assert changed == {"minmax": [BOUNDS], "std": {**SIZES, "cpu-count": 2}}
    with pytest.raises(OperationError) as raised:
        policies.updated_policy(old, {"std": {"cpu-count": 0}}, of_group=False)
    assert refused(raised) == "Invalid instance policy: Invalid std specifications"
    with pytest.raises(OperationError) as raised:
        policies.updated_policy({}, {"minmax": [BOUNDS]}, of_group=False)
    assert refused(raised) == "Invalid instance policy: Missing key in ipolicy: std"


def test_the_standard_size_is_complete() -> None:
    new = {"minmax": [BOUNDS], "std": {"cpu-count": 1}}
    with pytest.raises(OperationError) as raised:
        policies.updated_policy({}, new, of_group=False)
    assert refused(raised) == (
        "Invalid instance policy: Missing instance specs parameters for std:"
        " disk-count, disk-size, memory-size, nic-count, spindle-use"
    )


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(OperationError) as raised:
        policies.updated_policy({}, {"colour": 1}, of_group=True)
    assert refused(raised) == "Invalid key in new ipolicy: colour"


def test_only_enabled_disk_templates_are_allowed() -> None:
    policies.check_templates_enabled(CLUSTER, {"disk-templates": ["plain"]})
    with pytest.raises(OperationError) as raised:
        policies.check_templates_enabled(CLUSTER, {"disk-templates": ["rbd", "plain", "file"]})
    assert refused(raised) == (
        "The following disk templates are allowed by the ipolicy, but not enabled on the"
        " cluster: file, rbd"
    )


# ---------------------------------------------------------------- violations


def configuration_with(**edits: Any) -> Configuration:
    """One DRBD and one plain instance; ``edits`` go into the first one's node, itself, or disk."""
    document = made_configuration(nodes=2, instances=2)
    document["nodes"][uuid_of("nodes", 0)].update(edits.pop("node", {}))
    document["disks"][uuid_of("disks", 0)].update(edits.pop("disk", {}))
    document["instances"][uuid_of("instances", 0)].update(edits)
    return Configuration.load(document)


def policy_with(**bounds: Any) -> dict[str, Any]:
    """The cluster's policy with other upper bounds."""
    highest = {**LARGE, **{name.replace("_", "-"): bound for name, bound in bounds.items()}}
    own = {"ipolicy": {"minmax": [{"min": SIZES, "max": highest}]}}
    return parameters.instance_policy(CLUSTER, own)


def violated(configuration: Configuration, policy: dict[str, Any]) -> list[str]:
    instance = configuration.get(ObjectKind.INSTANCE, uuid_of("instances", 0))
    return policies.violations(configuration, policy, instance)


def test_an_instance_within_the_bounds_violates_nothing() -> None:
    assert violated(configuration_with(), policy_with()) == []
    assert violated(configuration_with(), {}) == []


def test_each_size_is_compared_with_its_bounds() -> None:
    configuration = configuration_with()
    assert violated(configuration, policy_with(memory_size=255)) == [
        "memory-size value 256 is not in range [128, 255]"
    ]
    assert violated(configuration, policy_with(cpu_count=1)) == [
        "cpu-count value 2 is not in range [1, 1]"
    ]
    assert violated(configuration, policy_with(disk_size=1023)) == [
        "disk-size/0 value 1024 is not in range [1024, 1023]"
    ]
    assert violated(configuration_with(nics=[]), policy_with()) == [
        "nic-count value 0 is not in range [1, 1000000]"
    ]


def test_the_bounds_that_fit_best_count() -> None:
    policy = policy_with(memory_size=1)
    policy["minmax"].append(BOUNDS)
    assert violated(configuration_with(), policy) == []


def test_a_disk_template_must_be_allowed() -> None:
    policy = policy_with() | {"disk-templates": ["plain", "rbd"]}
    assert violated(configuration_with(), policy) == [
        "Disk template drbd is not allowed (allowed templates: plain, rbd)"
    ]
    assert violated(configuration_with(disks=[]), policy) == [
        "Disk template diskless is not allowed (allowed templates plain, rbd)"
    ]


def test_an_instance_without_disks_has_no_number_of_disks_to_compare() -> None:
    policy = policy_with() | {"disk-templates": ["diskless"]}
    assert violated(configuration_with(disks=[]), policy) == []


def test_an_instance_that_is_only_reserved_may_lack_its_parts() -> None:
    configuration = configuration_with(disks=None, nics=None)
    assert violated(configuration, policy_with() | {"disk-templates": ["diskless"]}) == [
        "nic-count value 0 is not in range [1, 1000000]"
    ]


def test_the_nodes_of_a_group_may_have_exclusive_storage() -> None:
    configuration = configuration_with(disk={"spindles": 4})
    for _, group in configuration.objects(ObjectKind.NODE_GROUP):
        group["ndparams"] = {"exclusive_storage": True}
    assert violated(configuration, policy_with(spindle_use=3)) == [
        "spindle-use value 4 is not in range [1, 3]"
    ]


def test_exclusive_storage_counts_the_spindles_of_the_disks() -> None:
    exclusive = {"ndparams": {"exclusive_storage": True}}
    policy = policy_with(spindle_use=3)
    assert violated(configuration_with(node=exclusive, disk={"spindles": 4}), policy) == [
        "spindle-use value 4 is not in range [1, 3]"
    ]
    [text] = violated(configuration_with(node=exclusive), policy)
    assert text.startswith("Number of spindles not configured for disks of instance instance0.")
    assert violated(configuration_with(disk={"spindles": 4}), policy) == []


def test_only_new_violations_count() -> None:
    configuration = configuration_with(beparams={"maxmem": 512, "vcpus": 2})
    instances = [found for _, found in configuration.objects(ObjectKind.INSTANCE)]
    old, new = policy_with(memory_size=300), policy_with(memory_size=200)
    [violator] = policies.new_violators(configuration, old, new, instances)
    assert violator["name"] == "instance1.example.com"
    assert policies.new_violators(configuration, old, policy_with(), instances) == []
