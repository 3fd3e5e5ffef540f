"""What a host is asked to do: one conversation of one framework with the scripted model.

A host is a module `tests/frameworks/hosts/<name>.py` with

    TITLE: str                 how the table calls it
    PACKAGE: str               distribution whose version is printed
    MODES: tuple[str, ...]     of "sync", "async", "stream" (streams are asynchronous unless there is no such API)
    WIRES: tuple[str, ...]     of "chat", "responses", "anthropic": the first is the one of the table
    IMPOSSIBLE: dict[str, str] scenario name -> why this framework makes it impossible (tried by two routes)

    def play(job: Job) -> str:
        '''Have the conversation and return the text the user gets to read. What it raises is a crash.'''

    def measured(hooks: str, calls: int) -> Callable[[], object]:
        '''A run of `calls` tool turns with an in-process scripted model and a trivial tool.

        hooks: "none" (the framework alone), "empty" (hooks that do nothing, at the points the adapter uses),
        or "guarded". Everything that is built once is built before it returns.
        '''
"""

from dataclasses import dataclass, field
from typing import Any

from shop import Shop


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
    options: dict[str, Any] = field(default_factory=dict)
