"""What is special about the OpenAI Agents SDK: interruptions, handoffs, nested agents, sessions, streams."""

import asyncio
import contextlib
import copy
import inspect
import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("agents", reason="run by make frameworks")

from agents import (
    Agent,
    FunctionTool,
    GuardrailFunctionOutput,
    Handoff,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelProvider,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    Usage,
    UserError,
    function_tool,
    handoff,
    tool_input_guardrail,
    tool_namespace,
    tool_output_guardrail,
)
from agents.mcp import MCPServer
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from mcp.types import CallToolResult, ImageContent, TextContent
from mcp.types import Tool as Listed
from model_server import ModelServer, Turn
from openai import AsyncOpenAI
from pydantic import BaseModel

import pokayoke
from pokayoke.adapters.openai_agents import GuardedRunner, calls, contracts, message
from pokayoke.runtime.run.run import Run

QUIET = RunConfig(tracing_disabled=True)
REFUND = ("refund", '{"order": "A1"}')


def ask(name, arguments="{}", call_id="call_1"):
    """A reply that calls a tool."""
    return function_call(name, arguments, call_id=call_id)


def made(log, **options):
    """Two tools over a log: a write and a read."""

    @function_tool(**options)
    async def refund(order: str) -> str:
        """Refund an order."""
        log.append(order)
        return f"refunded {order}"

    @function_tool
    async def find(order: str) -> str:
        """Find an order."""
        return f"{order} is open"

    return [refund, find]


def agent_of(model, tools, **options):
    """An agent with a scripted model; replies are lists of items."""
    model = ScriptedModel(model) if isinstance(model, list) else model
    return Agent(name=options.pop("name", "shop"), model=model, tools=tools, **options)


def guard_of(tools, config=None, store=None, **options):
    """A guard over the tools of an agent."""
    fields = {tool.name: {"output_schema": "text"} for tool in tools}
    return pokayoke.Guard(
        contracts(tools, reads={"find"} & {*fields}, fields=fields), config=config, store=store, **options
    )


ASKING = {"approvals": {"tools": ["refund"]}}
SCRIPT = [[ask(*REFUND)], [assistant_message("Done.")]]


# -- approvals ----------------------------------------------------------------------------------------


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


async def test_a_call_that_the_person_rejects_does_not_run():
    """The SDK's own no is the guard's no: the tool does not run, and the user reads that."""
    log = []
    tools = made(log)
    guard = guard_of(tools, ASKING)
    agent, runner = agent_of(SCRIPT, tools), GuardedRunner(guard)
    state = (await runner.run(agent, "Refund A1.", run_config=QUIET)).to_state()
    state.reject(state.get_interruptions()[0])
    result = await runner.run(agent, state, run_config=QUIET)
    assert result.final_output == "Done.\n\n[Not done: refund (approval_denied).]"
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


# -- agents behind agents -----------------------------------------------------------------------------


async def test_agents_that_are_handed_over_to_are_guarded_too():
    """Handoffs in a circle, named by the agent or built with `handoff`: every agent's calls go through the guard."""
    log = []
    tools = made(log)
    desk = agent_of([[ask("transfer_to_cashier")], [assistant_message("never")]], [], name="desk")
    cashier = agent_of(
        [[ask("refund", "{'order': 'A1',}", "c1")], [ask(*REFUND, "c2")], [assistant_message("Done.")]],
        tools,
        name="cashier",
        handoffs=[handoff(desk)],
    )
    desk.handoffs = [cashier]
    result = await GuardedRunner(guard_of(tools)).run(desk, "Refund A1.", run_config=QUIET)
    assert (result.final_output, log) == ("Done.", ["A1"])
    assert result.last_agent.name == "cashier"


@pytest.mark.parametrize("first", ["refund", "handoff"])
async def test_a_handoff_may_share_its_id_with_a_call(first):
    """The call runs, the other agent takes over, and each is answered under an id of its own."""
    log = []
    tools = made(log)
    other = agent_of([[assistant_message("Over to me.")]], [], name="cashier")
    turn = [ask(*REFUND), ask("transfer_to_cashier")]
    agent = agent_of([turn if first == "refund" else turn[::-1]], tools, handoffs=[other])
    result = await GuardedRunner(guard_of(tools)).run(agent, "Refund A1.", run_config=QUIET)
    assert (result.final_output, log) == ("Over to me.", ["A1"])
    items = result.to_input_list()
    for kind in ("function_call", "function_call_output"):
        assert sorted(one["call_id"] for one in items if one.get("type") == kind) == ["call_1", "call_1_2"]


async def test_an_agent_that_a_handoff_makes_belongs_to_the_run():
    """Its question is asked in the run that began, and answered there: nothing is left to wait."""
    log = []
    tools = made(log)

    async def over(_context, _text):
        return agent_of(SCRIPT, tools, name="cashier")

    by_hand = Handoff("to_cashier", "Hand over.", {}, over, "cashier")
    guard = guard_of(tools, ASKING)
    runner, agent = GuardedRunner(guard), agent_of([[ask("to_cashier")]], tools, handoffs=[by_hand])
    state = (await runner.run(agent, "Refund A1.", run_config=QUIET)).to_state()
    state.approve(state.get_interruptions()[0])
    result = await runner.run(agent, state, run_config=QUIET)
    assert (result.final_output, log) == ("Done.", ["A1"])
    assert [known.status for known in guard.approvals.list(waiting=False)] == ["approved"]


