"""What is special about CrewAI; the scenarios that all frameworks share are played elsewhere."""

import asyncio
import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("crewai") is None:
    pytest.skip("run by make frameworks", allow_module_level=True)

# Before the import: it reports what it is used for, and asks whether it may.
os.environ.update(
    OTEL_SDK_DISABLED="true",
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_DISABLE_TRACKING="true",
    CREWAI_TRACING_ENABLED="false",
    CREWAI_DISABLE_VERSION_CHECK="true",
    CREWAI_TESTING="true",
    CREWAI_STORAGE_DIR=tempfile.mkdtemp(prefix="crewai-"),
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own imports are not free of them
    import crewai  # noqa: F401 - the first import of it

from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import register_before_tool_call_hook, unregister_before_tool_call_hook
from crewai.tools import BaseTool, tool
from crewai.tools.tool_failure import ToolFailure
from framework_shop import Shop
from job import Job
from model_server import STREAMS, ModelServer, Turn
from pydantic import BaseModel, field_validator
from runner import load

import pokayoke
from pokayoke.adapters.crewai import calls, contracts, guarded, message
from pokayoke.errors import MissingExtraError, UsageError

HERE = Path(__file__).resolve().parent
REFUND = '{"order_id": "A1", "amount": 5}'
# What it leaves behind is its own: event loops of threads, and files of its storage.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning:crewai"
)


class Scripted(BaseLLM):
    """A model in this process. A turn is a text, a list of (id, name, arguments), or an exception."""

    native: bool = True

    def __init__(self, *turns, native=True, **kwargs):
        super().__init__(model="scripted", native=native, **kwargs)
        self.additional_params.update(turns=list(turns), seen=[])

    def call(self, messages, tools=None, callbacks=None, available_functions=None, **kwargs):
        offered = [one["function"]["name"] for one in tools or ()]
        self.seen.append({"messages": json.loads(json.dumps(messages)), "tools": offered, "given": tools})
        turn = self.additional_params["turns"][min(len(self.seen), len(self.additional_params["turns"])) - 1]
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, str):
            return turn
        return [
            {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}
            for ident, name, text in turn
        ]

    @property
    def seen(self):
        """What it was asked."""
        return self.additional_params["seen"]

    @property
    def read(self):
        """The results that the latest request held."""
        return [one["content"] for one in self.seen[-1]["messages"] if one["role"] == "tool"]

    def supports_function_calling(self):
        return self.native


@pytest.fixture
def done():
    """What the tools did."""
    return []


@pytest.fixture
def tools(done):
    """A read and a write."""

    @tool("Get Order")
    def get_order(order_id: str) -> dict:
        """Look up an order."""
        done.append(("get_order", order_id))
        return {"order_id": order_id, "qty": 2}

    @tool
    def refund(order_id: str, amount: int) -> dict:
        """Refund an order."""
        done.append(("refund", order_id, amount))
        return {"refunded": order_id}

    return [get_order, refund]


def crew_of(llm, tools, *, prompt="Refund A1.", task=None, **options):
    """A crew of one agent with one task."""
    agent = Agent(role="Clerk", goal="Help.", backstory="A shop.", llm=llm, tools=tools, **options)
    job = Task(description=prompt, expected_output="An answer.", agent=agent, **(task or {}))
    return Crew(agents=[agent], tasks=[job])


@contextlib.contextmanager
def hooked(hook):
    """Have CrewAI ask a hook before each call of a tool."""
    register_before_tool_call_hook(hook)
    try:
        yield
    finally:
        unregister_before_tool_call_hook(hook)


def guard_of(tools, **options):
    """A guard of the two tools."""
    fields = options.pop("fields", None)
    reads = ["get_order"] if any(one.name == "Get Order" for one in tools) else []
    return pokayoke.Guard(contracts(tools, reads=reads, fields=fields), **options)


# -- adopting it -------------------------------------------------------------------------------------


def test_five_lines_are_enough(tools, done):
    """Two imports, a guard and two arguments make an agent refuse to do a write twice."""
    model = Scripted([("call_1", "refund", REFUND)], [("call_2", "refund", REFUND)], "Done.")
    guard = pokayoke.Guard(contracts(tools, reads=["get_order"]))
    llm, tools = guarded(guard, model, tools)
    agent = Agent(role="Clerk", goal="Help.", backstory="A shop.", llm=llm, tools=tools)
    task = Task(description="Refund A1.", expected_output="An answer.", agent=agent)
    assert Crew(agents=[agent], tasks=[task]).kickoff().raw == "Done."
    assert done == [("refund", "A1", 5)]
    assert "already" in model.read[-1]


