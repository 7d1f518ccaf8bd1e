from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.metadata import PathDistribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.core_alone import NEEDS_HIDDEN

from ganger.actors.operations.local_context import LocalContext
from ganger.storage import errors, opcodes
from ganger.storage.opcodes import catalogue
from ganger.storage.opcodes.checks import check_opcode


@pytest.fixture(autouse=True)
def _no_user_opcodes_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_from_users", {})
    monkeypatch.setattr(catalogue, "_problems", [])
    monkeypatch.setattr(catalogue, "_entries", set())


# The list.


def test_there_is_no_type_for_an_unknown_opcode() -> None:
    assert catalogue.find("OP_FROM_THE_FUTURE") is None
    assert not catalogue.has_operation("OP_FROM_THE_FUTURE")


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
        pytest.param(
            "plug_ins_of_a_test:OpTakenFromGaneti",
            "OP_NODE_ADD is declared already",
            marks=NEEDS_HIDDEN,
        ),
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


# Families.


def test_an_opcode_of_a_family_is_found_after_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class OpWash(opcodes.Opcode):
        op_id = "OP_WASH"

    def find(op_id: str) -> type[opcodes.Opcode] | None:
        asked.append(op_id)
        return OpWash if op_id == "OP_WASH" else None

    ids = ["OP_WASH", "OP_TEST_DELAY"]
    family = SimpleNamespace(__name__="laundry", known_ids=lambda: ids, find=find)
    monkeypatch.setattr(catalogue, "_families", None)
    catalogue.use_families([family])
    assert catalogue.families() == (family,)
    assert catalogue.find("OP_WASH") is OpWash
    assert catalogue.find("OP_TEST_DELAY") is catalogue.OpTestDelay
    assert catalogue.find("OP_DRY") is None
    assert asked == ["OP_WASH", "OP_DRY"]
    assert catalogue.known_ids() == [
        "OP_EXEC",
        "OP_NODE_CALL",
        "OP_NODE_COPY",
        "OP_TEST_DELAY",
        "OP_WASH",
    ]


def test_a_job_process_that_knows_its_families_looks_for_no_packages() -> None:
    program = """
import subprocess
import sys
from ganger.actors.execution import template
from ganger.storage.opcodes import catalogue
catalogue.use_families([])
assert catalogue.find("OP_TAGS_SET") is None
print("importlib.metadata" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False\n"
