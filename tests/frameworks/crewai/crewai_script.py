"""A scripted model and a crew for the tests of CrewAI's adapter."""

import contextlib
import json

from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import register_before_tool_call_hook, unregister_before_tool_call_hook

import pokayoke
from pokayoke.adapters.crewai import contracts

REFUND = '{"order_id": "A1", "amount": 5}'


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


def crew_of(llm, tools, *, prompt="Refund A1.", task=None, **options):
    """A crew of one agent with one task."""
    agent = Agent(role="Clerk", goal="Help.", backstory="A shop.", llm=llm, tools=tools, **options)
    job = Task(description=prompt, expected_output="An answer.", agent=agent, **(task or {}))
    return Crew(agents=[agent], tasks=[job])


def guard_of(tools, **options):
    """A guard of the two tools."""
    fields = options.pop("fields", None)
    reads = ["get_order"] if any(one.name == "Get Order" for one in tools) else []
    return pokayoke.Guard(contracts(tools, reads=reads, fields=fields), **options)


@contextlib.contextmanager
def hooked(hook):
    """Have CrewAI ask a hook before each call of a tool."""
    register_before_tool_call_hook(hook)
    try:
        yield
    finally:
        unregister_before_tool_call_hook(hook)


def act(name, text):
    """What such a model writes."""
    return f"Thought: I need to look.\nAction: {name}\nAction Input: {text}"