class Reason(BaseModel):
    """What a handoff is told."""

    reason: str
    urgent: bool = False


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{'reason': 'late',}", "late"),
        ('{"reason": "late", "urgent": "true", "more": 1}', "late"),
        ('{"reason": ', "ends between a key and its value"),
        ("{}", "Add `reason`"),
        ("", "there is no text"),
    ],
)
async def test_arguments_of_a_handoff_are_mended_where_that_is_no_guess_and_sent_back_otherwise(text, told):
    """The run does not end over them: the model reads what is wrong, under the name that it wrote."""
    heard = []
    tools = made([])
    other = agent_of([[assistant_message("The cashier.")]], [], name="cashier")
    over = handoff(other, on_handoff=lambda _context, given: heard.append(given.reason), input_type=Reason)
    model = ScriptedModel([[ask("transfer_to_cashier", text)], [assistant_message("Done.")]])
    runner = GuardedRunner(guard_of(tools))
    result = await runner.run(agent_of(model, tools, handoffs=[over]), "Refund A1.", run_config=QUIET)
    if heard:
        assert (heard, result.final_output) == ([told], "The cashier.")
        return
    assert result.final_output == "Done."
    call, answer = model.calls[1].input[-2:]
    assert (call["name"], call["call_id"]) == ("transfer_to_cashier", answer["call_id"])
    assert told in answer["output"]


async def test_a_model_that_cannot_hand_over_loses_its_tools():
    """Arguments that a handoff cannot take count like those of any call: the run ends with an honest answer."""
    tools = made([])
    over = handoff(agent_of([], [], name="cashier"), on_handoff=lambda _context, _given: None, input_type=Reason)
    model = ScriptedModel([[ask("transfer_to_cashier", "{}")]] * 3)
    result = await GuardedRunner(guard_of(tools)).run(agent_of(model, tools, handoffs=[over]), "Go.", run_config=QUIET)
    assert "could not finish" in result.final_output
    assert not model.calls[-1].handoffs


async def test_a_guarded_agent_as_a_tool_has_a_run_of_its_own_and_can_be_interrupted(monkeypatch):
    """The inner agent asks for approval, the outer run is interrupted, and after the yes both end; it runs once."""
    ended, close = set(), Run.close
    monkeypatch.setattr(Run, "close", lambda run: (ended.add(run.id), close(run)))
    log = []
    tools = made(log)
    inner = agent_of(SCRIPT, tools, name="cashier")
    guard = guard_of(tools, ASKING)
    helper = inner.as_tool("cashier", "Refunds.")
    guard.replace([*guard.tools, *contracts([helper], fields={"cashier": {"output_schema": "text"}})])
    runner = GuardedRunner(guard)
    helper = runner.guarded(inner).as_tool("cashier", "Refunds.", run_config=QUIET)
    outer = agent_of([[ask("cashier", '{"input": "A1"}', "o1")], [assistant_message("All done.")]], [helper])
    result = await runner.run(outer, "Refund A1.", run_config=QUIET)
    assert not ended
    assert [item.tool_name for item in result.interruptions] == ["refund"]
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    result = await runner.run(outer, state, run_config=QUIET)
    assert (result.final_output, log) == ("All done.", ["A1"])
    assert len(ended) == 2


async def test_an_agent_as_a_tool_that_would_write_past_the_guard_is_refused():
    """It is said with the way to do it; an agent that can only speak needs none."""
    tools = made([])
    inner = agent_of(SCRIPT, tools, name="cashier")
    teller = Agent(name="teller", model=ScriptedModel([[assistant_message("Hello.")]]))
    for one, match in ((inner, r"runner.guarded\(agent\).as_tool"), (teller, None)):
        helper = one.as_tool("helper", "Helps.")
        runner = GuardedRunner(guard_of([*tools, helper]))
        outer = agent_of([[ask("helper", '{"input": "A1"}')], [assistant_message("All done.")]], [helper])
        expected = pytest.raises(pokayoke.errors.UsageError, match=match) if match else contextlib.nullcontext()
        with expected:
            assert (await runner.run(outer, "Go.", run_config=QUIET)).final_output == "All done."


# -- what the SDK does itself ---------------------------------------------------------------------------


async def test_a_tripwire_ends_the_run():
    """A guardrail of the SDK's goes through."""

    async def no(context, agent, given):
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    tools = made([])
    agent = agent_of(SCRIPT, tools, input_guardrails=[InputGuardrail(no)])
    with pytest.raises(InputGuardrailTripwireTriggered):
        await GuardedRunner(guard_of(tools)).run(agent, "Refund A1.", run_config=QUIET)


