from __future__ import annotations

import gc
import json
import sys
import textwrap
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.actors.ganeti import luxi_opcodes
from ganger.actors.operations.local_context import LocalContext
from ganger.storage import errors, opcodes
from ganger.storage.opcodes import catalogue, notation
from ganger.storage.opcodes.checks import check_opcode
from ganger.storage.opcodes.declarations import Opcode

STORED: dict[str, Any] = json.loads(
    Path(catalogue.__file__).with_name("catalogue.json").read_text()
)
ENUMS = STORED["enums"]
NOTATIONS = sorted(
    {
        parameter["type"]
        for declared in STORED["opcodes"].values()
        for parameter in declared["parameters"].values()
    }
)

# The corpus of a running Ganeti: parameters as its job processes wrote them.
FROM_GANETI: list[dict[str, Any]] = [
    {"OP_ID": "OP_CLUSTER_POST_INIT", "dry_run": None, "debug_level": 0},
    {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 0.01,
        "on_master": True,
        "on_nodes": [],
        "on_node_uuids": ["90910f02-036a-444f-8631-f25d6d53cb05"],
        "depends": [[154, ["success"]]],
        "reason": [["gnt:opcode:test_delay", "job=155;index=0", 1795226695537971000]],
    },
    {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["bench"], "name": ""},
    {"OP_ID": "OP_OS_DIAGNOSE", "output_fields": ["name", "variants"], "names": []},
    {
        "OP_ID": "OP_NETWORK_ADD",
        "network_name": "net1",
        "network": "10.77.1.0/24",
        "gateway": "10.77.1.254",
        "network6": None,
        "add_reserved_ips": None,
        "conflicts_check": True,
        "tags": [],
    },
    {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "inst1.example.com",
        "beparams": {"vcpus": 1, "maxmem": 128},
        "disks": [],
        "disk_template": "diskless",
        "hypervisor": "fake",
        "mode": "create",
        "nics": [{"ip": "pool", "network": "net1"}],
        "osparams_secret": {},
        "os_type": "noop+default",
        "forthcoming": False,
        "helper_startup_timeout": 300,
    },
    {
        "OP_ID": "OP_GROUP_ADD",
        "group_name": "rack2",
        "alloc_policy": None,
        "diskparams": {},
        "ipolicy": {},
    },
]


@pytest.fixture(autouse=True)
def _no_user_opcodes_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_from_users", {})
    monkeypatch.setattr(catalogue, "_problems", [])
    monkeypatch.setattr(catalogue, "_entries", set())


# The list.


def test_all_of_ganetis_opcodes_and_our_own_are_known() -> None:
    assert len(STORED["opcodes"]) == 76
    assert catalogue.known_ids() == sorted([*STORED["opcodes"], "OP_EXEC"])


def test_every_known_opcode_can_be_made_checked_and_collected() -> None:
    for op_id in catalogue.known_ids():
        declared = catalogue.find(op_id)
        assert declared is not None
        assert declared.op_id == op_id
        try:
            msgspec.convert({}, declared)
        except msgspec.ValidationError as error:
            assert "missing required field" in str(error)  # noqa: PT017 - not all have one
    # Some combinations of types crash the collector rather than the conversion.
    gc.collect()


def test_parameters_and_defaults_are_those_of_the_catalogue_file() -> None:
    for op_id, stored in STORED["opcodes"].items():
        declared = catalogue.find(op_id)
        assert declared is not None
        fields = {field.name: field for field in msgspec.structs.fields(declared)}
        for name, parameter in stored["parameters"].items():
            assert fields[name].required == ("default" not in parameter), (op_id, name)
            default = fields[name].default
            if fields[name].default_factory is not msgspec.NODEFAULT:
                default = fields[name].default_factory()
            if "default" in parameter:
                assert default == parameter["default"], (op_id, name)
        common = set(Opcode.__struct_fields__)
        assert set(fields) - common == set(stored["parameters"]), op_id


def test_a_type_is_made_only_once() -> None:
    assert catalogue.find("OP_NODE_ADD") is catalogue.find("OP_NODE_ADD")


def test_there_is_no_type_for_an_unknown_opcode() -> None:
    assert catalogue.find("OP_FROM_THE_FUTURE") is None
    assert not catalogue.has_operation("OP_FROM_THE_FUTURE")


