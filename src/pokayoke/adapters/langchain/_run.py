"""Which run a request or a call in LangGraph belongs to.

In: the graph's config. Out: the run of its thread, or of the invocation if there is no thread. Never: the rights of
another caller than the one of now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langgraph.config import get_config

from pokayoke.adapters._host.run import AdapterRun, AdapterRuns
from pokayoke.adapters.langchain._contracts import CONTROL_EXCEPTIONS
from pokayoke.core.json.values import read_field
from pokayoke.errors import UsageError
from pokayoke.runtime.guard.guard import Guard

Who = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class GraphRuns(AdapterRuns):
    """The runs of one `GuardMiddleware`, whose arguments these are."""

    def __init__(self, guard: Guard, who: Who | None) -> None:
        """Begin with no run."""
        super().__init__(guard, through=CONTROL_EXCEPTIONS)
        self._who = who

    def current_run(self, state: Any) -> AdapterRun:
        """Return the run that this code is part of, for the caller of now.

        Args:
            state: messages, or the graph's state that holds them.

        Raises:
            UsageError: there is neither a thread nor a graph.
        """
        config = get_config()
        conf = config["configurable"]
        # In a graph inside a graph, the text before the last bar is the node that it runs in.
        part = str(conf.get("checkpoint_ns", "")).rpartition("|")[0]
        who = self._who(config) if self._who is not None else {}
        if (thread := conf.get("thread_id")) is not None:
            return _let_ask(self.run_for(str(thread), part=part, taken=_known_ids(state), **who), conf)
        # The nodes of an invocation share one control, and so do the graphs inside them.
        control = getattr(conf.get("__pregel_runtime"), "control", None)
        if control is None:
            raise UsageError(
                "outside of a graph a run needs an id: pass config={'configurable': {'thread_id': ...}} to invoke()"
            )
        ident = f"invocation {id(control)}"
        adapter_run = _let_ask(self.run_for(ident, durable=False, taken=_known_ids(state), life=control, **who), conf)
        if not part:
            return adapter_run
        is_named = not self.guard.store.durable  # a durable store would treat this id as one that a restart knows
        return _let_ask(
            self.run_for(adapter_run.run.id, durable=is_named, part=part, taken=_known_ids(state), **who), conf
        )


def can_interrupt(conf: Mapping[str, Any]) -> bool:
    """Return whether a graph can wait for a person; without a checkpointer it could never go on."""
    return conf.get("__pregel_checkpointer") is not None


def _let_ask(adapter_run: AdapterRun, conf: Mapping[str, Any]) -> AdapterRun:
    """Return the run, whose questions become interrupts where the graph can wait."""
    if can_interrupt(conf):
        adapter_run.run.can_ask = True
    return adapter_run


def _known_ids(state: Any) -> Iterator[str]:
    """Yield the ids of all calls of a history; lazily, because an open run does not need them."""
    messages = state if isinstance(state, list) else read_field(state, "messages")
    for one in messages if isinstance(messages, list) else ():
        for call in (*(read_field(one, "tool_calls") or ()), *(read_field(one, "invalid_tool_calls") or ())):
            if isinstance(ident := read_field(call, "id"), str):
                yield ident