async def test_a_guardrail_of_a_tools_output_judges_what_the_tool_returned():
    """It sees the value, not the text that the model reads, and its no stands; of a refused call it sees the reason."""
    seen = []

    @tool_output_guardrail
    def no_secrets(data):
        seen.append(data.output)
        secret = isinstance(data.output, dict) and "ssn" in data.output
        return ToolGuardrailFunctionOutput.reject_content("hidden") if secret else ToolGuardrailFunctionOutput.allow()

    @function_tool(tool_output_guardrails=[no_secrets])
    def find(order: str) -> dict:
        """Find an order."""
        return {"ssn": "123"}

    replies = [[ask("find", '{"order": "A1"}')], [ask("find", '{"order": }', "call_2")], [assistant_message("Done.")]]
    model = ScriptedModel(replies)
    guard = pokayoke.Guard(contracts([find], reads=["find"]))
    result = await GuardedRunner(guard).run(agent_of(model, [find]), "Find A1.", run_config=QUIET)
    assert model.calls[1].input[-1]["output"] == "hidden"
    assert seen[0] == {"ssn": "123"}
    assert "arguments" in seen[1]
    assert [one.guardrail.get_name() for one in result.tool_output_guardrail_results] == ["no_secrets"] * 2


@pytest.mark.parametrize("config", [None, ASKING])
@pytest.mark.parametrize("early", [False, True])
async def test_what_a_guardrail_of_a_tools_input_turns_away_is_known_to_the_run(config, early):
    """The model reads the guardrail's words, the user that it was not done, and no question is left behind."""

    @tool_input_guardrail
    def never(data):
        return ToolGuardrailFunctionOutput.reject_content("not today")

    log = []
    tools = made(log, tool_input_guardrails=[never])
    guard, model = guard_of(tools, config), ScriptedModel(SCRIPT)
    runner, agent = GuardedRunner(guard), agent_of(model, tools)
    options = replace(QUIET, tool_execution=ToolExecutionConfig(pre_approval_tool_input_guardrails=early))
    result = await runner.run(agent, "Refund A1.", run_config=options)
    if result.interruptions:
        state = result.to_state()
        state.approve(state.get_interruptions()[0])
        result = await runner.run(agent, state, run_config=options)
    assert result.final_output.startswith("Done.\n\n[Not done: refund (")
    assert model.calls[1].input[-1]["output"] == "not today"
    assert not log
    assert [known.status for known in guard.approvals.list(waiting=False)] == (["denied"] if config else [])


PICTURE = "data:image/png;base64,aGk="
NAMED = {"file_data": "aGk=", "filename": "a.pdf"}


@pytest.mark.parametrize(
    ("result", "sent"),
    [
        (ToolOutputImage(image_url=PICTURE, detail="low"), {"image_url": PICTURE, "detail": "low"}),
        ([ToolOutputText(text="see"), ToolOutputImage(file_id="f1")], {"file_id": "f1"}),
        ({"type": "file", **NAMED}, NAMED),
        (ToolOutputFileContent(**NAMED), NAMED),
        (ImageContent(type="image", data="aGk=", mimeType="image/png"), {"image_url": PICTURE}),
    ],
)
async def test_pictures_and_files_of_a_tool_reach_the_model_as_such(result, sent):
    """What the SDK would send as a picture or a file, it still does, beside the text of the guard."""

    @function_tool
    def show() -> object:
        """Show it."""
        return [result] if isinstance(result, ImageContent) else result

    model = ScriptedModel([[ask("show")], [assistant_message("Done.")]])
    await GuardedRunner(pokayoke.Guard(contracts([show], reads=["show"]))).run(
        agent_of(model, [show]), "Go.", run_config=QUIET
    )
    text, block = model.calls[1].input[-1]["output"]
    assert ("see" in text["text"], text["type"]) == (isinstance(result, list), "input_text")
    assert {key: value for key, value in block.items() if key != "type"} == sent
    assert block["type"] == ("input_file" if sent is NAMED else "input_image")


async def test_what_looks_like_a_picture_is_data_where_a_schema_says_so():
    """A tool with an output schema returns data, whatever its fields are called."""

    @function_tool
    def show() -> dict:
        """Show it."""
        return {"type": "image", "image_url": PICTURE}

    shape = {"type": "object", "properties": {"image_url": {"type": "string"}}, "required": ["image_url"]}
    guard = pokayoke.Guard(contracts([show], reads=["show"], fields={"show": {"output_schema": shape}}))
    model = ScriptedModel([[ask("show")], [assistant_message("Done.")]])
    await GuardedRunner(guard).run(agent_of(model, [show]), "Go.", run_config=QUIET)
    assert PICTURE in model.calls[1].input[-1]["output"]


async def test_the_limit_of_turns_ends_the_run():
    """MaxTurnsExceeded goes through."""
    tools = made([])
    replies = [[ask("find", json.dumps({"order": str(number)}), f"c{number}")] for number in range(9)]
    with pytest.raises(MaxTurnsExceeded):
        await GuardedRunner(guard_of(tools)).run(agent_of(replies, tools), "Find.", max_turns=3, run_config=QUIET)


