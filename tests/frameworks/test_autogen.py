"""What is special about AutoGen: one client and one workbench per agent, handoffs, streams, teams, cancellation."""

import asyncio
import signal
import subprocess
import sys

import pytest

pytest.importorskip("autogen_agentchat", reason="run by make frameworks")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.models import AssistantMessage, CreateResult, ModelInfo, RequestUsage, SystemMessage, UserMessage
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from model_server import ModelServer, Turn
from pydantic import BaseModel

import pokayoke
from pokayoke.adapters.autogen import calls, contracts, guarded, message
from pokayoke.stores.values import RecordQuery

INFO = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=True)
REFUND = ("refund", '{"order": "A1"}')


def asks(*wanted, tokens=0, thought=None):
    """A reply that calls tools: names and argument texts, with ids that begin anew in each reply."""
    content = [FunctionCall(f"call_{number}", text, name) for number, (name, text) in enumerate(wanted, 1)]
    usage = RequestUsage(prompt_tokens=tokens, completion_tokens=0)
    return CreateResult(finish_reason="function_calls", content=content, usage=usage, cached=False, thought=thought)


class Client(ReplayChatCompletionClient):
    """AutoGen's own scripted client, which also keeps what it was asked."""

    def __init__(self, *replies):
        super().__init__(list(replies), model_info=INFO)
        self.seen = []

    async def create(self, messages, **more):
        self.seen.append((list(messages), list(more.get("tools", ()))))
        return await super().create(messages, **more)


def made(log):
    """Two tools over a log: a write and a read."""

    async def refund(order: str) -> str:
        """Refund an order."""
        log.append(order)
        return f"refunded {order}"

    async def find(order: str) -> str:
        """Find an order."""
        return f"{order} is open"

    return [refund, find]


def guard_of(tools, config=None, store=None):
    """A guard over tools."""
    given = contracts(tools)
    fields = {contract.name: {"output_schema": "text"} for contract in given}
    reads = {"find"} & {*fields}
    return pokayoke.Guard(contracts(tools, reads=reads, fields=fields), config=config, store=store)


def agent_of(guard, client, tools, run_id=None, name="shop", model_context=None, **options):
    """A guarded agent."""
    parts = guarded(guard, client, tools, run_id=run_id, model_context=model_context)
    return AssistantAgent(name, **{**parts, "max_tool_iterations": 10, **options})


async def said(agent, task="Refund A1."):
    """The last word."""
    return (await agent.run(task=task)).messages[-1].content


async def test_the_model_reads_the_name_that_it_wrote():
    """The next request has the unknown name and its arguments as they were, and every call has an id of its own."""
    client = Client(asks(("invent", '{"a": 1}')), asks(REFUND), "Done.")
    tools = made([])
    assert await said(agent_of(guard_of(tools), client, tools)) == "Done."
    asked = [call for one in client.seen[-1][0] if isinstance(one, AssistantMessage) for call in one.content]
    assert [(call.id, call.name, call.arguments) for call in asked] == [
        ("call_1", "invent", '{"a": 1}'),
        ("call_1_2", *REFUND),
    ]


async def test_the_tool_that_answers_unknown_names_is_never_offered():
    """AutoGen has to list it while such a call waits; the model is offered its own tools only."""
    client = Client(asks(("invent", "{}")), asks(REFUND), "Done.")
    tools = made([])
    await said(agent_of(guard_of(tools), client, tools))
    assert [
        [tool.name if hasattr(tool, "name") else tool["name"] for tool in offered] for _, offered in client.seen
    ] == [["refund", "find"]] * 3


async def test_a_key_that_stands_twice_is_seen():
    """AutoGen's parser would take the last value without a word; the write does not run."""
    log = []
    tools = made(log)
    client = Client(asks(("refund", '{"order": "A1", "order": "B2"}')), "Done.")
    await said(agent_of(guard_of(tools), client, tools))
    assert not log


