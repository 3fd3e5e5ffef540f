"""Approvals: interruptions of the SDK and questions of the guard are one thing."""

import json

import pytest
from agents import (
    RunState,
    ToolGuardrailFunctionOutput,
    function_tool,
    tool_input_guardrail,
)
from agents.testing import ScriptedModel, assistant_message
from openai_agents_support import ASKING, QUIET, REFUND, SCRIPT, agent_of, ask, guard_of, made

import pokayoke
from pokayoke.adapters.openai_agents import GuardedRunner, contracts
from pokayoke.errors import UsageError


async def test_a_call_that_needs_approval_interrupts_the_run_and_runs_once_approved():
    """The SDK's own yes is the guard's yes: the tool runs once, and the question is answered in the store too."""
    log = []
    tools = made(log)
    guard = guard_of(tools, ASKING)
    runner, agent = GuardedRunner(guard), agent_of(SCRIPT, tools)
    result = await runner.run(agent, "Refund A1.", run_config=QUIET)
    assert [item.tool_name for item in result.interruptions] == ["refund"]
    assert not log
    assert [known.status for known in guard.approvals.list()] == ["waiting"]
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    result = await runner.run(agent, state, run_config=QUIET)
    assert (result.final_output, log) == ("Done.", ["A1"])
    assert [(known.status, known.by) for known in guard.approvals.list(waiting=False)] == [
        ("approved", "RunState.approve")
    ]


async def test_a_stored_state_that_is_answered_twice_runs_once():
    """The guard's books say which run it belongs to; a state of which they say nothing is refused."""
    log = []
    tools = made(log)
    agent, runner = agent_of([*SCRIPT, *SCRIPT[1:]], tools), GuardedRunner(guard_of(tools, ASKING))
    stored = (await runner.run(agent, "Refund A1.", run_config=QUIET)).to_state().to_json()

    async def resumed(by):
        state = await RunState.from_json(by.guarded(agent), stored)
        state.approve(state.get_interruptions()[0])
        return await by.run(agent, state, run_config=QUIET)

    for _ in (1, 2):
        await resumed(runner)
    assert log == ["A1"]
    with pytest.raises(UsageError, match="run_id="):
        await resumed(GuardedRunner(guard_of(tools, ASKING)))
    await runner.run(agent_of(SCRIPT, tools), "Refund A1.", run_config=QUIET)
    with pytest.raises(UsageError, match="run_id="):  # two runs have asked the same
        await resumed(runner)


async def test_a_call_that_the_person_rejects_does_not_run():
    """The SDK's own no is the guard's no: the tool does not run, and the user reads that."""
    log = []
    tools = made(log)
    guard = guard_of(tools, ASKING)
    agent, runner = agent_of(SCRIPT, tools), GuardedRunner(guard)
    state = (await runner.run(agent, "Refund A1.", run_config=QUIET)).to_state()
    state.reject(state.get_interruptions()[0])
    result = await runner.run(agent, state, run_config=QUIET)
    assert result.final_output == "Done.\n\n[Not done: refund (a person said no).]"
    assert not log
    assert [(known.status, known.by) for known in guard.approvals.list(waiting=False)] == [
        ("denied", "RunState.reject")
    ]


@pytest.mark.parametrize("yes", [True, False])
async def test_an_answer_in_the_guards_own_approvals_is_put_into_the_state(yes):
    """`decide` knows what was said elsewhere, says whether all is said, and then the run goes on accordingly."""
    log = []
    tools = made(log)
    guard = guard_of(tools, ASKING)
    agent, runner = agent_of(SCRIPT, tools), GuardedRunner(guard)
    state = (await runner.run(agent, "Refund A1.", run_config=QUIET)).to_state()
    assert not runner.decide(state)
    question = guard.approvals.list()[0].id
    (guard.approvals.approve if yes else guard.approvals.deny)(question, by="bob")
    assert runner.decide(state)
    result = await runner.run(agent, state, run_config=QUIET)
    assert result.final_output.startswith("Done.")
    assert log == (["A1"] if yes else [])