async def test_a_tool_that_is_switched_off_is_answered_with_what_there_is():
    """A disabled tool is not run, and no reason to crash."""
    log = []
    tools = made(log, is_enabled=False)
    model = ScriptedModel(SCRIPT)
    result = await GuardedRunner(guard_of(tools)).run(agent_of(model, tools), "Refund A1.", run_config=QUIET)
    assert result.final_output.startswith("Done.")
    assert not log
    assert "not among your tools now. There are: find." in model.calls[1].input[-1]["output"]


async def test_the_model_reads_the_name_that_it_wrote():
    """The history of the next request has the unknown name and the arguments as they were."""
    model = ScriptedModel([[ask("invent", '{"a": 1}')], [assistant_message("Done.")]])
    tools = made([])
    result = await GuardedRunner(guard_of(tools)).run(agent_of(model, tools), "Go.", run_config=QUIET)
    asked = [item for item in model.calls[1].input if item.get("type") == "function_call"]
    assert [(item["name"], item["arguments"]) for item in asked] == [("invent", '{"a": 1}')]
    assert result.final_output == "Done."


async def test_a_typed_answer_is_left_alone():
    """A note beside the JSON of an `output_type` would break it."""

    class Answer(BaseModel):
        done: bool

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("no")

    model = [[ask(*REFUND)], [assistant_message('{"done": false}')]]
    agent = agent_of(model, [refund], output_type=Answer)
    result = await GuardedRunner(guard_of([refund])).run(agent, "Refund A1.", run_config=QUIET)
    assert result.final_output == Answer(done=False)


async def test_what_is_not_known_to_have_happened_is_said_beside_the_last_word():
    """The model claims a refund that nobody knows of; the user reads that."""

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("connection lost")

    agent = agent_of(SCRIPT, [refund])
    result = await GuardedRunner(guard_of([refund])).run(agent, "Refund A1.", run_config=QUIET)
    assert result.final_output == "Done.\n\n[It is not known whether refund took effect.]"


async def test_a_first_result_that_ends_the_run_is_the_plain_value_and_a_failure_ends_nothing():
    """`stop_on_first_tool`: the user gets the value, not what the model would read; after a refusal it goes on."""
    log = []
    tools = made(log)
    replies = [[ask("refund", '{"order": }')], [ask(*REFUND, "call_2")]]
    agent = agent_of(replies, tools, tool_use_behavior="stop_on_first_tool")
    result = await GuardedRunner(guard_of(tools)).run(agent, "Refund A1.", run_config=QUIET)
    assert (result.final_output, log) == ("refunded A1", ["A1"])


async def test_a_first_result_that_was_not_kept_is_no_null():
    """A repeated write with a secret result ends the run with that sentence, not with nothing."""

    @function_tool
    async def issue(order: str) -> dict:
        """Issue a code."""
        return {"code": 42}

    guard = pokayoke.Guard(contracts([issue], fields={"issue": {"secret": True}}))
    runner, ended = GuardedRunner(guard), []
    for _ in range(2):
        agent = agent_of([[ask("issue", '{"order": "A1"}')]], [issue], tool_use_behavior="stop_on_first_tool")
        ended.append((await runner.run(agent, "Go.", run_config=QUIET, run_id="r")).final_output)
    assert ended[0] == str({"code": 42})
    assert "its result was not kept" in ended[1]


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
async def test_a_tool_that_is_denied_is_not_shown(mode):
    """It is not offered, and a call of it does not run; monitor mode offers and runs what it would deny."""
    log = []

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        log.append(order)
        return "refunded"

    @function_tool
    async def find(order: str) -> str:
        """Find an order."""
        return "open"

    tools = [refund, find]
    model = ScriptedModel([[ask(*REFUND)], [assistant_message("Done.")]])
    guard = guard_of(tools, config={"mode": mode, "access": {"deny": ["refund"]}})
    settings = ModelSettings(tool_choice="refund")
    await GuardedRunner(guard).run(agent_of(model, tools, model_settings=settings), "Refund.", run_config=QUIET)
    shown = mode == "monitor"
    assert [tool.name for tool in model.calls[0].tools] == (["refund", "find"] if shown else ["find"])
    assert model.calls[0].model_settings.tool_choice == ("refund" if shown else None)
    assert log == (["A1"] if shown else [])


async def test_an_agent_whose_tools_are_all_denied_asks_without_any():
    """The request then names neither tools nor a choice among them: providers refuse an empty list."""

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        return "refunded"

    model = ScriptedModel([[assistant_message("Done.")]])
    guard = guard_of([refund], config={"access": {"deny": ["refund"]}})
    settings = ModelSettings(tool_choice="required", parallel_tool_calls=False)
    await GuardedRunner(guard).run(agent_of(model, [refund], model_settings=settings), "Refund.", run_config=QUIET)
    [asked] = model.calls
    assert (asked.tools, asked.model_settings.tool_choice, asked.model_settings.parallel_tool_calls) == ([], None, None)