async def test_after_two_bad_rounds_the_tools_go_and_the_instruction_stays_out_of_the_history():
    """The instruction is a system message of that request, beside the agent's own, and the context never holds it."""
    client = Client(asks(("invent", "{}")), asks(("invent", "{}")), "I could not.")
    tools = made([])
    agent = agent_of(guard_of(tools), client, tools)
    assert await said(agent) == "I could not."
    messages, offered = client.seen[-1]
    assert not offered
    assert "Tools are off" in messages[1].content
    assert isinstance(messages[1], SystemMessage)
    assert "Tools are off" not in str(await agent.model_context.get_messages())


async def test_each_task_is_a_turn():
    """The next task has its tools again; an equal write in the same conversation is the same effect."""
    log = []
    tools = made(log)
    stuck = [asks(("invent", "{}")), asks(("invent", "{}")), "No."]
    agent = agent_of(guard_of(tools), Client(*stuck, asks(REFUND), "Done.", asks(REFUND), "Again."), tools)
    assert [await said(agent), await said(agent), await said(agent)] == ["No.", "Done.", "Again."]
    assert log == ["A1"]


async def test_a_result_that_is_the_last_word_is_the_plain_value_and_a_failure_says_so():
    """With the default of one iteration, the summary is what the user reads: no page, no markup, no exception's text."""

    async def refund(order: str) -> str:
        """Refund an order."""
        if order == "B2":
            raise RuntimeError("secret")
        return "<!doctype html><html>502</html>" if order == "C3" else f"refunded {order}"

    fields = {"refund": {"output_schema": {"type": "string"}, "content_type": "application/json"}}
    for order, text in (("A1", "refunded A1"), ("B2", "refund did not succeed: "), ("C3", "refund did not succeed: ")):
        guard = pokayoke.Guard(contracts([refund], fields=fields))
        client = Client(asks(("refund", f'{{"order": "{order}"}}')))
        last = await said(agent_of(guard, client, [refund], max_tool_iterations=1))
        assert last.startswith(text)
        assert "secret" not in last
        assert "502" not in last


async def test_a_reflection_that_calls_tools_is_answered_with_words():
    """`reflect_on_tool_use` raises by itself if the model calls a tool once more; here its thought counts, or the fallback."""
    log = []
    tools = made(log)
    client = Client(asks(REFUND), asks(REFUND, thought="It is refunded."))
    agent = agent_of(guard_of(tools), client, tools, max_tool_iterations=1, reflect_on_tool_use=True)
    assert await said(agent) == "It is refunded."
    assert log == ["A1"]


async def test_a_typed_answer_is_left_alone():
    """A note beside the JSON of an `output_content_type` would break it."""

    class Answer(BaseModel):
        done: bool

    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("no")

    client = Client(asks(REFUND), '{"done": false}')
    agent = agent_of(guard_of([refund]), client, [refund], output_content_type=Answer)
    assert (await said(agent)) == Answer(done=False)


async def test_what_is_not_known_to_have_happened_is_said_beside_the_last_word():
    """The model claims a refund that nobody knows of; the user reads that."""

    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("connection lost")

    agent = agent_of(guard_of([refund]), Client(asks(REFUND), "Done."), [refund])
    assert await said(agent) == "Done.\n\n[It is not known whether refund took effect.]"


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
async def test_a_tool_that_is_denied_is_not_shown(mode):
    """It is not offered, and a call of it does not run; monitor mode offers and runs what it would deny."""
    log = []
    tools, client = made(log), Client(asks(REFUND), "Done.")
    await said(agent_of(guard_of(tools, config={"mode": mode, "access": {"deny": ["refund"]}}), client, tools))
    shown = mode == "monitor"
    assert [tool["name"] for tool in client.seen[0][1]] == (["refund", "find"] if shown else ["find"])
    assert log == (["A1"] if shown else [])


