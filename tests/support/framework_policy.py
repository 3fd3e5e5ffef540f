"""Agents of LangChain and Pydantic AI as the policy of a worst-case harness: `untrusted.mode: ask` in their adapters.

`python -m tests.support.untrusted_suite --external tests.support.framework_policy:langchain --annotation none` measures
one in the environment of its framework. A factory is called once per run, and its policy is one live conversation: a scripted
model issues each call in the framework's real agent, the tool's function waits for the output that the harness has
recorded, and whoever is asked answers once the harness has shown whether the call ran. "allow" means that the tool's
function was started, "ask" that a person was asked first; the user's words come with the prompt of the agent's run.

`langchain_beside_guard` and `pydantic_ai_beside_guard` answer as the plain guard does, and print at the end how many
decisions of the framework's agent were others.
"""

# ruff: noqa: PLC0415 - an environment has one framework

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import queue
import threading
from abc import ABC, abstractmethod
from contextvars import ContextVar
from typing import Any

from tests.support.guard_policy import careful, contract_fields, with_zones

import pokayoke

CONFIG = {"untrusted": {"mode": "ask"}, "loop": {"off": "*"}, "safe_mode": {"kill_switch": False}}
"""What `guard_policy` sets: a harness refuses more calls in a row than a run would live through."""
WAIT = 60.0
"""Seconds after which a conversation hangs."""
ROUNDS = 10_000
_numbers = itertools.count()
_talks: dict[str, Talk] = {}
_talk_var: ContextVar[Talk] = ContextVar("framework_policy_talk")
_agents: dict[Any, Agent] = {}


class OverError(Exception):
    """The run of the harness has ended in the middle of a turn."""


class Talk:
    """One conversation: its agent has a thread, and stops at each event until it is told how to go on.

    Args:
        agent: the agent.
    """

    def __init__(self, agent: Agent) -> None:
        """Begin before the user's first words."""
        self.ident = f"talk-{next(_numbers)}"
        self._events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._answers: queue.Queue[Any] = queue.Queue()
        self._stopped = False
        _talks[self.ident] = self
        threading.Thread(target=self._converse, args=(agent,), daemon=True).start()

    # -- the harness's side --------------------------------------------------------------------------

    def wait(self) -> tuple[str, Any]:
        """Return the next event: the agent waits for `words`, the model for a `call`, a tool `runs`, a person is `asked`."""
        event = self._events.get(timeout=WAIT)
        if event[0] == "failed":
            raise AssertionError("the conversation has ended") from event[1]
        return event

    def go_on(self, answer: Any) -> tuple[str, Any]:
        """Answer the latest event; returns the next one."""
        self._answers.put(answer)
        return self.wait()

    def stop(self) -> None:
        """End it wherever it is."""
        self._stopped = True
        self._answers.put(OverError)

    # -- the agent's side ----------------------------------------------------------------------------

    def reach(self, event: str, about: Any = None) -> Any:
        """Report an event; returns the answer.

        Raises:
            OverError: the harness has ended.
        """
        self._events.put((event, about))
        answer = OverError if self._stopped else self._answers.get()
        if answer is OverError:
            self._answers.put(OverError)
            raise OverError
        return answer

    def _converse(self, agent: Agent) -> None:
        _talk_var.set(self)
        try:
            turns = agent.begin(self.ident)
            while True:
                turns.say(self.reach("words"))
        except BaseException as error:
            if not self._stopped:
                self._events.put(("failed", error))
        finally:
            del _talks[self.ident]


def ask_person(question: Any) -> bool:
    """Answer a question of the guard in its conversation."""
    try:
        return _talks[question.run_id].reach("asked", question)
    except OverError:
        return False


def run_tool() -> Any:
    """Be the function of every tool: the harness knows what it returns."""
    try:
        output, error = _talk_var.get().reach("runs")
    except OverError:
        output, error = None, "over"
    if error is not None:
        raise pokayoke.ToolError(error)
    return output


def next_call() -> Any:
    """Be the model: return name and arguments of the next call, or None if the turn is over."""
    return _talk_var.get().reach("call")


class Turns(ABC):
    """The turns of one conversation in a framework."""

    @abstractmethod
    def say(self, words: str) -> None:
        """Play one turn of the user."""


