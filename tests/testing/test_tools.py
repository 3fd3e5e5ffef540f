"""Tools that fail on demand."""

import asyncio
import contextlib
import dataclasses
import inspect
import json
import threading

import pydantic
import pytest

from pokayoke import testing
from pokayoke.core.call import Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.runtime.tools.function import from_function
from pokayoke.testing import FAULTS, Faults, faulty


def profile(user_id: str, plan: str = "pro") -> dict:
    """Read a profile."""
    return {"user_id": user_id, "plan": plan, "seats": 3, "active": True}


async def aprofile(user_id: str) -> dict:
    """Read a profile."""
    return profile(user_id)


def test_faults_come_in_the_order_of_the_calls():
    """Each call suffers its own fault and calls beyond the plan are left alone."""
    tool = faulty(profile, ["ok", "html_page", "ok"])
    assert tool("u1")["plan"] == "pro"
    assert tool("u2").content_type.startswith("text/html")
    assert tool("u3") == tool("u4") | {"user_id": "u3"}


def test_then_is_what_every_later_call_suffers():
    """`then` replaces the peace after the plan."""
    tool = faulty(profile, Faults([], then="generator"))
    assert inspect.isgenerator(tool("u"))
    assert inspect.isgenerator(tool("u"))


def test_the_wrapped_tool_looks_the_same():
    """Name, signature, documentation and asyncness survive, so a decorator reads the same contract."""
    tool = faulty(profile, ["ok"])
    assert (tool.__name__, tool.__doc__) == ("profile", profile.__doc__)
    assert inspect.signature(tool) == inspect.signature(profile)
    assert inspect.iscoroutinefunction(faulty(aprofile, []))
    assert not inspect.iscoroutinefunction(tool)


def test_a_contract_keeps_everything_but_its_handler():
    """A contract stays the same contract; only what it runs is wrapped."""
    contract = Contract.from_schema("profile", {"type": "object"}, effect="read", handler=profile, timeout=2.0)
    wrapped = faulty(contract, ["empty_body"])
    assert (wrapped.id, wrapped.timeout, wrapped.input_schema) == (contract.id, 2.0, contract.input_schema)
    assert wrapped(user_id="u").body == ""
    assert contract(user_id="u")["plan"] == "pro"


def test_a_contract_made_from_a_function_fails_both_ways():
    """A tool made from a function fails when a guard runs its handler and when it is called directly."""
    plan = Faults(["empty_body", "empty_body"])
    wrapped = faulty(from_function(profile, effect="read"), plan)
    assert wrapped(user_id="u").body == ""
    assert wrapped.handler(user_id="u").body == ""
    assert plan.log == [testing.Happening({"user_id": "u"}, "empty_body", effect=True)] * 2


def test_a_contract_without_a_handler_is_refused():
    """Nothing can be made to fail where nothing runs, and the message says what to wrap."""
    with pytest.raises(ValueError, match="wrap the function"):
        faulty(Contract.from_schema("x", {"type": "object"}), [])


def test_an_unknown_name_is_refused_while_building():
    """A misspelt fault is an error of the test, with the list of names."""
    with pytest.raises(ValueError, match=r"no fault is called 'html'.*html_page"):
        faulty(profile, ["html"])


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_by_its_name(name):
    """Each fault of the table carries its name, is noted, and spoils the answer or raises."""
    plan = Faults([name])
    plan.release()
    tool = faulty(profile, plan)
    try:
        answer = tool(user_id="u1")
    except (ConnectionError, SystemExit) as error:
        answer = error
    assert FAULTS[name]().name == name
    assert plan.log == [testing.Happening({"user_id": "u1"}, name, effect=name not in ("exits", "raise_before"))]
    assert (answer == profile("u1")) == (name == "hang")


def test_truncated_json_does_not_parse():
    """The text of a cut answer is a true beginning of the whole one and no JSON."""
    answer = faulty(profile, [testing.truncated_json(0.5)])("u1")
    whole = json.dumps(profile("u1"))
    assert whole.startswith(answer.body)
    assert len(answer.body) == len(whole) // 2
    with pytest.raises(ValueError, match=r"."):
        json.loads(answer.body)


@pytest.mark.parametrize("body", ['{"a": 1234}', b'{"a": 1234}'])
def test_truncation_of_a_wire_answer(body):
    """An answer that is already wire text is cut as it is, not encoded again."""
    assert faulty(lambda: Raw(body, "application/json", 200), ["truncated_json"])().body == '{"a": '


def test_html_in_a_field():
    """One text field turns into a web page and the rest of the answer stays."""
    answer = faulty(profile, ["html_field"])("u1")
    assert answer == profile("u1") | {"user_id": testing.tools.MAINTENANCE_PAGE}
    assert faulty(profile, [testing.html_field("plan")])("u1")["user_id"] == "u1"


@dataclasses.dataclass
class Seats:
    """An answer that is an object."""

    plan: str
    seats: int


class Model(pydantic.BaseModel):
    """An answer that is a model."""

    plan: str
    seats: int