async def test_a_result_that_was_too_long_can_be_read_on():
    """The tool that pages is offered from then on, and answered by the guard."""

    @function_tool
    async def find(order: str) -> str:
        """Find an order."""
        return "x" * 60_000

    more = json.dumps({"handle": "out-1", "offset": 50_000})
    model = ScriptedModel([[ask("find", '{"order": "A"}')], [ask("read_more", more, "c2")], [assistant_message("Ok.")]])
    await GuardedRunner(guard_of([find])).run(agent_of(model, [find]), "Find.", run_config=QUIET)
    assert [tool.name for tool in model.calls[1].tools] == ["find", "read_more"]
    assert "characters 50000 to" in model.calls[2].input[-1]["output"]


async def test_a_tools_time_limit_is_the_contracts():
    """`timeout_seconds` of a tool becomes its contract's timeout, and a write that is over time is in doubt."""

    @function_tool(timeout=0.1)
    async def refund(order: str) -> str:
        """Refund an order."""
        await asyncio.sleep(5)

    assert contracts([refund])[0].timeout == 0.1
    model = ScriptedModel(SCRIPT)
    result = await GuardedRunner(guard_of([refund])).run(agent_of(model, [refund]), "Refund A1.", run_config=QUIET)
    assert "It is not known whether refund took effect" in result.final_output


def lookup(described, name="order"):
    """A tool called lookup, for one thing or another."""

    async def look(context, text):
        return f"{described} {json.loads(text)[name]}"

    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return FunctionTool("lookup", described, schema, look, strict_json_schema=False)


def test_tools_that_share_a_name_have_one_contract_only_if_they_are_alike():
    """Of two that differ, one would be judged by the terms of the other."""
    assert [one.name for one in contracts([lookup("crm"), lookup("crm")])] == ["lookup"]
    for other in (lookup("billing"), lookup("crm", "invoice"), replace(lookup("crm"), timeout_seconds=5)):
        with pytest.raises(pokayoke.errors.UsageError, match="two tools are called lookup"):
            contracts([lookup("crm"), other])


async def test_tools_of_namespaces_are_told_apart():
    """Each has a contract of its own, in whatever state its calls are, and a person is asked about the right one."""
    crm, billing = lookup("crm"), lookup("billing", "invoice")
    tools = [
        *tool_namespace(name="crm", description="Customers.", tools=[crm]),
        *tool_namespace(name="billing", description="Invoices.", tools=[billing]),
    ]

    def asked(space, name, arguments, ident):
        return ask(name, arguments, ident).model_copy(update={"namespace": space})

    model = ScriptedModel(
        [
            [
                asked("crm", "lookup", '{"order": "A",}', "c1"),
                asked("billing", "lookup", '{"invoice": "B"}', "c2"),
                asked("crm", "lookup", '{"order": }', "c3"),
                asked("crm", "invent", "{}", "c4"),
            ],
            [assistant_message("Done.")],
        ]
    )
    guard = pokayoke.Guard(contracts(tools, reads=["crm.lookup"]), config={"approvals": {"tools": ["billing.lookup"]}})
    runner, agent = GuardedRunner(guard), agent_of(model, tools)
    result = await runner.run(agent, "Look.", run_config=QUIET)
    assert [item.qualified_name for item in result.interruptions] == ["billing.lookup"]
    state = result.to_state()
    assert not runner.decide(state)
    state.approve(state.get_interruptions()[0])
    assert (await runner.run(agent, state, run_config=QUIET)).final_output == "Done."
    answers = {item["call_id"]: item["output"] for item in model.calls[1].input if "output" in item}
    assert "crm A" in answers["c1"]
    assert "billing B" in answers["c2"]
    assert "were not used" in answers["c3"]
    assert "crm.lookup" in answers["c4"]


async def test_a_parameter_with_a_default_may_be_left_out():
    """Strict mode requires it of the provider, and drops a default of None; the function does neither."""
    log = []

    @function_tool
    def send(order: str, note: str | None, page: int = 1, tags: list[str] | None = None) -> str:
        """Send an order."""
        log.append((order, note, page, tags))
        return "sent"

    assert contracts([send])[0].input_schema["required"] == ["order", "note"]
    short = {"order": "A1", "note": None}
    asked = [ask("send", json.dumps(short)), ask("send", json.dumps({**short, "tags": None, "page": 1}), "call_2")]
    agent = agent_of([asked, [assistant_message("Done.")]], [send])
    await GuardedRunner(guard_of([send])).run(agent, "Send A1.", run_config=QUIET)
    assert log == [("A1", None, 1, None)], "spelt out or not, it is one write"


def test_a_tool_of_a_schema_alone_requires_what_its_schema_says():
    """Nothing is known of the function behind it, so what may be null may not be left out."""

    async def invoke(context, text):
        """Runs it."""

    shown = {"type": "object", "properties": {"note": {"type": ["string", "null"]}}, "required": ["note"]}
    tool = FunctionTool("send", "Send.", {**shown, "additionalProperties": False}, invoke)
    assert contracts([tool])[0].input_schema["required"] == ["note"]


# -- MCP ------------------------------------------------------------------------------------------------


