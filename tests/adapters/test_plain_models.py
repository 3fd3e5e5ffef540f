"""The plain adapters with the providers' own SDKs, against a scripted endpoint that speaks their wire formats."""

import asyncio
import json
import re

import pytest
from model_server import ModelServer, Turn

import pokayoke
from pokayoke.adapters import anthropic as claude
from pokayoke.adapters import openai as gpt
from pokayoke.core.messages.streams import AnthropicStream, ChatStream, ResponsesStream
from pokayoke.errors import MissingExtraError

OPEN = {"type": "object"}
KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"], "additionalProperties": False}
done = []


def get(key):
    """Read."""
    return {"key": key}


def put(key):
    """Write."""
    done.append(key)
    return {"key": key}


def contracts():
    """A read and a write."""
    made = [("get", "read", get), ("put", "write", put)]
    return [
        pokayoke.Contract.from_schema(
            name, KEY, output_schema=OPEN, effect=effect, handler=handler, description=handler.__doc__
        )
        for name, effect, handler in made
    ]


def guarded():
    """A guard over both."""
    return pokayoke.Guard(contracts())


class End:
    """One wire, sync or async, whole or streamed.

    Args:
        wire: chat, responses or anthropic.
        asynchronous: True for the SDK's async client.
        stream: True to stream.
    """

    def __init__(self, wire, asynchronous, stream, need):
        self.wire, self.asynchronous, self.stream = wire, asynchronous, stream
        self.name, self.options = "m", {}
        name = "anthropic" if wire == "anthropic" else "openai"
        try:
            self._sdk = __import__(name)
        except ImportError:
            need(f"the SDK of this adapter: pip install {name}")

    def client(self, url):
        """The SDK's own client; it does not try again, so every request is the adapter's."""
        kind = "Async" if self.asynchronous else ""
        if self.wire == "anthropic":
            return getattr(self._sdk, f"{kind}Anthropic")(base_url=url, api_key="k", max_retries=0, timeout=20)
        return getattr(self._sdk, f"{kind}OpenAI")(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=20)

    def model(self, url, **options):
        """The model callable under test."""
        name = {"chat": "ChatModel", "responses": "ResponsesModel", "anthropic": "MessagesModel"}[self.wire]
        module = claude if self.wire == "anthropic" else gpt
        kind = "Async" if self.asynchronous else ""
        return getattr(module, f"{kind}{name}")(
            self.name, self.client(url), stream=self.stream, **self.options, **options
        )

    def loop(self, guard, url, prompt="go", *, on_text=None, **options):
        """Run the reference loop to its end."""
        if not self.asynchronous:
            model = self.model(url, on_text=on_text)
            with model._client:
                return guard.loop(model, prompt, **options)

        async def main():
            model = self.model(url, on_text=on_text)
            async with model._client:
                return await guard.aloop(model, prompt, **options)

        return asyncio.run(main())


@pytest.fixture(params=["chat", "responses", "anthropic"])
def wire(request):
    """Whose wire format."""
    return request.param


@pytest.fixture(params=["sync", "async"])
def asynchronous(request):
    """Which client."""
    return request.param == "async"


@pytest.fixture(params=["whole", "streamed"])
def stream(request):
    """Which way the reply comes."""
    return request.param == "streamed"


@pytest.fixture
def end(wire, asynchronous, stream, need):
    """Every wire, with both clients, whole and streamed."""
    done.clear()
    return End(wire, asynchronous, stream, need)


@pytest.fixture
def streamed(wire, need):
    """Every wire, streamed."""
    done.clear()
    return End(wire, asynchronous=False, stream=True, need=need)


def args(key):
    """Argument text."""
    return json.dumps({"key": key})


PARALLEL = Turn("I look.", (("a", "get", args("x")), ("b", "put", args("y"))))


def test_a_whole_conversation(end):
    """Two parallel calls, then an answer: each call is answered once in a history the provider takes, and usage is known."""
    heard = []
    with ModelServer([PARALLEL, Turn("All done.")]) as server:
        guard = guarded()
        ended = end.loop(guard, server.url, on_text=heard.append, run_id="r")
    assert (ended.text, ended.verified, ended.stop_reason, ended.rounds) == ("All done.", True, "success", 2)
    assert (done, server.refused) == (["y"], [])
    assert "".join(heard) == ("I look.All done." if end.stream else "")
    assert [tool.get("name") or tool["function"]["name"] for tool in server.bodies[0]["tools"]] == ["get", "put"]
    assert guard.run("r").tokens == 15
    assert json.dumps(server.bodies[1]).count("tool_output tool=") == 2


def test_equal_and_missing_ids_are_answered_once_each(end):
    """Calls that share an id, or repeat one of an earlier reply, get answers that fit them and only them."""
    same = Turn(calls=(("a", "get", args("x")), ("a", "get", args("y"))))
    with ModelServer([same, same, Turn("ok")]) as server:
        ended = end.loop(guarded(), server.url)
    assert (ended.text, server.refused) == ("ok", [])