async def test_a_state_that_went_through_json_goes_on_in_another_guard_with_an_unknown_call_beside_it(tmp_path):
    """Another process approves: the write happens once, and the call of an unknown tool keeps its answer."""
    store = f"sqlite:///{tmp_path / 'ledger.db'}"
    pokayoke.open_store(store, create=True).close()
    log = []
    tools = made(log)
    both = [[ask(*REFUND), ask("invent", "{}", "call_2")], [assistant_message("Done.")]]
    guard = guard_of(tools, ASKING, store)
    first = await GuardedRunner(guard).run(agent_of(both, tools), "Refund A1.", run_id="order-1", run_config=QUIET)
    kept = json.dumps(first.to_state().to_json())
    guard.close()

    guard = guard_of(tools, ASKING, store)
    model = ScriptedModel(both[1:])
    agent, runner = agent_of(model, tools), GuardedRunner(guard)
    state = await RunState.from_json(runner.guarded(agent), json.loads(kept))
    state.approve(state.get_interruptions()[0])
    result = await runner.run(agent, state, run_id="order-1", run_config=QUIET)
    assert (result.final_output, log) == ("Done.", ["A1"])
    answers = {item["call_id"]: item["output"] for item in model.calls[0].input if "output" in item}
    assert "refunded A1" in answers["call_1"]
    assert "find" in answers["call_2"]
    guard.close()


@pytest.mark.parametrize("how", ["approve", "reject", "decide"])
async def test_ids_of_a_run_that_went_on_elsewhere_are_not_given_again(how, tmp_path):
    """A model that counts its calls from one again gets an answer to each of them."""
    store = f"sqlite:///{tmp_path / 'ledger.db'}"
    pokayoke.open_store(store, create=True).close()
    tools = made([])
    find = ask("find", '{"order": "B1"}', "c1")
    guard = guard_of(tools, ASKING, store)
    first = agent_of([[find, ask(*REFUND, "c2")]], tools)
    kept = (await GuardedRunner(guard).run(first, "Go.", run_id="r", run_config=QUIET)).to_state().to_json()
    guard.close()

    guard = guard_of(tools, ASKING, store)
    runner, agent = GuardedRunner(guard), agent_of([[find], [assistant_message("Done.")]], tools)
    state = await RunState.from_json(runner.guarded(agent), json.loads(json.dumps(kept)))
    if how == "decide":
        guard.approvals.approve(guard.approvals.list()[0].id, by="bob")
        assert runner.decide(state, run_id="r")
    else:
        getattr(state, how)(state.get_interruptions()[0])
    result = await runner.run(agent, state, run_id="r", run_config=QUIET)
    made_calls = [item["call_id"] for item in result.to_input_list() if item.get("type") == "function_call"]
    assert made_calls == ["c1", "c2", "c1_2"]
    guard.close()


async def test_a_state_of_an_agent_that_is_not_guarded_is_refused():
    """Its tools would run past the guard."""
    log = []
    tools = made(log)
    agent, runner = agent_of(SCRIPT, tools), GuardedRunner(guard_of(tools, ASKING))
    state = (await runner.run(agent, "Refund A1.", run_config=QUIET)).to_state()
    stranger = await RunState.from_json(agent, state.to_json())
    with pytest.raises(pokayoke.errors.UsageError, match="from_json"):
        await runner.run(agent, stranger, run_config=QUIET)


@tool_input_guardrail
def small(data):
    """Lets small refunds pass."""
    if json.loads(data.context.tool_arguments)["cents"] > 100:
        return ToolGuardrailFunctionOutput.reject_content("Too much.")
    return ToolGuardrailFunctionOutput.allow()


async def large(context, arguments, call_id):
    """Has a person asked about large refunds."""
    return arguments["cents"] > 100


@pytest.mark.parametrize("options", [{"needs_approval": large}, {"tool_input_guardrails": [small]}])
@pytest.mark.parametrize(
    ("arguments", "paid"),
    [
        ('{"order": "A1", "cents": 500}', None),
        ('{"order": "A1", "cents": "500"}', None),
        ('{"arguments": {"order": "A1", "cents": 500}}', None),
        ("{'order': 'A1', 'cents': 500,}", None),
        ('{"arguments": {"order": "A1", "cents": "50"}}', 50),
        ('{"order": "A1", "cents": "five"}', None),
        ('{"order": "A1"', None),
    ],
)
async def test_the_rules_of_a_tool_itself_judge_the_arguments_that_run(options, arguments, paid):
    """A callable `needs_approval` or a guardrail is not passed by in a spelling that the guard puts right later.

    Neither is shown arguments that cannot run: it would end the run over them.
    """
    log = []

    @function_tool(**options)
    async def refund(order: str, cents: int) -> str:
        """Refund an order."""
        log.append(cents)
        return "refunded"

    agent = agent_of([[ask("refund", arguments)], [assistant_message("Done.")]], [refund])
    result = await GuardedRunner(guard_of([refund])).run(agent, "Refund A1.", run_config=QUIET)
    assert log == ([] if paid is None else [paid])
    asked = "needs_approval" in options and paid is None and "500" in arguments
    assert len(result.interruptions) == asked