async def test_tools_of_mcp_servers_are_guarded_and_their_failures_are_failures():
    """An MCP tool that says `isError` has failed, although the SDK hands on a text like any other."""

    class Shop(MCPServer):
        name = "shop"

        async def connect(self):
            pass

        async def cleanup(self):
            pass

        async def list_tools(self, *args, **kwargs):
            schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
            return [Listed(name="find", description="Find.", **{schema_field: schema})]

        async def call_tool(self, name, arguments, *args, **kwargs):
            text = TextContent(type="text", text=f"no {arguments['order']}: secret")
            return CallToolResult(content=[text], **{error_field: arguments["order"] == "B2"})

        async def list_prompts(self):
            raise NotImplementedError

        async def get_prompt(self, name, arguments=None):
            raise NotImplementedError

    schema_field = "input_schema" if "input_schema" in Listed.model_fields else "inputSchema"
    error_field = "is_error" if "is_error" in CallToolResult.model_fields else "isError"
    server = Shop()
    find = made([])[1]
    guard = guard_of([find])
    replies = [
        [ask("find", "{'order': 'A1'}", "c1"), ask("find", '{"order": "B2"}', "c2")],
        [assistant_message("Done.")],
    ]
    model = ScriptedModel(replies)
    agent = Agent(name="shop", model=model, mcp_servers=[server])
    await GuardedRunner(guard).run(agent, "Find.", run_config=QUIET)
    first, second = [item["output"] for item in model.calls[1].input if "output" in item]
    assert "no A1" in str(first)
    assert "reports a failure" in str(second)
    guard.replace([])
    with pytest.raises(pokayoke.errors.UsageError, match="find has no contract"):
        await GuardedRunner(guard).run(Agent(name="a", model=ScriptedModel(replies), mcp_servers=[server]), "Find.")


# -- building -------------------------------------------------------------------------------------------


async def test_a_tool_without_a_contract_is_said_before_anything_runs():
    """It is the programmer's mistake."""
    tools = made([])
    with pytest.raises(pokayoke.errors.UsageError, match="refund has no contract"):
        await GuardedRunner(guard_of(tools[1:])).run(agent_of(SCRIPT, tools), "Go.", run_config=QUIET)


async def test_a_guarded_agent_that_something_else_starts_is_refused():
    """Its calls would belong to no run."""
    log = []
    tools = made(log)
    agent = GuardedRunner(guard_of(tools)).guarded(agent_of(SCRIPT, tools))
    with pytest.raises((pokayoke.errors.UsageError, UserError), match=r"GuardedRunner\.run"):
        await Runner.run(agent, "Go.", run_config=QUIET)
    assert not log


async def test_models_that_are_named_are_guarded():
    """Agents with a model's name keep it: the provider of the run's configuration is guarded, and so is its model."""
    log = []
    tools = made(log)

    class Provider(ModelProvider):
        def get_model(self, model_name):
            assert model_name == "small"
            return model

    for config, name in (
        ({"model_provider": Provider()}, "small"),
        (RunConfig(model_provider=Provider(), tracing_disabled=True, model="small"), None),
        (RunConfig(model=ScriptedModel([[ask("invent")], *SCRIPT]), tracing_disabled=True), "other"),
    ):
        model = ScriptedModel([[ask("invent")], *SCRIPT])
        log.clear()
        agent = Agent(name="a", model=name, tools=tools)
        result = await GuardedRunner(guard_of(tools)).run(agent, "Go.", run_config=config)
        assert (result.final_output, log) == ("Done.", ["A1"])


def test_without_the_sdk_the_extra_is_named():
    """A missing extra is said in words that can be acted on."""
    code = (
        "import sys; sys.modules['agents'] = None\n"
        "try:\n    import pokayoke.adapters.openai_agents\n"
        "except pokayoke.errors.MissingExtraError as error:\n    print(error)"
    )
    told = subprocess.run(
        [sys.executable, "-c", f"import pokayoke.errors\n{code}"], capture_output=True, text=True, check=False
    )
    assert "pokayoke[openai-agents]" in told.stdout


async def test_calls_and_message_are_for_loops_of_ones_own():
    """A reply's calls go through a run by hand, and the outcome becomes an input item."""
    tools = made([])
    reply = ModelStep(output=[ask("find", "{'order': 'A1'}")])
    with guard_of(tools).run() as run:
        outcome = run.call(calls(reply, run)[0], invoke=lambda arguments: "open")
    assert message(outcome)["call_id"] == "call_1"
    assert message(outcome)["type"] == "function_call_output"


async def test_a_guarded_tool_tells_the_sdk_at_once_what_it_takes():
    """The SDK asks for it before every call; what is told is true, and a context has no narrower type."""
    agent = GuardedRunner(guard_of(made([]))).guarded(Agent(name="a", tools=made([])))
    for tool in agent.tools:
        invoke = tool.on_invoke_tool
        told = vars(invoke)["__signature__"]
        assert inspect.signature(invoke) is told
        del invoke.__signature__
        assert inspect.signature(invoke) == told


