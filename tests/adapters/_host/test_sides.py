"""The two sides of an adapter, over a framework of dictionaries."""

import pytest

import pokayoke
from pokayoke import ToolCall
from pokayoke.adapters._host.approvals import PersonAnswer, find_question
from pokayoke.adapters._host.calls import ReplyCall
from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.model import ModelSide, texts_since_reply
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.adapters._host.tools import ToolSide

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
PUT = ("call_1", "put", '{"key": "a"}')


class Request(ModelSide):
    """A request whose replies are dictionaries."""

    def __init__(self, adapter_run, *texts, typed=False):
        self.typed = typed
        self.begin_request(adapter_run, user_texts=texts, known_ids=["call_9"])

    def total_tokens(self, reply):
        return reply.get("tokens")

    def calls(self, reply):
        return [ReplyCall(*call) for call in reply.get("calls", ())]

    def with_calls(self, reply, calls):
        return {**reply, "calls": calls}

    def without_calls(self, reply):
        return {name: value for name, value in reply.items() if name != "calls"}

    def text(self, reply):
        return reply.get("text")

    def may_change_text(self, reply, text):
        return not self.typed

    def with_text(self, reply, text):
        return {**reply, "text": text}


class Tool(ToolSide):
    """A tool that returns its key; a person has answered as `answer` says."""

    def __init__(self, answer=None):
        self.answer, self.ran = answer, []

    async def run_tool(self, arguments):
        self.ran.append(arguments["key"])
        return arguments["key"]

    def person_answer(self, approval):
        return self.answer


@pytest.fixture
def adapter_run():
    """A run with one write."""
    fields = {"put": {"output_schema": "text"}}
    guard = pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)], fields=fields))
    return AdapterRun(guard.run("r"))


def test_calls_of_a_reply_get_ids_of_their_own(adapter_run):
    """Two calls with one id are told apart, and none gets an id of the history."""
    taken = Request(adapter_run).take_reply({"calls": [PUT, PUT, ("call_9", *PUT[1:])]})
    ids = [call.id for call in taken["calls"]]
    assert ids[0] == "call_1"
    assert len({*ids, "call_9"}) == 4


def test_a_cut_reply_marks_its_calls(adapter_run):
    """Whatever the provider calls it, no call of a cut reply runs."""
    taken = Request(adapter_run).take_reply({"calls": [PUT]}, "max_tokens")
    assert [call.stop_reason for call in taken["calls"]] == ["length"]


def test_a_stuck_model_answers_without_tools(adapter_run):
    """After two bad rounds a request is final: calls of its reply are dropped, and the user gets an honest text."""
    for number in range(2):
        (call,) = Request(adapter_run).take_reply({"calls": [(f"c{number}", "fetch", "{}")]})["calls"]
        adapter_run.call(call)
    request = Request(adapter_run)
    assert (request.is_final, "put" in request.shape.instruction) == (True, True)
    taken = request.take_reply({"calls": [PUT], "tokens": 5})
    assert taken["text"].startswith("I could not finish")
    assert "calls" not in taken
    assert not Request(adapter_run, "Then put it.").is_final


def test_a_typed_answer_is_left_alone(adapter_run):
    """A reply whose text may not be changed comes back as it is; any other empty one gets a text."""
    assert Request(adapter_run, typed=True).take_reply({"text": ""}) == {"text": ""}
    assert Request(adapter_run).take_reply({"text": ""})["text"]


def test_the_users_texts_since_the_last_reply_begin_turns():
    """Oldest first; messages that count for neither are passed over."""
    said = [("user", "c"), (None, "system"), ("user", "b"), ("reply", ""), ("user", "a")]
    assert texts_since_reply(said) == ["b", "c"]


async def test_a_tool_runs_with_what_the_guard_lets_through(adapter_run):
    """Its value is the outcome's; a call without a tool is answered, and an equal write is not repeated."""
    tool, call = Tool(), ToolCall(*PUT)
    outcome = await tool.take_call(adapter_run, call)
    assert (outcome.value, tool.ran) == ("a", ["a"])
    assert (await tool.take_call(adapter_run, call)).status == "replayed"
    missing = await tool.take_call(adapter_run, ToolCall("c", "put", {"key": "b"}), has_tool=False)
    assert (missing.status, missing.effect, tool.ran) == ("failed", "none", ["a"])
    assert (await tool.take_call(adapter_run, ToolCall("c", "fetch", "{}"), has_tool=False)).status == "refused"


@pytest.mark.parametrize(
    ("answer", "status", "ran"),
    [
        (None, "pending", []),
        (PersonAnswer(True, "ann"), "ok", ["a"]),
        (PersonAnswer(False, "ann", "too much"), "refused", []),
    ],
)
async def test_a_persons_answer_in_the_framework_is_the_guards(answer, status, ran):
    """A yes to what was asked before runs the call, a no refuses it, and without an answer the question waits."""
    made = build_contracts([ToolDescription("put", "Put.", KEY)])
    adapter_run = AdapterRun(pokayoke.Guard(made, config={"approvals": {"tools": ["put"]}}).run("r"))
    tool, call = Tool(answer), ToolCall(*PUT)
    if status == "ok":
        assert (await tool.take_call(adapter_run, call)).status == "pending"
    outcome = await tool.take_call(adapter_run, call)
    assert (outcome.status, tool.ran) == (status, ran)
    if answer is None:
        assert find_question(adapter_run, call).id == outcome.approval