class Agent(ABC):
    """An agent of a framework, for any number of conversations."""

    @abstractmethod
    def begin(self, ident: str) -> Turns:
        """Begin a conversation under an id."""


class LangChainAgent(Agent):
    """`create_agent` with `GuardMiddleware`; a conversation is a thread."""

    def __init__(self, tools: dict[str, Any]) -> None:
        """Build the agent of these tools, by the names that the model writes."""
        from langchain.agents import create_agent
        from langchain_core.language_models import BaseChatModel
        from langchain_core.messages import AIMessage
        from langchain_core.outputs import ChatGeneration, ChatResult
        from langchain_core.tools import StructuredTool

        from pokayoke.adapters.langchain import GuardMiddleware, contracts

        class Scripted(BaseChatModel):
            @property
            def _llm_type(self) -> str:
                return "scripted"

            def bind_tools(self, tools: Any, **options: Any) -> Any:
                return self

            def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
                asked = next_call()
                said = AIMessage("Done.")
                if asked is not None:
                    name, arguments = asked
                    said = AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"c{next(_numbers)}"}])
                return ChatResult(generations=[ChatGeneration(message=said)])

        made = [
            StructuredTool.from_function(
                lambda **arguments: run_tool(), name=name, description=tool.description or name, args_schema=tool.schema
            )
            for name, tool in tools.items()
        ]
        fields = {name: contract_fields(tool) for name, tool in tools.items()}
        guard = pokayoke.Guard(contracts(made, fields=fields), config=CONFIG, on_ask=ask_person)
        self._agent = create_agent(Scripted(), made, middleware=[GuardMiddleware(guard)])

    def begin(self, ident: str) -> Turns:
        """Begin a thread."""
        agent = self._agent
        config = {"configurable": {"thread_id": ident}, "recursion_limit": ROUNDS}

        class Thread(Turns):
            def __init__(self) -> None:
                self._messages: list[Any] = []

            def say(self, words: str) -> None:
                self._messages = agent.invoke({"messages": [*self._messages, ("user", words)]}, config)["messages"]

        return Thread()


class PydanticAIAgent(Agent):
    """`Agent` with `Guarded`; a conversation has an id and a history."""

    def __init__(self, tools: dict[str, Any]) -> None:
        """Build the agent of these tools, by the names that the model writes."""
        import pydantic_ai
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.models.function import FunctionModel
        from pydantic_ai.usage import UsageLimits

        from pokayoke.adapters.pydantic_ai import Guarded, contracts

        def reply(messages: Any, info: Any) -> Any:
            asked = next_call()
            if asked is None:
                return ModelResponse([TextPart("Done.")])
            name, arguments = asked
            return ModelResponse([ToolCallPart(name, json.dumps(arguments), f"c{next(_numbers)}")])

        async def tool_function(**arguments: Any) -> Any:
            return run_tool()

        made = [
            pydantic_ai.Tool.from_schema(tool_function, name, tool.description or name, tool.schema)
            for name, tool in tools.items()
        ]
        fields = {name: contract_fields(tool) for name, tool in tools.items()}
        guard = pokayoke.Guard(contracts(made, fields=fields), config=CONFIG, on_ask=ask_person)
        self._agent = pydantic_ai.Agent(FunctionModel(reply), tools=made, capabilities=[Guarded(guard)], retries=ROUNDS)
        self._limits = UsageLimits(request_limit=None)

    def begin(self, ident: str) -> Turns:
        """Begin a conversation."""
        agent, limits = self._agent, self._limits

        class Conversation(Turns):
            def __init__(self) -> None:
                self._messages: list[Any] = []

            def say(self, words: str) -> None:
                ended = asyncio.run(
                    agent.run(words, message_history=self._messages, conversation_id=ident, usage_limits=limits)
                )
                self._messages = ended.all_messages()

        return Conversation()