@pytest.mark.parametrize("stop", ["length", "filter"])
def test_a_cut_message_runs_nothing(end, stop):
    """A reply that the provider says is cut runs none of its calls, even those that parse; each is answered all the same."""
    with ModelServer([Turn(calls=PARALLEL.calls, stop=stop), Turn("I could not.")]) as server:
        ended = end.loop(guarded(), server.url)
    assert (done, server.refused) == ([], [])
    assert ended.text == "I could not.\n\n[Not done: put (the details did not fit).]"
    assert "tool_output" not in json.dumps(server.bodies[1])


def test_a_cut_answer_is_not_verified(end):
    """A last message that was cut is the model's own, and nobody vouches for it."""
    with ModelServer([Turn("All do", stop="length")]) as server:
        ended = end.loop(guarded(), server.url)
    assert (ended.text, ended.verified) == ("All do", False)


def test_a_refusal_ends_the_run(end):
    """A model that refuses ends the loop with its own words, not verified and known as a refusal."""
    with ModelServer([Turn(refusal="I will not.", stop="filter" if end.wire == "anthropic" else None)]) as server:
        ended = end.loop(guarded(), server.url)
    assert (ended.text, ended.verified, ended.refused) == ("I will not.", False, True)


def test_usage_reaches_the_budget(end):
    """Tokens the provider reports are the run's: a budget below them takes the tools away."""
    turns = [
        Turn(calls=(("a", "get", args("x")),), tokens=(900, 200)),
        Turn(calls=(("b", "put", args("y")),)),
        Turn(""),
    ]
    with ModelServer(turns) as server:
        ended = end.loop(pokayoke.Guard(contracts(), config={"budgets": {"tokens": 1_000}}), server.url)
    assert (done, ended.stop_reason, ended.verified) == ([], "budget_exhausted", False)
    assert server.refused == []


def test_unknown_tools_end_the_run_and_the_tools_go(end):
    """The model reads what there is, then gets an instruction and no tools; its history stays one the provider takes."""
    turns = [
        Turn(calls=(("a", "fetch it", "{}"),)),
        Turn(calls=(("b", "fetch", "{}"),)),
        Turn(calls=(("c", "fetch", "{}"),)),
    ]
    end.options["tool_choice"] = {"type": "auto"} if end.wire == "anthropic" else "auto"
    with ModelServer(turns) as server:
        ended = end.loop(guarded(), server.url)
    assert (ended.stop_reason, ended.verified, ended.rounds) == ("unknown_tool", False, 3)
    assert "tools" not in server.bodies[2]
    assert ["tool_choice" in body for body in server.bodies] == [True, True, False]  # without tools it is refused
    assert "Tools are off" in json.dumps(server.bodies[2])
    assert "Tools are off" not in json.dumps(ended.messages)
    assert (server.refused, ended.text.startswith("I could not finish")) == ([], True)


def test_a_proxy_for_claude_is_told_that_no_tool_may_be_called(asynchronous, stream, need):
    """It refuses calls in a history without definitions: it gets the names in it, and that none may be called."""
    end = End("chat", asynchronous, stream, need)
    end.name, end.options = "bedrock/anthropic.claude-x", {"tool_choice": "auto"}
    calls = [Turn(calls=((f"c{number}", name, "{}"),)) for number, name in enumerate(("fetch", "look", "fetch"))]
    with ModelServer([Turn("Hello."), *calls]) as server:
        end.loop(guarded(), server.url)
        end.loop(guarded(), server.url, rounds=2)
    first, *between, last = server.bodies
    assert all("tools" in body and body["tool_choice"] == "auto" for body in (first, *between))
    assert last["tool_choice"] == "none"
    assert [one["function"]["name"] for one in last["tools"]] == ["fetch", "look"]
    assert server.refused == []


def test_errors_of_the_endpoint_go_through(end):
    """What the SDK raises is the host's to handle; what was done before stays done and known."""
    with (
        ModelServer([Turn(calls=(("b", "put", args("y")),)), Turn(status=529)]) as server,
        pytest.raises(Exception, match=r"529|no"),
    ):
        end.loop(guarded(), server.url, run_id="r")
    assert done == ["y"]


@pytest.mark.parametrize("breaks", [1, 4, 9])
def test_a_stream_that_ends_too_early_runs_nothing(streamed, breaks):
    """A stream that ends without saying why is incomplete: none of its calls run, and the run goes on or ends honestly."""
    with ModelServer([Turn(calls=PARALLEL.calls, breaks=breaks), Turn("I could not.")]) as server:
        ended = streamed.loop(guarded(), server.url)
    assert (done, server.refused) == ([], [])
    assert not ended.verified or ended.text == "I could not."
    assert ended.text


def test_a_stream_whose_connection_breaks_runs_nothing(streamed):
    """A connection that breaks is the client's error and goes through; nothing of that reply has run."""
    with (
        ModelServer([Turn(calls=PARALLEL.calls, breaks=6, rude=True)]) as server,
        pytest.raises(Exception, match=r"(?i)peer closed|incomplete|connection"),
    ):
        streamed.loop(guarded(), server.url)
    assert done == []


