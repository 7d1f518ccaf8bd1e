from __future__ import annotations

import json

import pytest

from ganger.cli import plans
from ganger.storage import errors

TRUE = {"OP_ID": "OP_EXEC", "argv": ["true"]}


def job(name: str, after: object = None, **more: object) -> dict[str, object]:
    return {"name": name, "ops": [TRUE], **({"after": after} if after else {}), **more}


def read(document: object) -> list[plans.PlannedJob]:
    return plans.read(json.dumps(document), "plan")


def test_a_list_of_opcodes_is_one_job() -> None:
    [one] = read([TRUE, TRUE])
    assert one.ops == [TRUE, TRUE]


def test_an_opcode_alone_is_a_job() -> None:
    assert [one.ops for one in read(TRUE)] == [[TRUE]]


def test_a_job_with_ops_keeps_reason_priority_and_dependencies() -> None:
    [one] = read({"ops": [TRUE], "reason": "why", "priority": -3, "depends": [4, [5, ["error"]]]})
    assert one.as_submission() == {
        "ops": [TRUE],
        "reason": "why",
        "priority": -3,
        "depends": [[4, ["success"]], [5, ["error"]]],
    }


def test_many_jobs_are_lists_of_opcodes_or_mappings() -> None:
    assert len(read([[TRUE], [TRUE]])) == 2
    assert len(read([{"ops": [TRUE]}, {"ops": [TRUE]}])) == 2


def test_a_plan_is_ordered_by_what_comes_after_what() -> None:
    found = read({"jobs": [job("c", ["b"]), job("a"), job("b", [{"a": ["success", "error"]}])]})
    assert [one.name for one in found] == ["a", "b", "c"]
    # Where each stands in the file, so that an error can name its place there.
    assert [one.index for one in found] == [1, 2, 0]
    assert [one.depends for one in found] == [
        [],
        [(-1, ["success", "error"])],
        [(-1, ["success"])],
    ]


def test_independent_jobs_stay_in_the_order_of_the_file() -> None:
    found = read({"jobs": [job("z"), job("m"), job("a")]})
    assert [one.name for one in found] == ["z", "m", "a"]


def test_a_chain_of_thousands_is_no_problem() -> None:
    chain = [job(f"n{n}", [f"n{n + 1}"]) for n in range(3_000)]
    found = read({"jobs": [*chain, job("n3000")]})
    assert [one.name for one in found] == [f"n{n}" for n in range(3_000, -1, -1)]


def test_a_plan_and_its_jobs_keep_their_names() -> None:
    found = read({"name": "nightly", "jobs": [job("dump"), job("check", ["dump"])]})
    assert [(one.plan, one.name) for one in found] == [("nightly", "dump"), ("nightly", "check")]
    assert [one.as_submission()["name"] for one in found] == ["dump", "check"]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"jobs": [job("a", ["a"])]}, "plan: the plan has a cycle: a -> a"),
        (
            {"jobs": [job("a", ["c"]), job("b", ["a"]), job("c", ["b"])]},
            "plan: the plan has a cycle: a -> c -> b -> a",
        ),
        ({"jobs": [job("a"), job("a")]}, "plan: two jobs are called 'a'"),
        ({"jobs": [job("a", ["x"])]}, "plan: job 'a'.after: there is no job called 'x'"),
        (
            {"jobs": [job("a", ["bulid"]), job("build")]},
            "plan: job 'a'.after: there is no job called 'bulid' (did you mean build?)",
        ),
        ({"jobs": [job("a", colour=1)]}, "plan: job 'a': unknown key 'colour' (known: "),
        ({"jobs": [{"name": "a"}]}, "plan: job 'a': 'ops' is missing"),
        ({"jobs": [job("a", priority="x")]}, "plan: job 'a'.priority: expected a whole number"),
        ({"jobs": [job("a", [{"b": ["done"]}])]}, "plan: job 'a'.after[0]: expected some of"),
        ({"jobs": [job("a", 7)]}, "plan: job 'a'.after: expected a list of names"),
        ({"jobs": [job("a")], "jbos": []}, "plan: unknown key 'jbos' beside 'jobs'"),
        ({"jobs": [{"name": 5, "ops": [TRUE]}]}, "plan: jobs[0].name: expected a text, got 5"),
        (
            {"jobs": [job("a\tb")]},
            r"plan: jobs[0].name: 'a\tb': expected a name without control characters",
        ),
        ({"jobs": [job("17")]}, "plan: jobs[0].name: '17' looks like an id; use a letter"),
        ({"name": 5, "jobs": []}, "plan: name: expected a text, got 5"),
        ({"name": "@a", "jobs": []}, "plan: name: '@a' begins with @, which names must not"),
        (
            {"ops": [{"OP_ID": "OP_EXEC", "argv": ["sleep", 1]}]},
            'plan: job: opcode 0: argv[1]: 1 is a number; quote it, as in "1"',
        ),
        (
            {"jobs": [{"name": "a", "ops": [{"OP_ID": "OP_EXEC", "argv": [True]}]}]},
            "plan: job 'a': opcode 0: argv[0]: true is a truth value; quote it, as in \"true\"",
        ),
        (
            {"ops": [{"OP_ID": "OP_EXEC", "argv": ["x"], "env": {"A": 1.5}}]},
            'plan: job: opcode 0: env.A: 1.5 is a number; quote it, as in "1.5"',
        ),
        ({"ops": []}, "plan: job: expected a list of opcodes"),
        ({"ops": ["true"]}, "plan: job: opcode 0: expected a mapping with 'OP_ID'"),
        ("text", "plan: expected a list of opcodes, a job with 'ops', or 'jobs'"),
    ],
)
def test_a_malformed_plan_is_refused_with_the_place(document: object, expected: str) -> None:
    with pytest.raises(errors.PlanError) as caught:
        read(document)
    assert caught.value.text.startswith(expected)


def test_yaml_is_refused_with_the_line() -> None:
    with pytest.raises(errors.PlanError, match=r"plan, line 2, column 1: "):
        plans.read("jobs: [\n", "plan")


def test_yaml_cannot_make_objects() -> None:
    with pytest.raises(errors.PlanError):
        plans.read("!!python/object/apply:os.getpid []", "plan")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "ops:\n- OP_ID: OP_EXEC\n  OP_ID: OP_TEST_DELAY\n",
            "plan, line 3, column 3: the key 'OP_ID'",
        ),
        ('{"OP_ID": "OP_EXEC",\n "OP_ID": "OP_X"}', "plan, line 2, column 2: the key 'OP_ID'"),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(errors.PlanError) as caught:
        plans.read(text, "plan")
    assert caught.value.text == f"{place} stands in a mapping twice"


def test_what_is_merged_into_a_mapping_may_be_overridden() -> None:
    text = "- &one\n  OP_ID: OP_EXEC\n  argv: [a]\n- <<: *one\n  argv: [b]\n- <<: *one\n"
    [one] = plans.read(text, "plan")
    assert [op["argv"] for op in one.ops] == [["a"], ["b"], ["a"]]