def test_without_the_framework_the_error_says_what_to_install():
    """An import where the framework is missing names the extra."""
    code = """
        import sys
        sys.modules["crewai"] = None
        import pokayoke.errors
        try:
            import pokayoke.adapters.crewai
        except pokayoke.errors.MissingExtraError as error:
            print(error)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "pokayoke[crewai]" in out.stdout
    assert issubclass(MissingExtraError, ImportError)


def test_contracts_have_the_names_the_model_reads(tools):
    """A tool called `Get Order` is `get_order`; a name that no tool has is an error, and so is a model's name."""
    made = contracts(tools, reads=["get_order"], destructive=["refund"])
    assert [(one.name, one.effect, one.description) for one in made] == [
        ("get_order", "read", "Look up an order."), ("refund", "destructive", "Refund an order."),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="Get Order"):
        contracts(tools, reads=["Get Order"])
    with pytest.raises(UsageError, match="BaseLLM"):
        guarded(guard_of(tools), "gpt-4o", tools)


def test_calls_and_message_serve_a_loop_of_your_own(tools, done):
    """The calls of a reply go to a run as they were written, and its outcomes come back as messages."""
    model = Scripted([("c1", "refund", '{"order_id": "A1"')])
    with guard_of(tools).run() as run:
        (call,) = calls(model.call([{"role": "user", "content": "Hi"}]), run)
        assert (call.id, call.name, call.arguments) == ("c1", "refund", '{"order_id": "A1"')
        answer = message(run.call(call))
    assert (answer["role"], answer["tool_call_id"], answer["name"]) == ("tool", "c1", "refund")
    assert "not used" in answer["content"]