class FrameworkPolicy:
    """The policy of one run.

    Args:
        kind: the class of the agent.
    """

    def __init__(self, kind: type[Any]) -> None:
        """Begin with nothing said."""
        self._kind, self._talk = kind, None
        self._event: tuple[str, Any] = ("words", None)
        self._said, self._seen, self._call = "", 0, None
        self._ran = False

    def __call__(self, prompt: str, history: list[Any], call: Any, tools: dict[str, Any]) -> tuple[str, str]:
        """Return what becomes of a call."""
        talk = self._talk
        if talk is None:
            talk = self._talk = Talk(_agent_of(self._kind, tools))
            self._event = talk.wait()
        for step in history[self._seen :]:
            if self._call is None or (self._call.tool, self._call.args) != (step.tool, step.args):
                self._settle(talk, None)
                self._speak(talk, prompt)
                self._issue(talk, step)
            self._settle(talk, step)
        self._seen = len(history)
        self._settle(talk, None)
        self._speak(talk, prompt)
        self._issue(talk, call)
        if self._event[0] == "runs":
            return "allow", ""
        if self._event[0] == "asked":
            return "ask", "; ".join(self._event[1].why)
        return "deny", "refused by the guard"

    def __del__(self) -> None:
        """End the conversation with its run."""
        if self._talk is not None:
            self._talk.stop()

    def _settle(self, talk: Talk, step: Any) -> None:
        """Bring the call that is under way to its end: as a step of the history, or as one that nobody approved."""
        if self._event[0] == "asked":
            self._event = talk.go_on(step is not None)
        if self._event[0] == "runs":
            assert step is not None, "a call that was allowed has run"
            error = None if step.error is None else str(step.error)
            self._event = talk.go_on((step.output, error))
        self._call = None

    def _speak(self, talk: Talk, prompt: str) -> None:
        """Say what the user has said since; the words before it stand at the beginning of the prompt."""
        if prompt == self._said:
            return
        if self._event[0] == "call":
            self._event = talk.go_on(None)
        words = prompt.removeprefix(f"{self._said}\n\n") if self._said else prompt
        self._said, self._event = prompt, talk.go_on(words)

    def _issue(self, talk: Talk, call: Any) -> None:
        assert self._event[0] == "call", self._event
        self._call = call
        self._event = talk.go_on((call.tool.replace(".", "_"), with_zones(call.args)))


def _agent_of(kind: type[Any], tools: dict[str, Any]) -> Agent:
    key = (kind, *((name, json.dumps(tool.labels)) for name, tool in tools.items()))
    if key not in _agents:
        _agents[key] = kind({name.replace(".", "_"): tool for name, tool in tools.items()})
    return _agents[key]


def langchain() -> FrameworkPolicy:
    """LangChain."""
    return FrameworkPolicy(LangChainAgent)


def pydantic_ai() -> FrameworkPolicy:
    """Pydantic AI."""
    return FrameworkPolicy(PydanticAIAgent)


class PairedPolicy:
    """The plain guard's policy, which has a framework's decide the same calls until they differ.

    Args:
        other: the framework's policy.
    """

    decisions = 0
    differences: list[str] = []  # noqa: RUF012 - of all runs

    def __init__(self, other: FrameworkPolicy) -> None:
        """Begin both."""
        self._guard = careful()
        self._other: FrameworkPolicy | None = other

    def __call__(self, prompt: str, history: list[Any], call: Any, tools: dict[str, Any]) -> tuple[str, str]:
        """Return what the guard decides."""
        said = self._guard(prompt, history, call, tools)
        if self._other is not None:
            PairedPolicy.decisions += 1
            if (other := self._other(prompt, history, call, tools))[0] != said[0]:
                self._other = None
                self.differences.append(f"{call.tool} {call.args}: {said} became {other}")
        return said


def _print_differences() -> None:
    print(f"{PairedPolicy.decisions} decisions, {len(PairedPolicy.differences)} differ")
    for one in PairedPolicy.differences:
        print(f"  {one}")


def _pair_and_print(other: FrameworkPolicy) -> PairedPolicy:
    atexit.unregister(_print_differences)
    atexit.register(_print_differences)
    return PairedPolicy(other)


def langchain_beside_guard() -> PairedPolicy:
    """Compare LangChain with the plain guard."""
    return _pair_and_print(langchain())


def pydantic_ai_beside_guard() -> PairedPolicy:
    """Compare Pydantic AI with the plain guard."""
    return _pair_and_print(pydantic_ai())