def test_our_own_opcodes_and_those_of_the_configuration_have_an_operation() -> None:
    with_operation = {op_id for op_id in catalogue.known_ids() if catalogue.has_operation(op_id)}
    ours = {"OP_EXEC", "OP_TEST_DELAY"} | catalogue.QUERIES
    assert with_operation == ours | catalogue.RUN_IN_STORE


@pytest.mark.parametrize("op_id", catalogue.known_ids())
def test_an_opcode_knows_whether_the_store_carries_it_out(op_id: str) -> None:
    declared = catalogue.find(op_id)
    assert declared is not None
    assert declared.runs_in_store == (op_id in catalogue.RUN_IN_STORE)


@pytest.mark.parametrize("fields", FROM_GANETI, ids=lambda fields: fields["OP_ID"])
def test_files_of_ganeti_are_read(fields: dict[str, Any]) -> None:
    opcode = opcodes.parse(fields)
    for name, value in fields.items():
        if name not in ("OP_ID", "depends", "reason"):
            assert getattr(opcode, name) == value


def test_opcodes_that_need_the_whole_cluster_take_its_lock() -> None:
    needing = [op_id for op_id, stored in STORED["opcodes"].items() if stored.get("exclusive_bgl")]
    assert len(needing) == 8
    opcode = opcodes.parse({"OP_ID": "OP_CLUSTER_DESTROY"})
    assert opcode.lock_needs().to_changes() == [("cluster/BGL", "exclusive")]


# Parameter types.


@pytest.mark.parametrize("text", NOTATIONS)
def test_every_type_of_the_catalogue_file_can_be_parsed(text: str) -> None:
    annotation: Any = notation.parse(text, ENUMS)
    if text.endswith("|null"):
        assert msgspec.convert(None, annotation) is None


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("bool", [True], [0, "true", None]),
        ("int", [-5, 0], [1.5, "1", True]),
        ("int>=0", [0, 7], [-1]),
        ("int>0|null", [1, None], [0]),
        ("float", [1.5, 2], ["1", None]),
        ("nonempty_str", ["a"], ["", 1]),
        ("disk_index", [0, 15], [-1, 16]),
        ("enum:TagKind", ["node"], ["disk", 1]),
        ("list[nonempty_str]", [[], ["a"]], ["a", [""], {}]),
        ("dict[str,any]", [{}, {"a": [1]}], [[], "a"]),
        ("dict[enum:DiskTemplate,dict[str,any]]|null", [None, {"drbd": {}}], [{"x": {}}]),
        ("list[tuple[int,int]]|null", [[[1, 2]], None], [[[1]], [[1, 2, 3]], [1]]),
        ("list[disk_selection]", [[0, [1, {"size": 1}]]], [[16], [[1]], [[1, {}, 2]]]),
        ("list[disk_change]", [[["add", {"size": 1}], [0, "x", {}]]], [[["add"]], ["add"]]),
        ("nonempty_str|list[any]", ["a", [1]], ["", {}]),
        ("dict[str,secret[any]]|null", [{"a": 1}, None], [[]]),
    ],
)
def test_a_type_accepts_its_values_and_nothing_else(
    text: str, good: list[object], bad: list[object]
) -> None:
    annotation: Any = notation.parse(text, ENUMS)
    for value in good:
        assert msgspec.to_builtins(msgspec.convert(value, annotation)) is not NotImplemented
    for value in bad:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, annotation)


def test_a_set_forgets_repetitions() -> None:
    annotation: Any = notation.parse("set[enum:SshKeyType]", ENUMS)
    assert msgspec.convert(["rsa", "dsa", "rsa"], annotation) == {"rsa", "dsa"}