async def test_a_demand_for_a_tool_that_is_denied_is_dropped():
    """Providers refuse a request that demands a tool it does not offer; the words for all of them stay."""
    functions = made([])
    refund, find = tools = [FunctionTool(function, description="") for function in functions]
    client, heard = Client("Done.", "Done.", "Done."), []
    inner, client.create = client.create, lambda messages, **more: heard.append(more) or inner(messages, **more)
    asked = guarded(guard_of(functions, config={"access": {"deny": ["refund"]}}), client, functions)["model_client"]
    for choice in (refund, find, "required"):
        await asked.create([UserMessage(content="Go.", source="user")], tools=tools, tool_choice=choice)
    assert [more["tool_choice"] for more in heard] == ["auto", find, "required"]


async def test_a_result_that_was_too_long_can_be_read_on():
    """The tool that pages is listed from then on, and answered by the guard."""

    async def find(order: str) -> str:
        """Find an order."""
        return "x" * 60_000

    more = ("read_more", '{"handle": "out-1", "offset": 50000}')
    client = Client(asks(("find", '{"order": "A"}')), asks(more), "Ok.")
    assert await said(agent_of(guard_of([find]), client, [find])) == "Ok."
    assert [tool["name"] for tool in client.seen[1][1]] == ["find", "read_more"]
    assert "characters 50000 to" in client.seen[2][0][-1].content[0].content


async def test_a_call_that_needs_approval_is_answered_and_runs_once_approved():
    """AutoGen has no interrupt: the run ends, the question waits in the store, and the next task finds the answer."""
    log = []
    tools = made(log)
    guard = guard_of(tools, {"approvals": {"tools": ["refund"]}})
    agent = agent_of(guard, Client(asks(REFUND), "It waits for approval.", asks(REFUND), "Done."), tools)
    assert (await said(agent)).startswith("It waits for approval.")
    assert not log
    guard.approvals.approve(guard.approvals.list()[0].id, by="bob")
    assert await said(agent, "Go on.") == "Done."
    assert log == ["A1"]


async def test_a_callback_can_ask_while_the_agent_waits():
    """`on_ask` may await a person; the agent goes on with the answer."""
    log = []
    tools = made(log)

    async def ask(question):
        await asyncio.sleep(0)
        return question.arguments == {"order": "A1"}

    fields = {one.__name__: {"output_schema": "text"} for one in tools}
    config = {"approvals": {"tools": ["refund"]}}
    guard = pokayoke.Guard(contracts(tools, fields=fields), config=config, on_ask=ask)
    assert await said(agent_of(guard, Client(asks(REFUND), "Done."), tools)) == "Done."
    assert log == ["A1"]


# -- workbenches, tools of tools, teams -----------------------------------------------------------------


async def test_the_tools_of_workbenches_are_guarded_too():
    """A workbench behind the guard is started by nobody else, its texts of exceptions stay here, and names are enough."""
    log = []
    refund, find = made(log)

    async def explode(order: str) -> str:
        """Explode."""
        raise RuntimeError("secret")

    bench = StaticWorkbench([FunctionTool(one, description="x") for one in (refund, explode)])
    listed = await bench.list_tools()
    guard = guard_of([*listed, find])
    client = Client(asks(REFUND, ("explode", "{'order': 'A1',}"), ("find", '{"order": "A1"}')), asks(REFUND), "Done.")
    parts = guarded(guard, client, [find, bench])
    await AssistantAgent("shop", **parts, max_tool_iterations=5).run(task="Go.")
    answers = [one.content for one in client.seen[1][0][-1].content]
    assert log == ["A1"]
    assert "refunded A1" in answers[0]
    assert "secret" not in str(client.seen)
    assert "A1 is open" in answers[2]
    with pytest.raises(pokayoke.errors.UsageError, match="refund has no contract"):
        await AssistantAgent("shop", **guarded(guard_of([find]), Client("x"), bench)).run(task="Go.")


