"""The model's side of an adapter: one request to the model, and its reply.

In: a request and a reply in the framework's own types. Out: the same, as the guard lets them stand. Never: a reply
whose calls or text the framework acts on before the guard has taken them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from pokayoke.adapters._host.calls import ReplyCall
from pokayoke.adapters._host.run import AdapterRun, RequestShape
from pokayoke.core.call import ToolCall


class ModelSide(ABC):
    """One request to the model and its reply: the steps that are the same in every framework.

    A subclass says how its framework holds them. It calls `begin_request` before it sends the request, and
    `take_reply` with the whole reply; of a stream it lets no call pass before that.

    Attributes:
        adapter_run: the run.
        shape: what the request has to be like.
    """

    __slots__ = ("adapter_run", "shape")

    def begin_request(
        self,
        adapter_run: AdapterRun,
        *,
        user_texts: Iterable[str] = (),
        known_ids: Iterable[str] = (),
        history: Iterable[Any] | None = None,
    ) -> RequestShape:
        """Begin a request; returns what it has to be like.

        Args:
            adapter_run: the run.
            user_texts: what the user has said since the last reply; each text begins a turn.
            known_ids: call ids that the history holds, perhaps from before a restart: no other call gets one.
            history: what the request carries, in a shape that a run reads: see `Run.set_history`.
        """
        self.adapter_run = adapter_run
        adapter_run.reserve_ids(known_ids)
        for text in user_texts:
            adapter_run.run.user(text)
        if history is not None:
            adapter_run.run.set_history(history)
        self.shape = adapter_run.begin_request()
        return self.shape

    def take_reply(self, reply: Any, stop_reason: object = None) -> Any:
        """Take the whole reply; returns it as the framework may act on it and keep it.

        Its calls get ids of their own and arguments that the framework can parse. A reply without calls, or to a
        request without tools, ends with what the user gets to read.

        Args:
            reply: in the framework's type.
            stop_reason: why the provider says it ended; of a cut reply no call will run.
        """
        if tokens := self.total_tokens(reply):
            self.adapter_run.run.usage(tokens)
        calls = self.calls(reply)
        if calls and not self.is_final:
            return self.with_calls(reply, self.adapter_run.take_reply(calls, stop_reason))
        if self.is_final:
            reply = self.without_calls(reply)
        text = self.text(reply)
        if not self.may_change_text(reply, text):
            return reply
        word = self.final_text(text)
        return reply if word == text else self.with_text(reply, word)

    @property
    def is_final(self) -> bool:
        """True if the reply may hold no calls: those that it holds are dropped."""
        return self.shape.final

    def may_change_text(self, reply: Any, text: str | None) -> bool:  # noqa: ARG002 - for those with typed answers
        """Return whether a text without calls is the answer for the user, and may be another text."""
        return True

    def final_text(self, text: str | None) -> str:
        """Return the text for the user, see `AdapterRun.final_text`; the reply is the answer."""
        return self.adapter_run.final_text(text)

    @abstractmethod
    def total_tokens(self, reply: Any) -> int | None:
        """Return the tokens of request and reply; None or 0 if the provider does not say."""

    @abstractmethod
    def calls(self, reply: Any) -> list[ReplyCall]:
        """Return the calls of a reply, in order, argument texts as they came."""

    @abstractmethod
    def with_calls(self, reply: Any, calls: list[ToolCall]) -> Any:
        """Return the reply with these calls in the place of its own; they are as many, see `encode_call`."""

    @abstractmethod
    def without_calls(self, reply: Any) -> Any:
        """Return the reply to a final request without the calls that it may hold."""

    @abstractmethod
    def text(self, reply: Any) -> str | None:
        """Return the text of a reply without calls."""

    @abstractmethod
    def with_text(self, reply: Any, text: str) -> Any:
        """Return the reply with this text in the place of its own."""


def chat_messages(
    role: str, text: str, calls: Iterable[tuple[Any, str, Any]] = (), results: Iterable[tuple[Any, Any]] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a framework's message in the shape of a chat, for `begin_request`.

    Args:
        role: "user" or "assistant"; messages of others are not handed over.
        text: what it says.
        calls: id, name and arguments of each of its calls.
        results: id and content of each result that it holds.
    """
    for ident, content in results:
        yield {"role": "tool", "tool_call_id": ident, "content": content}
    asked = [{"id": ident, "name": name, "arguments": arguments} for ident, name, arguments in calls]
    if text or asked:
        yield {"role": role, "content": text, "tool_calls": asked}


def texts_since_reply(latest_first: Iterable[tuple[str | None, str]]) -> list[str]:
    """Return the user's texts since the last reply, oldest first.

    Args:
        latest_first: role and text of each message: "user" for the user's, None for one to pass over, and any other
            role for one that ends the search.
    """
    found: list[str] = []
    for role, text in latest_first:
        if role == "user":
            found.append(text)
        elif role is not None:
            break
    return found[::-1]
