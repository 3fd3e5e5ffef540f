"""What a host is asked to do: one conversation of one framework with the scripted model.

A host is a module `tests/frameworks/hosts/<name>.py` with

    TITLE: str                 how the table calls it
    PACKAGE: str               distribution whose version is printed
    MODULES: tuple[str, ...]   top-level modules of the framework, without which the adapter cannot be imported
    MODES: tuple[str, ...]     of "sync", "async", "stream" (streams are asynchronous unless there is no such API)
    WIRES: tuple[str, ...]     of "chat", "responses", "anthropic": the first is the one of the table
    IMPOSSIBLE: dict[str, str] why this framework makes a scenario impossible (tried by two routes), by its name;
                               `name @wire` or `name @wire/mode` if it does so only there
    UNLIKE: dict[str, str]     why this framework makes a claim of `test_every_framework.py` impossible, by the name of
                               its test, `name @wire` or the name with its parameters; may be left out
    DEMANDS_OUTPUT: bool       True if a function that says nothing of its result is refused; may be left out

    def play(job: Job) -> str:
        '''Have the conversation and return the text the user gets to read. What it raises is a crash.'''

    def measured(hooks: str, calls: int) -> Callable[[], object]:
        '''A run of `calls` tool turns with an in-process scripted model and a trivial tool.

        hooks: "none" (the framework alone), "empty" (hooks that do nothing, at the points the adapter uses),
        or "guarded". Everything that is built once is built before it returns.
        '''
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from framework_shop import FIELDS, READS, Shop

import pokayoke

JSON_TYPES = {str: "string", int: "integer"}


@dataclass(frozen=True)
class Job:
    """One conversation.

    Args:
        url: where the scripted model listens: `{url}/v1` for OpenAI clients, `{url}` for Anthropic's.
        wire: chat, responses or anthropic.
        mode: sync, async or stream.
        guarded: False for the framework alone, with its defaults.
        shop: the tools and their log.
        prompt: what the user says.
        config: the guard's configuration.
        store: the guard's store; None for memory.
        run_id: the framework's own id of the conversation (thread, session), if it has one.
        tools: names of the tools to offer; None for all.
        declares: True for what the shop declares of its tools; otherwise the five lines of a guide.
        reads: then, the tools that are named as reads.
        fields: then, further fields of contracts, by tool.
        blocking: True to give a framework synchronous functions in an asynchronous mode, too.
    """

    url: str
    shop: Shop
    wire: str = "chat"
    mode: str = "async"
    guarded: bool = True
    prompt: str = "Refund my order."
    config: dict[str, Any] | None = None
    store: str | None = None
    run_id: str | None = None
    tools: tuple[str, ...] | None = None
    declares: bool = True
    reads: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    blocking: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def functions(self) -> list:
        """The tools to offer, as this mode wants them."""
        if self.blocking or self.mode == "sync":
            return self.shop.functions(self.tools)
        return self.shop.coroutines(self.tools)

    @property
    def declared(self) -> dict[str, Any]:
        """What a user declares of them: `contracts(tools, **job.declared)`."""
        if not self.declares:
            return {"reads": self.reads, "fields": self.fields}
        names = {one.__name__ for one in self.functions}
        return {
            "reads": tuple(name for name in READS if name in names),
            "fields": {name: given for name, given in FIELDS.items() if name in names},
        }

    @property
    def contracts(self) -> list[pokayoke.Contract]:
        """The contracts of a host without a framework: by hand, or as `pokayoke.tool` reads a function."""
        declared = self.declared
        more = [
            {
                **({"effect": "read"} if one.__name__ in declared["reads"] else {}),
                **declared["fields"].get(one.__name__, {}),
            }
            for one in self.functions
        ]
        if not self.declares:
            return [pokayoke.tool(**given)(one) for one, given in zip(self.functions, more, strict=True)]
        return [
            pokayoke.Contract.from_schema(one.__name__, schema(one), description=one.__doc__, handler=one, **given)
            for one, given in zip(self.functions, more, strict=True)
        ]


@contextmanager
def own_event_loop() -> Iterator[None]:
    """For a framework's synchronous run: the loop that it makes itself stays open, and its end fails another test."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def schema(function: Callable) -> dict[str, Any]:
    """What a user would write by hand of a function's arguments."""
    fields = inspect.signature(function).parameters
    return {
        "type": "object",
        "properties": {name: {"type": JSON_TYPES[one.annotation]} for name, one in fields.items()},
        "required": [name for name, one in fields.items() if one.default is one.empty],
        "additionalProperties": False,
    }