async def test_what_an_agent_as_a_tool_says_is_streamed_and_its_result_is_checked():
    """Events of the inner agent come through; the result goes through the guard."""
    log = []
    tools = made(log)
    inner = agent_of(guard_of(tools), Client(asks(REFUND), "Refunded."), tools, name="cashier")
    tool = AgentTool(inner)
    client = Client(asks(("cashier", '{"task": "Refund A1."}')), "All done.")
    agent = agent_of(guard_of([tool]), client, [tool])
    seen = [type(item).__name__ async for item in agent.run_stream(task="Go.")]
    assert seen.count("ToolCallExecutionEvent") == 2
    assert log == ["A1"]
    assert "Refunded." in client.seen[1][0][-1].content[0].content


async def test_agents_of_a_team_hand_over_and_a_cut_message_hands_nobody_over():
    """A handoff is AutoGen's, unless its message was cut: then it is refused like any call."""

    async def play(stop):
        tools = made([])
        turns = [Turn(calls=(("call_1", "transfer_to_user", "{}"),), stop=stop), Turn("I stay.")]
        with ModelServer(turns) as server:
            client = OpenAIChatCompletionClient(model="m", base_url=f"{server.url}/v1", api_key="k", model_info=INFO)
            agent = agent_of(guard_of(tools), client, tools, handoffs=["user"])
            team = RoundRobinGroupChat(
                [agent], termination_condition=HandoffTermination("user") | MaxMessageTermination(2)
            )
            result = await team.run(task="Go.")
            await client.close()
            return type(result.messages[-1]).__name__, len(server.bodies)

    assert await play(None) == ("HandoffMessage", 1)
    assert await play("length") == ("TextMessage", 2)


@pytest.mark.parametrize(("run_id", "times"), [(None, 2), ("thread-1", 1)])
async def test_an_agent_that_was_reset_begins_a_new_run(run_id, times):
    """What a conversation did is no answer to the next one, unless both have the user's own id."""
    log = []
    tools = made(log)
    client = Client(*[asks(REFUND), "Done."] * 2)
    context = BufferedChatCompletionContext(20)
    agent = agent_of(guard_of(tools), client, tools, run_id=run_id, model_context=context)
    await said(agent)
    await agent.on_reset(CancellationToken())
    assert not await context.get_messages()
    await said(agent)
    assert len(log) == times


@pytest.mark.parametrize(("run_id", "times"), [(None, 2), ("thread-1", 1)])
async def test_an_agent_that_loads_another_conversation_begins_a_new_run(run_id, times):
    """What one customer's conversation did is no answer to another's, unless both have the user's own id."""
    log = []
    tools = made(log)
    guard = guard_of(tools)
    other = await agent_of(guard, Client(), tools).save_state()
    agent = agent_of(guard, Client(*[asks(REFUND), "Done."] * 2), tools, run_id=run_id)
    await said(agent)
    await agent.load_state(other)
    await said(agent)
    assert len(log) == times


async def test_a_context_may_go_from_agent_to_agent():
    """Each request of an application makes its agent anew over the same context; only the latest one listens to it."""
    log, context = [], BufferedChatCompletionContext(buffer_size=10)
    tools = made(log)
    guard = guard_of(tools)
    for _ in range(1_500):
        guarded(guard, None, (), model_context=context)
    agent = agent_of(guard, Client(*[asks(REFUND), "Done."] * 2), tools, model_context=context)
    await said(agent)
    await agent.on_reset(CancellationToken())
    await said(agent)
    assert log == ["A1", "A1"]


async def test_conversations_side_by_side_do_not_mix():
    """Ten agents over one guard, with equal ids and arguments: each refunds once, and no stuck one stops another."""
    log = []
    tools = made(log)
    guard = guard_of(tools)

    def client(number):
        return (
            Client(asks(("invent", "{}")), asks(("invent", "{}")), "No.") if number % 2 else Client(asks(REFUND), "Ok.")
        )

    agents = [agent_of(guard, client(number), tools) for number in range(10)]
    assert await asyncio.gather(*map(said, agents)) == ["Ok.", "No."] * 5
    assert log == ["A1"] * 5