async def test_what_the_model_reads_is_a_text_that_a_copy_does_not_double():
    """The SDK copies the item of every call; the outcome behind it may hold a long output."""
    tools = made([])
    result = await GuardedRunner(guard_of(tools)).run(agent_of(SCRIPT, tools), "Refund A1.", run_config=QUIET)
    output = next(item.output for item in result.new_items if item.type == "tool_call_output_item")
    assert copy.deepcopy([output])[0] is output
    assert copy.copy(output) == output


# -- runs ------------------------------------------------------------------------------------------------


async def test_runs_side_by_side_do_not_mix():
    """Twenty runs with the same ids and arguments: each refunds once, and no stuck one stops another."""
    log = []
    tools = made(log)
    runner = GuardedRunner(guard_of(tools))

    def replies(number):
        return [[ask("invent")], [ask("invent", "{}", "c2")]] * 2 if number % 2 else SCRIPT

    ended = await asyncio.gather(
        *(runner.run(agent_of(replies(number), tools), "Go.", run_config=QUIET) for number in range(20))
    )
    assert log == ["A1"] * 10
    assert [("could not finish" in one.final_output) for one in ended] == [bool(number % 2) for number in range(20)]


async def test_a_session_is_one_run_and_each_input_a_turn(tmp_path):
    """The second input's equal write is the same effect, its bad rounds are counted anew, and nothing of ours is kept."""
    store = f"sqlite:///{tmp_path / 'ledger.db'}"
    pokayoke.open_store(store, create=True).close()
    log = []
    tools = made(log)
    guard = guard_of(tools, store=store)
    session = SQLiteSession("thread-7")
    stuck = [[ask("invent")], [ask("invent", "{}", "c2")], [assistant_message("No.")]]
    for number, replies in enumerate((stuck, SCRIPT, SCRIPT)):
        model = ScriptedModel(replies)
        agent = agent_of(model, tools, instructions="Be brief.")
        result = await GuardedRunner(guard).run(agent, "Refund A1.", session=session, run_config=QUIET)
        assert result.final_output == ("Done." if number else "No.")
        if not number:
            assert not model.calls[-1].tools
            assert model.calls[-1].system_instructions.startswith("Be brief.\n\nIn the last 2 rounds")
    assert log == ["A1"]
    items = await session.get_items()
    ids = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert len(ids) == len(set(ids)) == 4
    assert "Tools are off" not in json.dumps(items)
    guard.close()


async def test_only_what_the_user_says_now_begins_a_turn(monkeypatch):
    """A history that is handed in again holds what was said before, and answered."""
    said, user = [], Run.user
    monkeypatch.setattr(Run, "user", lambda run, text: (said.append(text), user(run, text)))
    tools = made([])
    history = []
    for number in range(3):
        note = {"role": "developer", "content": "Be brief."}
        history += [{"role": "user", "content": f"Hello {number}."}, {"role": "user", "content": "Please."}, note]
        agent = agent_of([[assistant_message("Hello.")]], tools)
        result = await GuardedRunner(guard_of(tools)).run(agent, history, run_config=QUIET)
        history = result.to_input_list()
    assert said == [one for number in range(3) for one in (f"Hello {number}.", "Please.")]


async def test_without_an_id_a_durable_ledger_refuses_writes(tmp_path):
    """A restart could not know the run again."""
    store = f"sqlite:///{tmp_path / 'ledger.db'}"
    pokayoke.open_store(store, create=True).close()
    log = []
    tools = made(log)
    guard = guard_of(tools, store=store)
    await GuardedRunner(guard).run(agent_of(SCRIPT, tools), "Refund A1.", run_config=QUIET)
    assert not log
    guard.close()


async def test_tokens_are_reported():
    """What the reply counts is what a budget counts."""
    tools = made([])
    used = Usage(requests=1, input_tokens=900, output_tokens=100, total_tokens=1_000)
    replies = [ModelStep(output=[ask("find", '{"order": "A"}')], usage=used), ModelStep(output=SCRIPT[1], usage=used)]
    guard = guard_of(tools, {"budgets": {"tokens": 500}})
    model = ScriptedModel(replies)
    await GuardedRunner(guard).run(agent_of(model, tools), "Find.", run_config=QUIET)
    assert "budget" in model.calls[1].input[-1]["output"].lower()


KILLED = """
import asyncio, os, signal, sys
from agents import Agent, RunConfig, function_tool
from agents.testing import ScriptedModel, function_call
import pokayoke
from pokayoke.adapters.openai_agents import GuardedRunner, contracts

@function_tool
async def refund(order: str) -> str:
    with open(sys.argv[2], "a") as log:
        log.write(order)
    os.kill(os.getpid(), signal.SIGKILL)

guard = pokayoke.Guard(contracts([refund], fields={"refund": {"output_schema": "text"}}), store=sys.argv[1])
model = ScriptedModel([[function_call("refund", '{"order": "A1"}', call_id="call_1")]])
config = RunConfig(tracing_disabled=True, group_id="thread-1")
asyncio.run(GuardedRunner(guard).run(Agent(name="shop", model=model, tools=[refund]), "Refund A1.", run_config=config))
"""