async def test_a_tools_own_wish_for_approval_stays():
    """`needs_approval` of a tool interrupts although the guard asks nobody."""
    log = []
    tools = made(log, needs_approval=True)
    agent, runner = agent_of(SCRIPT, tools), GuardedRunner(guard_of(tools))
    state = (await runner.run(agent, "Refund A1.", run_config=QUIET)).to_state()
    assert not log
    state.approve(state.get_interruptions()[0])
    assert (await runner.run(agent, state, run_config=QUIET)).final_output == "Done."
    assert log == ["A1"]


BOSS = {"id": "ann", "roles": ["boss"]}


@pytest.mark.parametrize("ident", [{}, {"run_id": "order-1"}])
@pytest.mark.parametrize(
    ("who", "paid"), [({}, ["A1"]), ({"principal": BOSS}, ["A1"]), ({"principal": {"id": "temp", "roles": []}}, [])]
)
async def test_an_interrupted_run_goes_on_on_behalf_of_whoever_calls_now(ident, who, paid):
    """What the first caller may do, the next may not; a state alone goes on with those it began with."""
    log = []
    tools = made([])

    @function_tool
    async def payout(order: str) -> str:
        """Pay for an order."""
        log.append(order)
        return "paid"

    guard = pokayoke.Guard(contracts([*tools, payout], fields={"payout": {"roles": ("boss",)}}), config=ASKING)
    runner = GuardedRunner(guard)
    script = [[ask(*REFUND)], [ask("payout", '{"order": "A1"}', "call_2")], [assistant_message("Done.")]]
    agent = agent_of(script, [*tools, payout])
    result = await runner.run(agent, "Refund A1.", principal=BOSS, run_config=QUIET, **ident)
    guard.approvals.approve(guard.approvals.list()[0].id, by="bob")
    state = result.to_state()
    assert runner.decide(state, **ident)
    result = await runner.run(agent, state, run_config=QUIET, **who, **ident)
    assert result.final_output.startswith("Done.")
    assert log == paid


async def _refund_twice(tmp_path, *, durable):
    """A run that has refunded A1 once, and an interruption about the second time."""
    url = f"sqlite:///{tmp_path}/l.db" if durable else None
    if url:
        pokayoke.open_store(url, create=True).close()
    log = []
    tools = made(log)
    fields = {tool.name: {"output_schema": "text"} for tool in tools}
    fields["refund"]["repeats"] = "once"
    guard = pokayoke.Guard(contracts(tools, reads=["find"], fields=fields), store=url)
    turns = [*SCRIPT, [ask(*REFUND, call_id="call_2")], [assistant_message("Done again.")]]
    agent, runner = agent_of(turns, tools), GuardedRunner(guard)
    first = await runner.run(agent, "Refund A1.", run_id="r1", run_config=QUIET)
    assert not first.interruptions
    given = [*first.to_input_list(), {"role": "user", "content": "Once more."}]
    asked = await runner.run(agent, given, run_id="r1", run_config=QUIET)
    assert [item.tool_name for item in asked.interruptions] == ["refund"]
    assert log == ["A1"]
    return runner, agent, asked.to_state(), log


@pytest.mark.parametrize("how", ["yes", "no", "elsewhere"])
@pytest.mark.parametrize("durable", [True, False])
async def test_a_write_that_a_user_wants_once_more_interrupts_the_run(tmp_path, how, durable):
    """A write that repeats only if a person says so is asked about in a later turn, and a yes is for one more."""
    runner, agent, state, log = await _refund_twice(tmp_path, durable=durable)
    (question,) = runner.guard.approvals.list()
    if how == "elsewhere":
        runner.guard.approvals.approve(question.id)
        assert runner.decide(state)
    else:
        item = state.get_interruptions()[0]
        state.approve(item) if how == "yes" else state.reject(item)
    ended = await runner.run(agent, state, run_id="r1", run_config=QUIET)
    assert log == ["A1"] * (1 + (how != "no"))
    assert not ended.interruptions
    assert ("Not done: refund" in ended.final_output) is (how == "no")
    assert runner.guard.approvals.list() == ()


async def test_each_further_time_is_a_question_of_its_own(tmp_path):
    """A yes to the second refund is none to the third: the next turn interrupts the run again."""
    runner, agent, state, log = await _refund_twice(tmp_path, durable=False)
    state.approve(state.get_interruptions()[0])
    second = await runner.run(agent, state, run_id="r1", run_config=QUIET)
    given = [*second.to_input_list(), {"role": "user", "content": "And a third time."}]
    third = agent_of([[ask(*REFUND, call_id="call_3")]], agent.tools)
    asked = await runner.run(third, given, run_id="r1", run_config=QUIET)
    assert [item.tool_name for item in asked.interruptions] == ["refund"]
    assert log == ["A1", "A1"]