def test_the_model_and_the_tools_stay_as_they_are(tools, done):
    """What is guarded is a copy: the model itself and its class behave as before."""
    model = Scripted("Hello.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    assert isinstance(llm, Scripted)
    assert type(model) is Scripted
    assert llm.supports_function_calling()
    assert [one.name for one in wrapped[:2]] == ["Get Order", "refund"]
    assert tools[0].run(order_id="A1") == {"order_id": "A1", "qty": 2}


# -- the history ---------------------------------------------------------------------------------------


def test_the_model_reads_its_own_words_again(tools, done):
    """The history holds names and texts as the model wrote them, and nothing of what the adapter added."""
    first = [
        ("c1", "refund", '{"order_id":   "A1", "amount": 5}'),
        ("c1", "fetchRefunds", '{"x": 1}'),
        ("c2", "get_order", "{'order_id': 'B2',}"),
    ]
    model = Scripted(first, [("c3", "get_order", '{"order_id": "C3"}')], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    crew_of(llm, wrapped).kickoff()
    for request in model.seen:
        assert "pokayoke" not in json.dumps(request)
    asked, *answers = model.seen[1]["messages"][-4:]
    assert [(one["id"], one["function"]["name"]) for one in asked["tool_calls"]] == [
        ("c1", "refund"), ("c1_2", "fetchRefunds"), ("c2", "get_order"),
    ]  # fmt: skip
    texts = [one["function"]["arguments"] for one in asked["tool_calls"]]
    assert texts == [first[0][2], first[1][2], '{"order_id": "B2"}']
    assert [one["tool_call_id"] for one in answers] == ["c1", "c1_2", "c2"]
    assert [one["name"] for one in answers] == ["refund", "fetchRefunds", "get_order"]
    assert model.seen[2]["messages"][: len(model.seen[1]["messages"])] == model.seen[1]["messages"]


def test_a_large_output_can_be_paged_through():
    """Once an output is too large the model is offered a tool to page through it, and it works."""

    @tool
    def read_log(name: str) -> str:
        """Read a log."""
        return "\n".join(f"line {number}" for number in range(20_000))

    guard = guard_of([read_log], fields={"read_log": {"output_schema": "text", "max_chars": 10**6}})
    pager = guard.pager.name
    page = '{"handle": "out-1", "offset": 1000, "limit": 100}'
    model = Scripted([("c1", "read_log", '{"name": "a"}')], [("c2", pager, page)], "Done.")
    llm, wrapped = guarded(guard, model, [read_log])
    crew_of(llm, wrapped).kickoff()
    assert model.seen[0]["tools"] == ["read_log"]
    assert model.seen[1]["tools"] == ["read_log", pager]
    assert "line 1" in model.read[1]
    assert len(model.read[0]) < 10_000


def test_a_hook_of_the_user_may_still_change_arguments(tools, done):
    """What a hook puts into the arguments is what runs."""

    def hook(context):
        if "amount" in context.tool_input:
            context.tool_input["amount"] = 3

    model = Scripted([("c1", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    with hooked(hook):
        crew_of(llm, wrapped).kickoff()
    assert done == [("refund", "A1", 3)]


@pytest.mark.parametrize(
    "written", ['{"order_id": "A1", "amount": "5"}', f'{{"arguments": {REFUND}}}', "{'order_id': 'A1', 'amount': 5,}"]
)
@pytest.mark.parametrize("stops", [True, False])
def test_a_hook_of_the_user_judges_what_would_run(tools, done, written, stops):
    """What the guard puts right behind a hook is what the hook was asked about; the history keeps the model's text."""
    asked = []

    def hook(context):
        asked.append({key: context.tool_input.get(key) for key in ("order_id", "amount")})
        return False if stops else None

    model = Scripted([("c1", "Refund", written)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    with hooked(hook):
        crew_of(llm, wrapped).kickoff()
    assert asked == [{"order_id": "A1", "amount": 5}]
    assert done == ([] if stops else [("refund", "A1", 5)])


# -- runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"order_id": "A1", "amount": 3}])
def test_a_cut_message_of_the_litellm_route_runs_nothing(tools, done, more):
    """That class of CrewAI's sends no event about a reply with calls; the reason is taken where it reads it.

    Nor does it run with what a hook of the user makes of it.
    """

    class Routed(Scripted):
        def call(self, messages, tools=None, **kwargs):
            said = super().call(messages, tools, **kwargs)
            self._extract_finish_reason_and_response_id("stop" if isinstance(said, str) else "length")
            return said

        @staticmethod
        def _extract_finish_reason_and_response_id(reply):
            return reply, "id"

    model = Routed([("c1", "refund", REFUND)], "It was cut.")
    llm, wrapped = guarded(guard_of(tools), model, tools)

    def hook(context):
        context.tool_input.update(more)

    with hooked(hook):
        assert crew_of(llm, wrapped).kickoff().raw.startswith("It was cut.")
    assert done == []
    assert "cut" in model.read[0]


class Rebuilt(Scripted):
    """A model that is copied as CrewAI's `LLM` is: made anew from its settings."""

    def __copy__(self):
        made = Scripted()
        made.additional_params = self.additional_params
        return made

    def __deepcopy__(self, memo=None):
        return copy.copy(self)


@pytest.mark.parametrize("kind", [Scripted, Rebuilt])
def test_a_copy_of_a_crew_is_guarded(tools, done, kind):
    """`kickoff_for_each` copies a crew with its models: each copy is guarded, however its model is copied."""
    model = kind([("c1", "refund", REFUND)], [("c2", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    assert [one.raw for one in crew_of(llm, wrapped).kickoff_for_each(inputs=[{"o": "A1"}])] == ["Done."]
    assert done == [("refund", "A1", 5)]
    assert type(copy.deepcopy(llm)).__name__.startswith("Guarded")


def test_an_attempt_that_crew_ai_starts_over_repeats_no_write(tools, done):
    """An error of the model makes CrewAI do the task again without its history: the write of before is replayed."""
    model = Scripted([("c1", "refund", REFUND)], RuntimeError("connection lost"), [("c1", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    assert crew_of(llm, wrapped).kickoff().raw == "Done."
    assert done == [("refund", "A1", 5)]
    assert "already" in model.read[-1]


@pytest.mark.parametrize("name", [None, "ticket-7"])
def test_an_attempt_that_delegates_again_repeats_no_write(tools, done, name):
    """CrewAI makes a new task of each delegation; what it says to the same coworker is what makes it the same."""
    ask = json.dumps({"task": "Refund A1.", "context": "Now.", "coworker": "Cashier"})
    delegates = [("c1", "delegate_work_to_coworker", ask)]
    guard = guard_of(tools)
    first, own = guarded(guard, Scripted(delegates, RuntimeError("lost"), delegates, "Done."), tools[:1], run_id=name)
    pays = [("c1", "refund", REFUND)]
    second, theirs = guarded(guard, Scripted(pays, "Paid.", pays, "Paid."), tools[1:], run_id=name)
    boss = Agent(role="Boss", goal="Help.", backstory="A shop.", llm=first, tools=own, allow_delegation=True)
    cashier = Agent(role="Cashier", goal="Pay.", backstory="A shop.", llm=second, tools=theirs)
    task = Task(description="Refund A1.", expected_output="An answer.", agent=boss)
    assert Crew(agents=[boss, cashier], tasks=[task]).kickoff().raw == "Done."
    assert done == [("refund", "A1", 5)]


def test_two_tasks_of_a_crew_are_two_runs_though_they_say_the_same(tools, done):
    """Without a name a task of a crew is itself: what it is told may be told twice."""
    pays = [("c1", "refund", REFUND)]
    llm, wrapped = guarded(guard_of(tools), Scripted(pays, "Paid.", pays, "Paid."), tools)
    crew = crew_of(llm, wrapped)
    crew.tasks.append(Task(description="Refund A1.", expected_output="An answer.", agent=crew.agents[0]))
    crew.kickoff()
    assert len(done) == 2


def test_each_input_of_a_named_kickoff_is_a_run(tools, done):
    """A task is about what its inputs say, those that it names: the same input again is the same run."""
    pays = [("c1", "refund", REFUND)]
    guard = guard_of(tools)
    for inputs in ({"order": "A1", "at": 1}, {"order": "B2", "at": 1}, {"order": "A1", "at": 2}):
        llm, wrapped = guarded(guard, Scripted(pays, "Paid."), tools, run_id="batch")
        crew_of(llm, wrapped, prompt="Look after {order}.").kickoff(inputs=inputs)
    assert len(done) == 2


def test_each_kickoff_is_a_run_and_each_name_is_one(tools, done):
    """The same crew may refund again when it is told again; under one name of yours it may not."""
    turns = [[("c1", "refund", REFUND)], "Done."]
    model = Scripted(*turns, *turns)
    llm, wrapped = guarded(guard_of(tools), model, tools)
    crew = crew_of(llm, wrapped)
    crew.kickoff()
    crew.kickoff()
    assert len(done) == 2
    guard = guard_of(tools)
    for _ in range(2):
        model = Scripted(*turns)
        llm, wrapped = guarded(guard, model, tools, run_id=lambda: "ticket-7")
        crew_of(llm, wrapped).kickoff()
    assert len(done) == 3
    assert "already" in model.read[-1]


def test_crews_beside_each_other_do_not_mix(done):
    """Eight threads over one guarded model: each is told its own results, and one that is stuck stops alone."""

    @tool
    def get_order(order_id: str) -> dict:
        """Look up an order."""
        return {"order_id": order_id}

    class Several(Scripted):
        """A model that reads from the prompt what to do."""

        def call(self, messages, tools=None, callbacks=None, available_functions=None, **kwargs):
            asked = next(one["content"] for one in messages if one["role"] == "user")
            number = int(asked.split("Order number ")[1].split(".")[0])
            results = [one["content"] for one in messages if one["role"] == "tool"]
            if not tools or (len(results) == 3 and number % 2):
                return " ".join(results)
            name = "get_order" if number % 2 else "no_such_tool"
            text = json.dumps({"order_id": f"{number}-{len(results)}"})
            return [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": text}}]

    llm, wrapped = guarded(pokayoke.Guard(contracts([get_order], reads=["get_order"])), Several(), [get_order])

    def one(number):
        return crew_of(llm, wrapped, prompt=f"Order number {number}.").kickoff().raw

    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(one, range(8)))
    for number, text in enumerate(texts):
        if number % 2:
            assert all(f'"{number}-{turn}"' in text for turn in range(3)), text
        else:
            assert text.count("no_such_tool") >= 2


async def test_kickoffs_of_every_kind(tools, done):
    """`kickoff_async`, `akickoff` and an agent's own `kickoff` are guarded alike."""
    for number, kind in enumerate(("kickoff_async", "akickoff", "agent")):
        model = Scripted([("c1", "refund", REFUND), ("c2", "fetch", "{}")], [("c3", "refund", REFUND)], "Done.")
        llm, wrapped = guarded(guard_of(tools), model, tools)
        crew = crew_of(llm, wrapped)
        if kind == "agent":
            ended = await asyncio.to_thread(crew.agents[0].kickoff, "Refund A1.")
        else:
            ended = await getattr(crew, kind)()
        assert ended.raw == "Done.", kind
        assert len(done) == number + 1, kind
        assert "already" in model.read[-1], kind


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
def test_a_tool_that_is_denied_is_not_shown(tools, done, mode):
    """It is not offered, and a call of it does not run; monitor mode offers and runs what it would deny."""
    model = Scripted([("c1", "refund", REFUND)], "Done.")
    guard = guard_of(tools, config={"mode": mode, "access": {"deny": ["refund"]}})
    llm, wrapped = guarded(guard, model, tools)
    crew_of(llm, wrapped).kickoff()
    shown = mode == "monitor"
    assert model.seen[0]["tools"] == (["get_order", "refund"] if shown else ["get_order"])
    assert len(done) == shown


def test_an_agent_whose_tools_are_all_denied_asks_without_any(tools):
    """The request then names neither tools nor a choice among them: providers refuse an empty list."""
    model = Scripted("Done.")
    guard = guard_of(tools[1:], config={"access": {"deny": ["refund"]}})
    llm, wrapped = guarded(guard, model, tools[1:])
    assert crew_of(llm, wrapped).kickoff().raw == "Done."
    assert model.seen[0]["given"] is None


def test_tenant_and_principal_come_from_task_and_agent(tools, done):
    """`who` is asked for each run, with both."""
    guard, seen = guard_of(tools, fields={"refund": {"approval": True}}), []

    def who(task, agent):
        seen.append((task.name, agent.role))
        return {"tenant": task.name, "principal": agent.role}

    for tenant in ("ann", "bob"):
        model = Scripted([("c1", "refund", REFUND)], "Done.")
        llm, wrapped = guarded(guard, model, tools, run_id=f"ticket-of-{tenant}", who=who)
        crew_of(llm, wrapped, task={"name": tenant}).kickoff()
    assert set(seen) == {("ann", "Clerk"), ("bob", "Clerk")}
    assert len(guard.approvals.list()) == 2


# -- tools of every kind -----------------------------------------------------------------------------------


def test_each_kickoff_of_a_name_acts_for_whoever_starts_it(tools, done):
    """The same task under the same name is the same run, with the rights of the one who asks this time."""
    guard = guard_of(tools, config={"access": {"roles": {"refund": ["clerk"]}}})
    asking = {"id": "ada", "roles": ["clerk"]}
    model = Scripted(
        [("c1", "refund", REFUND)], "Done.", [("c2", "refund", '{"order_id": "B2", "amount": 5}')], "Done."
    )
    llm, wrapped = guarded(guard, model, tools, run_id="ticket-7", who=lambda task, agent: {"principal": asking})
    crew_of(llm, wrapped).kickoff()
    asking = {"id": "bob", "roles": []}
    crew_of(llm, wrapped).kickoff()
    assert done == [("refund", "A1", 5)]
    assert model.seen[-1]["tools"] == ["get_order"]


def test_tools_of_classes_and_coroutines(done):
    """A class with a formatter, a coroutine, a limit of uses and a failure of the tool's own work as ever."""

    class Look(BaseTool):
        name: str = "look"
        description: str = "Look."

        def _run(self, place: str) -> dict:
            done.append(place)
            return {"place": place}

        def format_output_for_agent(self, raw_result):
            return f"at {raw_result['place']}"

    @tool
    async def wait(seconds: int) -> dict:
        """Wait."""
        await asyncio.sleep(0)
        return {"waited": seconds}

    @tool(max_usage_count=1)
    def once(word: str) -> str:
        """Say."""
        done.append(word)
        return word

    @tool
    def fail(word: str) -> str:
        """Fail."""
        return ToolFailure(message="The printer is out of paper.", code="E7")

    turn = [
        ("c1", "look", '{"place": "here"}'), ("c2", "wait", '{"seconds": 1}'), ("c3", "once", '{"word": "a"}'),
    ]  # fmt: skip
    more = [("c4", "once", '{"word": "b"}'), ("c5", "fail", '{"word": "x"}')]
    model = Scripted(turn, more, "Done.")
    own = [Look(), wait, once, fail]
    llm, wrapped = guarded(pokayoke.Guard(contracts(own, reads=["look", "wait", "fail"])), model, own)
    crew_of(llm, wrapped).kickoff()
    assert sorted(done) == ["a", "here"]
    look, waited, first, second, failed = model.read
    assert "at here" in look
    assert '"waited":1' in waited
    assert "a" in first
    assert "ToolNotStartedError" in second
    assert "The printer is out of paper. (code: E7)" in failed


def test_what_a_validator_of_the_user_turns_away_has_not_happened(done):
    """Rules that no JSON Schema can say are kept by CrewAI before the tool: its write is not in doubt."""

    class Even(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def even(cls, value):
            if value % 2:
                raise ValueError("odd")
            return value

    class Pay(BaseTool):
        name: str = "pay"
        description: str = "Pay."
        args_schema: type[BaseModel] = Even

        def _run(self, amount: int) -> str:
            done.append(amount)
            raise ValueError("no paper")

    model = Scripted([("c1", "pay", '{"amount": 3}')], [("c2", "pay", '{"amount": 4}')], "Done.")
    llm, wrapped = guarded(guard_of([Pay()]), model, [Pay()])
    text = crew_of(llm, wrapped).kickoff().raw
    assert done == [4]
    assert "ToolNotStartedError" in model.read[0]
    assert "ToolNotStartedError" not in model.read[1]
    assert "It is not known whether pay took effect" in text


def test_a_refused_call_is_no_answer(done):
    """A tool whose result ends the task ends it with a result only."""

    @tool(result_as_answer=True)
    def close(order_id: str) -> str:
        """Close an order."""
        done.append(order_id)
        return f"closed {order_id}"

    model = Scripted([("c1", "close", '{"order": "A1", "x": 1}')], [("c2", "close", '{"order_id": "A1"}')], "Done.")
    llm, wrapped = guarded(guard_of([close]), model, [close])
    assert crew_of(llm, wrapped).kickoff().raw == "closed A1"
    assert len(model.seen) == 2


def test_tools_of_crew_ai_itself_run_beside_guarded_ones(tools, done):
    """A delegation has no contract and runs as ever; of a message whose text is no call nothing runs."""
    ask = json.dumps({"question": "Is A1 paid?", "context": "Order A1.", "coworker": "Boss"})
    model = Scripted([("c1", "ask_question_to_coworker", ask), ("c2", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    boss = Agent(role="Boss", goal="Answer.", backstory="A shop.", llm=Scripted("It is paid."))
    clerk = Agent(role="Clerk", goal="Help.", backstory="A shop.", llm=llm, tools=wrapped, allow_delegation=True)
    task = Task(description="Refund A1.", expected_output="An answer.", agent=clerk)
    assert Crew(agents=[clerk, boss], tasks=[task]).kickoff().raw == "Done."
    assert "It is paid." in model.read[0]
    assert done == [("refund", "A1", 5)]


@pytest.mark.parametrize("where", ["agent", "task"])
def test_a_tool_beside_the_guarded_ones_has_to_be_named(tools, done, where):
    """A tool that was forgotten is the programmer's mistake; one in `unguarded` runs as CrewAI runs it."""
    pays = [("c1", "refund", REFUND)]
    for unguarded in ((), ("refund",)):
        llm, wrapped = guarded(guard_of(tools), Scripted(pays, "Paid."), tools, unguarded=unguarded)
        bare = [wrapped[0], tools[1]]
        crew = crew_of(llm, wrapped, task={"tools": bare}) if where == "task" else crew_of(llm, bare)
        if unguarded:
            assert crew.kickoff().raw == "Paid."
        else:
            with pytest.raises(UsageError, match="'refund'"):
                crew.kickoff()
            assert done == []
    assert len(done) == 1


# -- models without tool calls -------------------------------------------------------------------------


def act(name, text):
    """What such a model writes."""
    return f"Thought: I need to look.\nAction: {name}\nAction Input: {text}"


def test_calls_in_a_text_are_read_as_they_were_written(tools, done):
    """CrewAI repairs what such a model writes; the guard reads the text itself, and replays a write."""
    model = Scripted(
        act("get_order", "{'order_id': 'A1',}"),
        act("refund", '{"order_id": "A1" "amount": 5}'),
        act("refund", REFUND),
        act("refund", REFUND),
        "Thought: I am done.\nFinal Answer: Refunded.",
        native=False,
    )
    llm, wrapped = guarded(guard_of(tools), model, tools)
    assert crew_of(llm, wrapped).kickoff().raw.startswith("Refunded.")
    assert done == [("get_order", "A1"), ("refund", "A1", 5)]
    history = json.dumps(model.seen[-1])
    assert "already" in history
    assert "not used" in history


@pytest.mark.parametrize(("says", "ran"), [(False, []), (3, [("refund", "A1", 3)]), (None, [("refund", "A1", 5)])])
def test_hooks_of_the_user_know_the_tool_of_a_call_in_a_text(tools, done, says, ran):
    """A hook for one tool sees such a call with the arguments that will run, and may stop or change it."""
    asked = []

    def hook(context):
        if context.tool_name != "refund":
            return None
        asked.append((dict(context.tool_input), context.agent.role, context.task.description))
        if says == 3:
            context.tool_input["amount"] = "3"
        return False if says is False else None

    spelt = f'{{"arguments": {REFUND}}}'
    model = Scripted(act("Refund", spelt), "Thought: I am done.\nFinal Answer: Done.", native=False)
    llm, wrapped = guarded(guard_of(tools), model, tools)
    crew = crew_of(llm, wrapped)
    with hooked(hook):
        crew.kickoff()
    assert asked == [({"order_id": "A1", "amount": 5}, crew.agents[0].role, crew.tasks[0].description)]
    assert done == ran


def test_a_result_may_be_the_answer_to_a_model_without_tool_calls(done):
    """Such a tool keeps its name in the text, and is guarded all the same: the task ends with its result."""

    @tool(result_as_answer=True)
    def close(order_id: str) -> str:
        """Close an order."""
        done.append(order_id)
        return f"closed {order_id}"

    model = Scripted(act("close", "{'order_id': 'A1',}"), native=False)
    guard = guard_of([close])
    llm, wrapped = guarded(guard, model, [close])
    assert crew_of(llm, wrapped).kickoff().raw == "closed A1"
    assert done == ["A1"]


@pytest.mark.parametrize(("says", "ran"), [(False, []), ("A2", ["A2"]), (None, ["A1"])])
def test_a_hook_has_the_last_word_also_where_the_result_is_the_answer(done, says, ran):
    """CrewAI shows it its own reading of the text; it is asked again about the guard's, and what it changes there counts."""
    asked = []

    @tool(result_as_answer=True)
    def close(order_id: str) -> str:
        """Close an order."""
        done.append(order_id)
        return f"closed {order_id}"

    def hook(context):
        asked.append(context.tool_input["order_id"])
        if says:
            context.tool_input["order_id"] = says
        return False if says is False else None

    model = Scripted(act("close", "{'order_id': 'A1',}"), "Thought: I am done.\nFinal Answer: Stopped.", native=False)
    llm, wrapped = guarded(guard_of([close]), model, [close])
    with hooked(hook):
        crew_of(llm, wrapped).kickoff()
    assert asked == (["A1"] if says is False else ["A1", "A1"])
    assert done == ran


def test_a_guarded_tool_in_other_hands_is_guarded(tools, done):
    """Who runs such a tool by hand gets the guard's answer, in a run of its own each time."""
    _, wrapped = guarded(guard_of(tools), Scripted("x"), tools)
    assert '"refunded":"A1"' in wrapped[1].run(order_id="A1", amount=5)
    assert "amount" in wrapped[1].run(order_id="A1").message
    assert len(done) == 1


def test_a_stuck_model_without_tool_calls_ends_with_an_honest_answer(tools, done):
    """It cannot be denied its tools, but a call after that is replaced by the answer."""
    model = Scripted(act("refund", '{"order_id": "A1", "amount": "a lot"}'), native=False)
    llm, wrapped = guarded(guard_of(tools), model, tools)
    text = crew_of(llm, wrapped).kickoff().raw
    assert "could not finish" in text
    assert len(model.seen) == 3
    assert done == []


# -- approvals and people --------------------------------------------------------------------------------


def test_a_question_waits_in_the_guards_books(tools, done, tmp_path):
    """CrewAI has no way to wait: the model reads that a person is asked, and the next kickoff finds the answer."""
    store = f"sqlite:///{tmp_path}/ledger.db"
    pokayoke.open_store(store, create=True).close()
    guard = guard_of(tools, fields={"refund": {"approval": True}}, store=store)

    def kickoff():
        model = Scripted([("c1", "refund", REFUND)], "So be it.")
        llm, wrapped = guarded(guard, model, tools, run_id="ticket-9")
        return crew_of(llm, wrapped).kickoff().raw

    assert "Not done: refund" in kickoff()
    (waiting,) = guard.approvals.list()
    assert done == []
    guard.approvals.approve(waiting.id, by="ann")
    assert kickoff() == "So be it."
    assert done == [("refund", "A1", 5)]
    guard.close()


def test_feedback_of_a_person_begins_a_turn(tools, done, monkeypatch):
    """After an answer that was given without tools, a person's feedback brings the tools back."""
    stuck = [("s", "fetch", "{}")]
    model = Scripted(stuck, stuck, "I am lost.", [("c1", "refund", REFUND)], "Done.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    said = iter(["Use refund.", ""])
    monkeypatch.setattr("builtins.input", lambda *_: next(said))
    crew = crew_of(llm, wrapped, task={"human_input": True})
    assert crew.kickoff().raw == "Done."
    assert model.seen[2]["tools"] == []
    assert model.seen[3]["tools"] == ["get_order", "refund"]
    assert done == [("refund", "A1", 5)]


@pytest.mark.parametrize(("wire", "left"), [("chat", 2)])
def test_a_stream_that_ends_before_its_provider_said_why_runs_nothing(tmp_path, wire, left):
    """A call that is whole proves nothing: what would have said that the message is whole never came."""
    whole = Turn(calls=(("call_1", "refund", REFUND),))
    broken = Turn(calls=whole.calls, breaks=len(list(STREAMS[wire](whole))) - left)
    shop = Shop(tmp_path / "log")
    with ModelServer([broken, Turn("Done.")]) as server:
        load("crewai").play(Job(server.url, shop, wire=wire, mode="stream"))
        assert server.bodies[0]["stream"]
        assert not server.refused
    assert shop.happened() == []


# -- killed in the middle --------------------------------------------------------------------------------

CHILD = """
    import os, signal, sys
    sys.path[:0] = {paths!r}
    from job import Job
    from runner import load
    from framework_shop import Shop

    class Killed(Shop):
        def note(self, tool, **arguments):
            super().note(tool, **arguments)
            os.kill(os.getpid(), signal.SIGKILL)

    load("crewai").play(Job({url!r}, Killed({log!r}), store={store!r}, run_id="order-8", mode="sync"))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_processes_do_not_mark_different_calls_alike():
    """A history may go from one worker to another, which must not take a mark in it for one of its own."""
    code = """
        import os
        from pokayoke.adapters.crewai._model import _new_token
        child = os.fork()
        os.write(1, f"{_new_token()}\\n".encode())  # in one piece, however the output is buffered
        if child:
            os.waitpid(child, 0)
    """
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert len({*ran.stdout.split()}) == 2, ran.stdout


@pytest.mark.timeout(180)
def test_a_process_killed_in_mid_write_does_not_write_twice(tmp_path):
    """Another process with the same run id leaves it at one effect, and the model is told that it may exist."""
    store, log = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "log"
    pokayoke.open_store(store, create=True).close()
    turns = [Turn(calls=(("call_1", "refund", REFUND),)), Turn("Done.")]
    paths = [str(HERE), str(HERE.parent / "support"), str(HERE.parent / "core")]
    with ModelServer(list(turns)) as server:
        code = textwrap.dedent(CHILD.format(paths=paths, url=server.url, log=str(log), store=store))
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=170)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with ModelServer(list(turns)) as server:
        job = Job(server.url, Shop(log), store=store, run_id="order-8", mode="sync")
        text = load("crewai").play(job)
        (told,) = [one["content"] for one in server.bodies[-1]["messages"] if one["role"] == "tool"]
    assert [one["tool"] for one in Shop(log).happened()] == ["refund"]
    assert "refund" in told
    assert "not known whether refund took effect" in text
