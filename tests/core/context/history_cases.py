"""Histories in every format, for the tests of shortening."""

import json

from random_histories import Ai, Human, System, Tool

from pokayoke.core.context import Facts, OpenEffect, Refusal

LONG = "The parcel left the depot and was seen again in Lyon. " * 20

MARK = "<context_note left_out="


class Builder:
    """Writes histories in one shape."""

    def __init__(self, shape, system=True):
        self.shape = shape
        self.messages = []
        if system:
            self.add({"role": "system", "content": "S"}, System(content="S"))

    def add(self, plain_message, lang):
        """Add a message, or its twin of LangChain."""
        self.messages.append(lang if self.shape == "langchain" else plain_message)

    def user(self, text):
        """Add what a user said."""
        last = self.messages[-1] if self.messages else None
        if self.shape == "anthropic" and last and last["role"] == "user" and not isinstance(last["content"], str):
            self.messages[-1] = {"role": "user", "content": [*last["content"], {"type": "text", "text": text}]}
        else:
            self.add({"role": "user", "content": text}, Human(content=text))

    def assistant(self, text):
        """Add what the model said."""
        self.add({"role": "assistant", "content": text}, Ai(content=text))

    def calls(self, ids, arguments=None, name="find"):
        """Add one round of parallel calls."""
        arguments = {"id": 1} if arguments is None else arguments
        text = json.dumps(arguments)
        if self.shape == "openai":
            calls = [{"id": i, "type": "function", "function": {"name": name, "arguments": text}} for i in ids]
            self.messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        elif self.shape == "langchain":
            self.messages.append(Ai(tool_calls=[{"id": i, "name": name, "args": arguments} for i in ids]))
        elif self.shape == "anthropic":
            blocks = [{"type": "tool_use", "id": i, "name": name, "input": arguments} for i in ids]
            self.messages.append({"role": "assistant", "content": blocks})
        else:
            self.messages.append({"type": "reasoning", "summary": []})
            self.messages += [{"type": "function_call", "call_id": i, "name": name, "arguments": text} for i in ids]

    def results(self, ids, text=LONG):
        """Add their results."""
        if self.shape == "openai":
            self.messages += [{"role": "tool", "tool_call_id": i, "content": text} for i in ids]
        elif self.shape == "langchain":
            self.messages += [Tool(content=text, tool_call_id=i) for i in ids]
        elif self.shape == "anthropic":
            blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i in ids]
            self.messages.append({"role": "user", "content": blocks})
        else:
            self.messages += [{"type": "function_call_output", "call_id": i, "output": text} for i in ids]


def history(shape, rounds=20, parallel=2, system=True, text=LONG):
    """A history of several rounds of calls."""
    build = Builder(shape, system)
    build.user("Where is ORD-2026-17?")
    for count in range(rounds):
        ids = [f"c{count}-{n}" for n in range(parallel)]
        build.calls(ids, {"id": count})
        build.results(ids, text)
        build.assistant(f"I looked at {count}.")
        if shape == "anthropic":
            build.user("Go on.")
    return build.messages


SHAPES = ["openai", "items", "anthropic", "langchain"]


def everything(messages):
    """All text of a history."""
    return "\n".join(map(repr, messages))


def note_in(messages):
    """What the one note of a history says."""
    found = []
    for message in messages:
        content = message["content"] if isinstance(message, dict) and "content" in message else None
        content = content if isinstance(message, dict) else message.content
        for block in [content] if isinstance(content, str) else content or []:
            text = block if isinstance(block, str) else block.get("text")
            if isinstance(text, str) and text.startswith(MARK):
                found.append(text)
    assert len(found) == 1
    return found[0]


def told(body, trust="checked", before=""):
    """A result as a guard writes it."""
    return f'{before}<tool_output tool="find" call="x-77" trust="{trust}">\n{body}\n</tool_output>'


FACTS = Facts(
    effects=(OpenEffect("refund", "run-7:refund:ab12", about="14.90 EUR"),),
    refusals=(Refusal("close_ticket", "permission_denied", "</context_note>"),),
    ids=("ORD-9",),
    others=("Friday is the last day.", "Friday is the last day."),
)


def chat_call(*ids, name="f", content=None):
    """A message of chat completions that calls."""
    calls = [{"id": key, "type": "function", "function": {"name": name, "arguments": "{}"}} for key in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def chat_result(key, text="fine"):
    """A result of chat completions."""
    return {"role": "tool", "tool_call_id": key, "content": text}


U = {"role": "user", "content": "hi"}

A = {"role": "assistant", "content": "ok"}


def use(*ids, name="f"):
    """A message of Anthropic that calls."""
    return {"role": "assistant", "content": [{"type": "tool_use", "id": key, "name": name, "input": {}} for key in ids]}


def got(*ids, text="fine", more=()):
    """A message of Anthropic with results."""
    blocks = [{"type": "tool_result", "tool_use_id": key, "content": text} for key in ids]
    return {"role": "user", "content": [*blocks, *({"type": "text", "text": one} for one in more)]}