@pytest.mark.parametrize("kind", [Seats, Model])
def test_answers_that_are_objects_fail_like_dicts(kind):
    """A dataclass and a model are spoilt field by field, and cut as the JSON they stand for."""
    tool = faulty(
        lambda: kind(plan="pro", seats=3),
        [testing.html_field("plan"), "nan", "drifted_schema", testing.truncated_json(0.9)],
    )
    assert tool() == {"plan": testing.tools.MAINTENANCE_PAGE, "seats": 3}
    assert str(tool()["seats"]) == "nan"
    assert tool() == {"api_version": 2, "data": {"plan": "pro", "seats": 3}}
    assert tool().body == '{"plan": "pro", "seats":'


def test_nan_needs_a_number():
    """NaN lands in the first number (a boolean is none), in a new field without one, or as the answer."""
    assert str(faulty(profile, ["nan"])("u1")["seats"]) == "nan"
    assert str(faulty(lambda: {"ok": True}, ["nan"])()["value"]) == "nan"
    assert str(faulty(lambda: 7, ["nan"])()) == "nan"


def test_an_error_inside_success():
    """The answer keeps its fields, says ok, and carries an error."""
    assert faulty(profile, ["error_inside_success"])("u1") == profile("u1") | {
        "ok": True,
        "error": "upstream timed out",
    }
    assert faulty(lambda: 7, [testing.error_inside_success("no")])() == {"ok": True, "error": "no"}


def test_drift():
    """By default the answer moves one level down; with names, exactly those fields are renamed."""
    assert faulty(profile, ["drifted_schema"])("u1") == {"api_version": 2, "data": profile("u1")}
    renamed = faulty(profile, [testing.drifted_schema({"plan": "tier"})])("u1")
    assert set(renamed) == {"user_id", "tier", "seats", "active"}


def test_oversized_is_json():
    """An oversized answer is valid JSON of at least the size asked for."""
    answer = faulty(profile, [testing.oversized(5_000)])("u1")
    assert len(answer.body) >= 5_000
    assert json.loads(answer.body)["result"] == profile("u1")


def test_a_cyclic_answer_contains_itself():
    """No serialiser comes to an end on it."""
    with pytest.raises(ValueError, match="Circular"):
        json.dumps(faulty(profile, ["cyclic"])("u1"))


def test_raising_before_and_after_the_effect():
    """The exception is the same kind; only the log tells whether the effect happened."""
    effects = []
    plan = Faults(["raise_before", "raise_after", testing.raise_after(lambda: KeyError("k"))])
    tool = faulty(effects.append, plan)
    for error in (ConnectionError, ConnectionError, KeyError):
        with pytest.raises(error):
            tool("x")
    assert [happening.effect for happening in plan.log] == [False, True, True]
    assert plan.effects == len(effects) == 2


def test_a_tool_that_fails_by_itself_had_no_effect():
    """If the wrapped tool raises, its own exception comes out and the log says there was no effect."""
    plan = Faults(["html_page"])

    def broken():
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        faulty(broken, plan)()
    assert plan.effects == 0


@pytest.mark.parametrize(("effect", "while_hanging"), [("first", 1), ("last", 0)])
def test_a_hanging_call_waits_to_be_released(effect, while_hanging):
    """A hang holds the call, before or after its effect, until it is released."""
    effects = []
    plan = Faults([testing.hang(30, effect=effect)])
    tool = faulty(lambda: effects.append(1), plan)
    thread = threading.Thread(target=tool)
    thread.start()
    while not plan.started:
        pass
    thread.join(0.05)
    assert thread.is_alive()
    assert len(effects) == while_hanging
    assert plan.log == []
    plan.release()
    thread.join(10)
    assert len(effects) == plan.effects == 1


@pytest.mark.parametrize(("effect", "happened"), [("first", True), ("last", False), ("never", False)])
async def test_an_async_hang_can_be_cancelled(effect, happened):
    """A cancelled hang is in the log, with the truth about its effect."""
    plan = Faults([testing.hang(30, effect=effect)])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(faulty(aprofile, plan)("u1"), 0.02)
    assert plan.log == [testing.Happening({"user_id": "u1"}, "hang", effect=happened)]


async def test_async_tools_fail_alike():
    """An async tool suffers the same faults: a late effect, an exception, a changed answer."""
    plan = Faults([testing.hang(0.0, effect="last"), "raise_before", "empty_body", "ok"])
    tool = faulty(aprofile, plan)
    assert await tool("u1") == profile("u1")
    with pytest.raises(ConnectionError):
        await tool("u1")
    assert (await tool("u1")).body == ""
    assert await tool("u1") == profile("u1")
    assert plan.effects == 3


def test_a_plan_is_shared_between_threads():
    """Under many threads each planned fault happens exactly once."""
    plan = Faults(["raise_before"] * 50)
    tool = faulty(profile, plan)

    def work():
        for _ in range(25):
            with contextlib.suppress(ConnectionError):
                tool("u")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(happening.fault for happening in plan.log) == ["ok"] * 50 + ["raise_before"] * 50


def test_one_fault_is_a_list_of_one():
    """A name alone is told how to be written, not searched for letter by letter."""
    with pytest.raises(TypeError, match=r"such as \['html_page'\]"):
        faulty(dict, "html_page")