async def test_a_cancelled_token_cancels_the_run():
    """The tool is cancelled and the model is not asked again; the write that was running is in doubt."""
    begun = asyncio.Event()

    async def refund(order: str) -> str:
        """Refund an order."""
        begun.set()
        await asyncio.sleep(30)

    token = CancellationToken()
    guard = guard_of([refund])
    agent = agent_of(guard, Client(asks(REFUND), "never"), [refund])
    running = asyncio.ensure_future(agent.run(task="Refund A1.", cancellation_token=token))
    await begun.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 20)
    assert [record.state for record in guard.store.records(RecordQuery())] == ["in_doubt"]


# -- streams ----------------------------------------------------------------------------------------------


async def streamed(turns, tools, **options):
    """The last word of a streamed run at AutoGen's own client, its pieces, and what the model was asked."""
    with ModelServer(turns) as server:
        client = OpenAIChatCompletionClient(model="m", base_url=f"{server.url}/v1", api_key="k", model_info=INFO)
        agent = agent_of(guard_of(tools), client, tools, model_client_stream=True, **options)
        items = [item async for item in agent.run_stream(task="Refund A1.")]
        await client.close()
        pieces = [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
        return items[-1].messages[-1].content, pieces, server


async def test_text_streams_as_it_comes_and_a_note_comes_last():
    """Pieces are passed on, and the note about a write that is not known to have happened is the last of them."""

    async def refund(order: str) -> str:
        """Refund an order."""
        raise RuntimeError("connection lost")

    text, pieces, _ = await streamed([Turn(calls=(("call_1", *REFUND),)), Turn("I refunded the order.")], [refund])
    assert text == "".join(pieces)
    assert len(pieces) > 3
    assert pieces[-1] == "\n\n[It is not known whether refund took effect.]"


async def test_a_stream_that_breaks_off_runs_none_of_its_calls():
    """A stream that ends without a reason ended too early, although what came of the call may parse."""
    log = []
    _, _, server = await streamed([Turn(calls=(("call_1", *REFUND),), breaks=7), Turn("Done.")], made(log))
    answers = [one["content"] for one in server.bodies[-1]["messages"] if one["role"] == "tool"]
    assert not log
    assert "cut" in answers[0]


class Closing(BaseModel):
    """A typed last word."""

    said: str


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (Turn(calls=(("call_1", *REFUND),), breaks=7), "cut"),
        (Turn(calls=(("call_1", *REFUND),), stop="length"), "cut"),
        (Turn(calls=(("call_1", "refund", '{"order": }'),)), "nothing stands where"),
    ],
)
async def test_a_typed_stream_is_heard_too(turn, told):
    """Where the answer has a type, the SDK parses by itself and raises; the guard answers the calls instead."""
    log = []
    tools = [FunctionTool(tool, tool.__doc__, strict=True) for tool in made(log)]
    last, _, server = await streamed([turn, Turn('{"said": "Done."}')], tools, output_content_type=Closing)
    answers = [one["content"] for one in server.bodies[-1]["messages"] if one["role"] == "tool"]
    assert (last, log) == (Closing(said="Done."), [])
    assert told in answers[0]


# -- building, restarting ---------------------------------------------------------------------------------


def test_a_tool_without_a_contract_is_said_at_once():
    """It is the programmer's mistake."""
    refund, find = made([])
    with pytest.raises(pokayoke.errors.UsageError, match="refund has no contract"):
        guarded(guard_of([find]), Client(), [refund, find])


def test_a_guarded_agent_is_not_dumped():
    """What is read back from a dump would not be guarded."""
    tools = made([])
    with pytest.raises(pokayoke.errors.UsageError, match="cannot be dumped"):
        agent_of(guard_of(tools), Client(), tools).dump_component()