def test_nothing_runs_before_the_stop_reason(streamed):
    """Every event before the last leaves the tools alone; only a whole reply is handed out."""
    make = {"chat": ChatStream, "responses": ResponsesStream, "anthropic": AnthropicStream}[streamed.wire]
    sdk = streamed.client
    with ModelServer([PARALLEL]) as server, sdk(server.url) as client:
        messages, run = [{"role": "user", "content": "go"}], guarded().run()
        if streamed.wire == "chat":
            events = client.chat.completions.create(model="m", messages=messages, stream=True)
        elif streamed.wire == "responses":
            events = client.responses.create(model="m", input=messages, stream=True)
        else:
            events = client.messages.create(model="m", max_tokens=9, messages=messages, stream=True)
        whole, module = make(), claude if streamed.wire == "anthropic" else gpt
        ran = []
        for event in events:
            ran.append(len(done))
            whole.add_event(event)
            if not done:
                early = module.calls(whole.build_reply(), run)
                if all(call.stop_reason not in ("tool_calls", "tool_use", "completed") for call in early):
                    assert all(not outcome.ok for outcome in run.call_batch(early))
        assert set(ran) == {0}
        assert [outcome.ok for outcome in guarded().run().call_batch(module.calls(whole.build_reply()))] == [True, True]


def test_five_lines_of_the_own_loop(wire, need):
    """The adapters' own functions make a loop of few lines, whose history the provider takes."""
    done.clear()
    end = End(wire, asynchronous=False, stream=False, need=need)
    with ModelServer([PARALLEL, Turn("ok")]) as server, end.client(server.url) as client:
        run, messages = guarded().run(), [{"role": "user", "content": "go"}]
        for _ in range(2):
            if wire == "chat":
                reply = client.chat.completions.create(model="m", messages=messages, tools=run.tools())
                messages += gpt.history(reply)
                messages += [gpt.message(outcome) for outcome in run.call_batch(gpt.calls(reply, run))]
            elif wire == "responses":
                reply = client.responses.create(model="m", input=messages)
                messages += gpt.history(reply)
                messages += [gpt.message(o, responses=True) for o in run.call_batch(gpt.calls(reply, run))]
            else:
                reply = client.messages.create(model="m", max_tokens=9, messages=messages, tools=run.tools("anthropic"))
                messages += claude.history(reply)
                messages += claude.results(run.call_batch(claude.calls(reply, run)))
    assert (server.refused, done, len(server.requests)) == ([], ["y"], 2)


def test_one_answer_of_anthropic():
    """A single answer is a user message of one block; several belong into one message."""
    outcomes = guarded().run().call_batch([pokayoke.ToolCall("a", "get", args("x"))])
    assert claude.message(outcomes[0]) == claude.results(outcomes)[0]
    assert claude.results([]) == []


@pytest.mark.parametrize(
    ("system", "sent"),
    [({}, "be brief"), ({"system": "be kind"}, "be kind\n\nbe brief")],
)
def test_anthropics_system_prompt_stands_beside_the_messages(system, sent, need):
    """System messages of the history go where that API takes them, behind the host's own."""
    end = End("anthropic", asynchronous=False, stream=False, need=need)
    with ModelServer([Turn("ok")]) as server, end.client(server.url) as client:
        messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]
        guarded().loop(claude.MessagesModel("m", client, **system), messages=messages)
    assert (server.bodies[0]["system"], server.refused) == (sent, [])


@pytest.mark.parametrize(
    ("make", "extra"), [(gpt.ChatModel, "openai"), (gpt.AsyncResponsesModel, "openai"), (claude.MessagesModel, "anthropic"), (claude.AsyncMessagesModel, "anthropic")]
)  # fmt: skip
def test_a_missing_sdk_says_how_to_install_it(make, extra, monkeypatch):
    """Without a client and without the SDK, the error names the command."""
    monkeypatch.setitem(__import__("sys").modules, extra, None)
    with pytest.raises(MissingExtraError, match=rf"pokayoke\[{extra}\]"):
        make("m")


def test_a_package_that_is_there_and_cannot_be_imported_is_not_called_missing():
    """What is broken in it, such as a package that it needs itself, stands in the error."""
    try:
        raise ImportError("No module named 'y'")
    except ImportError:
        told = str(MissingExtraError("pytest", "x"))
    assert re.match(r"pytest \S+ is installed, and cannot be imported: No module named 'y'", told)
    assert str(MissingExtraError("no-such-package", "x")).startswith("'no-such-package' is not installed")


@pytest.mark.parametrize(("make", "client"), [(gpt.ChatModel, "OpenAI"), (gpt.AsyncChatModel, "AsyncOpenAI"), (gpt.AsyncResponsesModel, "AsyncOpenAI"), (claude.MessagesModel, "Anthropic"), (claude.AsyncMessagesModel, "AsyncAnthropic")])  # fmt: skip
def test_without_a_client_the_environment_counts(make, client, monkeypatch, need):
    """A model made without a client makes the SDK's own, of its kind."""
    End("anthropic" if "nthropic" in client else "chat", asynchronous=False, stream=False, need=need)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert type(make("m")._client).__name__ == client