@pytest.mark.parametrize(
    "text", ["list[int", "list[int,", "list[int|", "lisst[int]", "list[int]]", "number", ""]
)
def test_a_type_that_is_not_well_formed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="type"):
        notation.parse(text, ENUMS)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("network", "10.0.0.0", "IPv4 network"),
        ("network", "10.0.0.0/33", "IPv4 network"),
        ("gateway", "10.0.0", "IPv4 address"),
        ("gateway6", "10.0.0.1", "IPv6 address"),
        ("network6", "fe80::", "IPv6 network"),
        ("add_reserved_ips", ["10.0.0.1", "x"], "IPv4 address"),
    ],
)
def test_addresses_are_checked(parameter: str, value: object, expected: str) -> None:
    network: dict[str, Any] = {
        "OP_ID": "OP_NETWORK_ADD",
        "network_name": "n",
        "network": "10.0.0.1/24",
        "network6": "fe80::/64",
        "gateway6": "fe80::1",
        "add_reserved_ips": ["10.0.0.9"],
    }
    opcodes.parse(network)
    with pytest.raises(errors.OpcodeError) as caught:
        opcodes.parse({**network, parameter: value})
    assert f"OP_NETWORK_ADD: {parameter}: expected {expected}" in caught.value.text


# Our own opcodes.


def test_a_delay_locks_its_nodes_and_the_master() -> None:
    delay: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1, "on_nodes": ["n2", "n1"]}
    assert opcodes.parse(delay).lock_needs().to_changes() == [
        ("cluster/BGL", "shared"),
        ("node/master", "exclusive"),
        ("node/n1", "exclusive"),
        ("node/n2", "exclusive"),
    ]


def test_a_delay_locks_by_uuid_where_no_names_are_given() -> None:
    """Beside names they are those of an earlier run: the node may be another one by now."""
    delay = {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 1,
        "on_node_uuids": ["u1"],
        "on_master": False,
    }
    for names, locked in (([], "u1"), (["n1"], "n1")):
        assert opcodes.parse({**delay, "on_nodes": names}).lock_needs().to_changes() == [
            ("cluster/BGL", "shared"),
            (f"node/{locked}", "exclusive"),
        ]


def test_a_repeated_delay_locks_what_its_names_are_now() -> None:
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 1, "on_nodes": ["n1"], "on_master": False}
    first = opcodes.parse(delay)
    assert isinstance(first, catalogue.OpTestDelay)
    ran = delay | first.filled_in(first.lock_needs("then-{}".format))
    assert ran["on_node_uuids"] == ["then-n1"]
    again = opcodes.parse(ran)
    assert isinstance(again, catalogue.OpTestDelay)
    assert again.lock_needs("now-{}".format).node.exclusive == ("now-n1",)


def test_a_delay_nowhere_locks_nothing() -> None:
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 1, "on_master": False}
    assert opcodes.parse(delay).lock_needs().to_changes() == []


def test_a_command_takes_the_locks_that_were_declared() -> None:
    command = {"OP_ID": "OP_EXEC", "argv": ["a"], "locks": {"instance": {"shared": ["*"]}}}
    assert opcodes.parse(command).lock_needs().to_changes() == [
        ("cluster/BGL", "shared"),
        ("instance/[lockset]", "shared"),
    ]


# Users' opcodes.