def test_without_autogen_the_extra_is_named():
    """A missing extra is said in words that can be acted on."""
    code = (
        "import pokayoke.errors, sys; sys.modules['autogen_core'] = None\n"
        "try:\n    import pokayoke.adapters.autogen\n"
        "except pokayoke.errors.MissingExtraError as error:\n    print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pokayoke[autogen]" in told.stdout


def test_calls_and_message_are_for_loops_of_ones_own():
    """A reply's calls go through a run by hand, and the outcome becomes a result."""
    with guard_of(made([])).run() as run:
        outcome = run.call(calls(asks(("find", "{'order': 'A1'}")), run)[0], invoke=lambda arguments: "open")
    result = message(outcome)
    assert (result.call_id, result.name, result.is_error) == ("call_1", "find", False)


async def test_tokens_are_reported():
    """What the reply counts is what a budget counts."""
    tools = made([])
    client = Client(asks(("find", '{"order": "A"}'), tokens=1_000), "Done.")
    await said(agent_of(guard_of(tools, {"budgets": {"tokens": 500}}), client, tools))
    assert "budget" in client.seen[1][0][-1].content[0].content.lower()


async def test_a_conversation_that_was_saved_goes_on_with_fresh_ids_and_no_second_write(tmp_path):
    """State loaded into a new agent under the same id: the write is replayed, and no id of the history comes again."""
    store = f"sqlite:///{tmp_path / 'ledger.db'}"
    pokayoke.open_store(store, create=True).close()
    log = []
    tools = made(log)
    guard = guard_of(tools, store=store)
    first = agent_of(guard, Client(asks(REFUND), "Done."), tools, run_id="thread-7")
    await said(first)
    client = Client(asks(REFUND), "Again.")
    second = agent_of(guard, client, tools, run_id="thread-7")
    await second.load_state(await first.save_state())
    assert await said(second) == "Again."
    assert log == ["A1"]
    asked = [
        call.id
        for one in client.seen[-1][0]
        if isinstance(one, AssistantMessage) and not isinstance(one.content, str)
        for call in one.content
    ]
    assert len(asked) == len({*asked}) == 2
    guard.close()


KILLED = """
import asyncio, os, signal, sys
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
import pokayoke
from pokayoke.adapters.autogen import contracts, guarded

async def refund(order: str) -> str:
    with open(sys.argv[2], "a") as log:
        log.write(order)
    os.kill(os.getpid(), signal.SIGKILL)

guard = pokayoke.Guard(contracts([refund], fields={"refund": {"output_schema": "text"}}), store=sys.argv[1])
info = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=True)
call = CreateResult(finish_reason="function_calls", content=[FunctionCall("c", '{"order": "A1"}', "refund")],
                    usage=RequestUsage(0, 0), cached=False)
client = ReplayChatCompletionClient([call], model_info=info)
asyncio.run(AssistantAgent("shop", **guarded(guard, client, [refund], run_id="thread-1")).run(task="Refund A1."))
"""


def test_a_process_that_is_killed_in_mid_write_does_not_write_again(tmp_path):
    """Another process asks for the same write in the same conversation: it is in doubt, and the effect exists once."""
    store, log, program = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "log", tmp_path / "program.py"
    pokayoke.open_store(store, create=True).close()
    program.write_text(KILLED, encoding="utf-8")
    killed = subprocess.run([sys.executable, program, store, log], capture_output=True, check=False, timeout=55)
    assert (killed.returncode, log.read_text(encoding="utf-8")) == (-signal.SIGKILL, "A1"), killed.stderr

    happened = []
    tools = made(happened)
    guard = guard_of(tools, store=store)
    agent = agent_of(guard, Client(asks(REFUND), "Done."), tools, run_id="thread-1")
    assert asyncio.run(said(agent)) == "Done.\n\n[It is not known whether refund took effect.]"
    assert not happened
    guard.close()