def test_a_process_that_is_killed_in_mid_write_does_not_write_again(tmp_path):
    """Another process asks for the same write in the same thread: it is in doubt, and the effect exists once."""
    store, log, program = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "log", tmp_path / "program.py"
    pokayoke.open_store(store, create=True).close()
    program.write_text(KILLED, encoding="utf-8")
    killed = subprocess.run([sys.executable, program, store, log], capture_output=True, check=False, timeout=55)
    assert (killed.returncode, log.read_text(encoding="utf-8")) == (-signal.SIGKILL, "A1")

    happened = []
    tools = made(happened)
    guard = guard_of(tools, store=store)
    config = RunConfig(tracing_disabled=True, group_id="thread-1")
    # Not `run_sync`: the SDK leaves its event loop open, and a later test would be blamed.
    result = asyncio.run(GuardedRunner(guard).run(agent_of(SCRIPT, tools), "Refund A1.", run_config=config))
    assert result.final_output == "Done.\n\n[It is not known whether refund took effect.]"
    assert not happened
    guard.close()


# -- streams ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def served(turns, wire="chat"):
    """A scripted server, and the SDK's own model at it."""
    with ModelServer(turns) as server:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0, timeout=30) as client:
            yield server, {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[wire]("m", client)


async def listened(runner, agent):
    """The result of a streamed run, and the texts as they came."""
    result = runner.run_streamed(agent, "Refund A1.", run_config=QUIET)
    pieces = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return result, pieces


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_text_streams_as_it_comes_and_a_note_comes_last(wire):
    """Pieces are passed on, and the note about a write that is not known to have happened is the last of them."""

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("connection lost")

    turns = [Turn(calls=(("call_1", *REFUND),)), Turn("I refunded the order.")]
    async with served(turns, wire) as (_, model):
        result, pieces = await listened(GuardedRunner(guard_of([refund])), agent_of(model, [refund]))
    assert result.final_output == "".join(pieces)
    assert len(pieces) > 3
    assert pieces[-1] == "\n\n[It is not known whether refund took effect.]"


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_note_of_a_stream_belongs_to_the_message_it_is_said_in(wire):
    """All pieces of the last text have the id and the place of one item."""

    @function_tool
    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("connection lost")

    turns = [Turn(calls=(("call_1", *REFUND),)), Turn("I refunded the order.")]
    async with served(turns, wire) as (_, model):
        result = GuardedRunner(guard_of([refund])).run_streamed(
            agent_of(model, [refund]), "Refund A1.", run_config=QUIET
        )
        raw = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
    pieces = [one for one in raw if one.type == "response.output_text.delta"]
    assert pieces[-1].delta == "\n\n[It is not known whether refund took effect.]"
    assert len({(one.item_id, one.output_index) for one in pieces}) == 1


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize("mode", ["stream", "async"])
async def test_a_cut_text_without_a_word_is_answered_honestly(wire, mode):
    """An empty message that was cut does not crash the run."""
    tools = made([])
    async with served([Turn(stop="length")], wire) as (_, model):
        agent, runner = agent_of(model, tools), GuardedRunner(guard_of(tools))
        if mode == "stream":
            result, _ = await listened(runner, agent)
        else:
            result = await runner.run(agent, "Go.", run_config=QUIET)
    assert "could not finish" in result.final_output


async def test_a_chat_stream_that_breaks_off_runs_none_of_its_calls():
    """A stream that ends without a reason ended too early, although what came of the call may parse."""
    log = []
    tools = made(log)
    calls_ = Turn(calls=(("call_1", "refund", '{"order": "A1"}'),), breaks=7)
    async with served([calls_, Turn("Done.")]) as (server, model):
        result, _ = await listened(GuardedRunner(guard_of(tools)), agent_of(model, tools))
        answers = [one["content"] for one in server.bodies[-1]["messages"] if one["role"] == "tool"]
    assert not log
    assert "cut" in answers[0]
    assert result.final_output.startswith("Done.")


@pytest.mark.parametrize("mode", ["stream", "async"])
async def test_a_cut_message_hands_nobody_over(mode):
    """A handoff of a message that was cut is refused like its other calls."""
    tools = made([])
    other = agent_of([[assistant_message("never")]], [], name="cashier")
    cut = Turn(calls=(("call_1", "transfer_to_cashier", "{}"),), stop="length")
    async with served([cut, Turn("Done.")]) as (server, model):
        agent, runner = agent_of(model, tools, handoffs=[other]), GuardedRunner(guard_of(tools))
        if mode == "stream":
            result, _ = await listened(runner, agent)
        else:
            result = await runner.run(agent, "Go.", run_config=QUIET)
        answers = [one["content"] for one in server.bodies[-1]["messages"] if one["role"] == "tool"]
        names = [
            call["function"]["name"] for one in server.bodies[-1]["messages"] for call in one.get("tool_calls", ())
        ]
    assert result.last_agent.name == "shop"
    assert "cut" in answers[0]
    assert names == ["transfer_to_cashier"]