PLUG_INS = """
    import msgspec
    from ganger.storage.opcodes import Opcode

    class OpGood(Opcode, kw_only=True):
        op_id = "OP_GOOD"
        size: int = 3
        def run(self, context):
            return self.size

    class OpCopy(OpGood): pass

    class OpTaken(OpGood):
        op_id = "OP_EXEC"

    class OpTakenFromGaneti(OpGood):
        op_id = "OP_NODE_ADD"

    class OpBadlyNamed(OpGood):
        op_id = "good"

    class OpWithout(Opcode):
        op_id = "OP_WITHOUT"

    class OpUntyped(OpGood, kw_only=True):
        op_id = "OP_UNTYPED"
        size: "Undefined" = 1

    class OpPositional(Opcode):
        op_id = "OP_POSITIONAL"
        path: str
        size: int = 3
        node: str | None = None
        def run(self, context):
            return self.path

    class OpWithoutClassVar(OpGood, kw_only=True):
        op_id = "OP_WITHOUT_CLASS_VAR"
        secret_fields: tuple[str, ...] = ("password",)
        password: str = ""

    class OpArray(OpGood, kw_only=True, array_like=True):
        op_id = "OP_ARRAY"

    class OpOmitting(OpGood, kw_only=True, omit_defaults=True):
        op_id = "OP_OMITTING"

    class OpTagged(OpGood, kw_only=True, tag="x"):
        op_id = "OP_TAGGED"

    class OpSecretText(OpGood, kw_only=True):
        op_id = "OP_SECRET_TEXT"
        secret_fields = ("password")
        password: str = ""

    class OpSecretMisspelt(OpGood, kw_only=True):
        op_id = "OP_SECRET_MISSPELT"
        secret_fields = ("pasword",)
        password: str = ""

    class OpPrivateMisspelt(OpGood):
        op_id = "OP_PRIVATE_MISSPELT"
        private_fields = ["sizes"]

    class OpLaterMisspelt(OpGood):
        op_id = "OP_LATER_MISSPELT"
        later_fields = ("sizes",)

    class OpSummaryMisspelt(OpGood):
        op_id = "OP_SUMMARY_MISSPELT"
        summary_field = "sizes"

    class OpIdAsParameter(OpGood, kw_only=True):
        op_id = "OP_ID_AS_PARAMETER"
        OP_ID: str = "OP_EXEC"

    class OpBadDefault(OpGood, kw_only=True):
        op_id = "OP_BAD_DEFAULT"
        size: int = "three"

    def not_a_class(): pass
"""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes an installed package whose entry points are those given."""
    (tmp_path / "plug_ins_of_a_test.py").write_text(textwrap.dedent(PLUG_INS))
    (tmp_path / "plug_ins_that_exit.py").write_text("raise SystemExit(4)\n")
    (tmp_path / "plug_ins_that_leave.py").write_text("raise GeneratorExit\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def make(*lines: str) -> PathDistribution:
        information = tmp_path / "plug_ins-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-ins\nVersion: 1\n")
        text = "\n".join(["[ganger.opcodes]", *lines])
        (information / "entry_points.txt").write_text(text)
        return PathDistribution(information)

    return make


def test_an_installed_opcode_is_found_and_can_be_submitted(declare: Any) -> None:
    declare("good = plug_ins_of_a_test:OpGood")
    found = catalogue.load_user_opcodes()
    assert found == catalogue.UserOpcodes(loaded=("OP_GOOD",), problems=())
    assert catalogue.has_operation("OP_GOOD")
    assert "OP_GOOD" in catalogue.known_ids()
    assert opcodes.check_opcode({"OP_ID": "OP_GOOD"})["size"] == 3


def test_an_opcode_without_kw_only_is_checked_and_run_like_any_other(declare: Any) -> None:
    declare("positional = plug_ins_of_a_test:OpPositional")
    found = catalogue.load_user_opcodes()
    assert found == catalogue.UserOpcodes(loaded=("OP_POSITIONAL",), problems=())
    stored = opcodes.check_opcode({"OP_ID": "OP_POSITIONAL", "path": "/x"})
    assert (stored["path"], stored["size"], "node" in stored) == ("/x", 3, False)
    assert LocalContext().run({"OP_ID": "OP_POSITIONAL", "path": "/x"}) == "/x"
    with pytest.raises(errors.OpcodeError, match=r"^OP_POSITIONAL: missing parameter 'path'$"):
        opcodes.check_opcode({"OP_ID": "OP_POSITIONAL"})
    [by_luxi] = luxi_opcodes.checked(
        "SubmitJob", [{"OP_ID": "OP_POSITIONAL", "path": "/x", "size": None, "reason": []}]
    )
    assert by_luxi["path"] == "/x"


def test_an_unknown_opcode_names_the_packages_that_came_after_the_opcodes_were_loaded(
    declare: Any,
) -> None:
    catalogue.load_user_opcodes()
    unknown = {"OP_ID": "OP_GOOD"}
    with pytest.raises(errors.OpcodeError, match=r"^unknown opcode 'OP_GOOD'") as caught:
        opcodes.check_opcode(unknown)
    assert "restart" not in caught.value.text
    declare("good = plug_ins_of_a_test:OpGood")
    with pytest.raises(errors.OpcodeError) as caught:
        opcodes.check_opcode(unknown)
    assert caught.value.text == (
        "unknown opcode 'OP_GOOD'; package plug-ins brings opcodes, but came after the daemon's "
        "start: restart it to load them"
    )
    catalogue.load_user_opcodes()
    assert opcodes.check_opcode(unknown)["size"] == 3


def test_loading_again_finds_the_same(declare: Any) -> None:
    declare("good = plug_ins_of_a_test:OpGood")
    assert catalogue.load_user_opcodes() == catalogue.load_user_opcodes()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module:OpGood", "cannot be loaded: ModuleNotFoundError"),
        ("plug_ins_that_exit:OpGood", "cannot be loaded: SystemExit: 4"),
        ("plug_ins_that_leave:OpGood", "cannot be loaded: GeneratorExit"),
        ("plug_ins_of_a_test:OpMissing", "cannot be loaded: AttributeError"),
        ("plug_ins_of_a_test:not_a_class", "it is not a class derived from Opcode"),
        ("plug_ins_of_a_test:OpTaken", "OP_EXEC is declared already"),
        ("plug_ins_of_a_test:OpTakenFromGaneti", "OP_NODE_ADD is declared already"),
        ("plug_ins_of_a_test:OpCopy", "OP_GOOD is declared already"),
        ("plug_ins_of_a_test:OpBadlyNamed", "op_id 'good' is not OP_ and capitals"),
        ("plug_ins_of_a_test:OpWithout", "it brings no operation"),
        ("plug_ins_of_a_test:OpUntyped", "its parameters cannot be checked: NameError"),
        ("plug_ins_of_a_test:OpWithoutClassVar", "secret_fields is a fact about the class, not a "),
        ("plug_ins_of_a_test:OpArray", "it is declared with array_like, which opcodes cannot have"),
        ("plug_ins_of_a_test:OpOmitting", "it is declared with omit_defaults, which opcodes"),
        ("plug_ins_of_a_test:OpTagged", "it is declared with tag, which opcodes cannot have"),
        ("plug_ins_of_a_test:OpSecretText", "secret_fields: expected a tuple of names, such as "),
        ("plug_ins_of_a_test:OpSecretMisspelt", "secret_fields: there is no parameter 'pasword'"),
        ("plug_ins_of_a_test:OpPrivateMisspelt", "private_fields: there is no parameter 'sizes'"),
        ("plug_ins_of_a_test:OpLaterMisspelt", "later_fields: there is no parameter 'sizes'"),
        ("plug_ins_of_a_test:OpSummaryMisspelt", "summary_field: there is no parameter 'sizes'"),
        ("plug_ins_of_a_test:OpIdAsParameter", "a parameter cannot be called OP_ID"),
    ],
)
def test_a_broken_plug_in_is_reported_with_its_package_and_left_out(
    declare: Any, value: str, words: str
) -> None:
    declare("a-good-one = plug_ins_of_a_test:OpGood", f"broken = {value}")
    found = catalogue.load_user_opcodes()
    assert found.loaded == ("OP_GOOD",)
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"package plug-ins: opcode 'broken' ({value})")
    assert words in found.problems[0]
    assert catalogue.problems() == found.problems
    with pytest.raises(errors.OpcodeError) as caught:
        opcodes.check_opcode({"OP_ID": "OP_OF_A_BROKEN_PACKAGE"})
    assert caught.value.text.endswith(f"; {found.problems[0]}")
    assert "\n" not in caught.value.text


def test_a_default_that_cannot_be_read_back_is_refused_at_the_submission(declare: Any) -> None:
    declare("bad-default = plug_ins_of_a_test:OpBadDefault")
    catalogue.load_user_opcodes()
    with pytest.raises(errors.OpcodeError) as caught:
        opcodes.check_opcode({"OP_ID": "OP_BAD_DEFAULT"})
    assert caught.value.text == "OP_BAD_DEFAULT: size: expected int, got str"
    assert opcodes.check_opcode({"OP_ID": "OP_BAD_DEFAULT", "size": 3})["size"] == 3


def test_a_command_is_stored_as_the_first_version_knows_it() -> None:
    # An earlier version refuses parameters that it does not know. A parameter that is added later
    # goes into `later_fields`, and not into this list.
    stored = check_opcode({"OP_ID": "OP_EXEC", "argv": ["true"], "leave_running": False})
    first = {"OP_ID", "argv", "env", "locks", "ok_exit_codes"}
    common = {"priority", "depends", "comment", "reason"}
    assert stored.keys() == first | common
    used = check_opcode({"OP_ID": "OP_EXEC", "argv": ["true"], "leave_running": True})
    assert used["leave_running"] is True


def test_what_ganeti_writes_is_stored_with_its_defaults() -> None:
    for op_id in catalogue.known_ids():
        declared = catalogue.find(op_id)
        assert declared is not None
        assert op_id == "OP_EXEC" or declared.later_fields == (), op_id
