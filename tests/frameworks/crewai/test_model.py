"""Requests and replies of an agent's model."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from crewai_script import REFUND, Scripted, crew_of, guard_of, hooked
from framework_shop import Shop
from job import Job
from model_server import STREAMS, ModelServer, Turn
from runner import load

from pokayoke.adapters.crewai import calls, guarded, message


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
    """The guarded model is a copy: the model itself and its class do not change."""
    model = Scripted("Hello.")
    llm, wrapped = guarded(guard_of(tools), model, tools)
    assert isinstance(llm, Scripted)
    assert type(model) is Scripted
    assert llm.supports_function_calling()
    assert [one.name for one in wrapped[:2]] == ["Get Order", "refund"]
    assert tools[0].run(order_id="A1") == {"order_id": "A1", "qty": 2}


def test_the_model_reads_its_own_words_again(tools, done):
    """The history holds names and texts as the model wrote them, and nothing that the adapter added."""
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


@pytest.mark.parametrize("more", [{}, {"order_id": "A1", "amount": 3}])
def test_a_cut_message_of_the_litellm_route_runs_nothing(tools, done, more):
    """The class of the LiteLLM route sends no event about a reply with calls; the reason is taken where it reads it.

    A hook of the user that changes the arguments does not change that.
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


@pytest.mark.parametrize(("wire", "left"), [("chat", 2)])
def test_a_stream_that_ends_before_its_provider_said_why_runs_nothing(tmp_path, wire, left):
    """A whole call proves nothing: the finish reason never came."""
    whole = Turn(calls=(("call_1", "refund", REFUND),))
    broken = Turn(calls=whole.calls, breaks=len(list(STREAMS[wire](whole))) - left)
    shop = Shop(tmp_path / "log")
    with ModelServer([broken, Turn("Done.")]) as server:
        load("crewai").play(Job(server.url, shop, wire=wire, mode="stream"))
        assert server.bodies[0]["stream"]
        assert not server.refused
    assert shop.happened() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_processes_do_not_mark_different_calls_alike():
    """A history may go from one worker to another, which must not take its tokens for its own."""
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
