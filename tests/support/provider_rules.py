"""What providers refuse in a history, written down from their documentation and error messages.

Independent of the package: nothing of it is imported here.
"""

import re

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_ANTHROPIC_ID = re.compile(r"[A-Za-z0-9_-]+")


def chat_problems(messages):
    """OpenAI chat completions: every call answered once, at once; no result without a call."""
    wrong, waiting = [], None
    for at, message in enumerate(messages):
        role = message.get("role")
        if role not in {"system", "developer", "user", "assistant", "tool", "function"}:
            wrong.append(f"{at}: role {role!r}")
        if role == "tool":
            key = message.get("tool_call_id")
            if not isinstance(message.get("content"), (str, list)):
                wrong.append(f"{at}: result without content")
            if not waiting or key not in waiting:
                wrong.append(f"{at}: result {key!r} answers nothing")
            else:
                waiting.remove(key)
            continue
        if waiting:
            wrong.append(f"{at}: calls {waiting} were not answered")
        waiting = None
        if role == "assistant":
            waiting = _asked(at, message, wrong)
    if waiting:
        wrong.append(f"end: calls {waiting} were not answered")
    return wrong


def _asked(at, message, wrong):
    calls = message.get("tool_calls")
    if calls is None:
        if not message.get("content") and not message.get("refusal") and not message.get("function_call"):
            wrong.append(f"{at}: the model says nothing")
        return None
    if not calls:
        wrong.append(f"{at}: an empty list of calls")
    ids = [call.get("id") for call in calls]
    if not all(isinstance(key, str) and key for key in ids):
        wrong.append(f"{at}: a call without an id: {ids}")
    if len(set(ids)) != len(ids):
        wrong.append(f"{at}: an id twice: {ids}")
    for call in calls:
        inner = call.get("function") or call.get("custom")
        if not _NAME.fullmatch(inner.get("name") or ""):
            wrong.append(f"{at}: name {inner.get('name')!r}")
        if not isinstance(inner.get("arguments", inner.get("input")), str):
            wrong.append(f"{at}: arguments that are no text")
    return ids


def item_problems(messages):
    """OpenAI responses: every call has one result after it; reasoning leads to something of the model's."""
    wrong, opened = [], []
    for at, item in enumerate(messages):
        kind = item.get("type")
        if kind in {"function_call", "custom_tool_call"}:
            key = item.get("call_id")
            if not key or key in opened:
                wrong.append(f"{at}: call id {key!r}")
            if not _NAME.fullmatch(item.get("name") or ""):
                wrong.append(f"{at}: name {item.get('name')!r}")
            opened.append(key)
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            key = item.get("call_id")
            if key not in opened:
                wrong.append(f"{at}: result {key!r} answers nothing")
            else:
                opened.remove(key)
        elif kind == "reasoning":
            follower = messages[at + 1] if at + 1 < len(messages) else {}
            if follower.get("type") not in {"reasoning", "function_call", "custom_tool_call"} and (
                follower.get("role") != "assistant"
            ):
                wrong.append(f"{at}: reasoning that leads to nothing")
        elif item.get("role") not in {"system", "developer", "user", "assistant"}:
            wrong.append(f"{at}: neither a role nor a type")
        elif item["role"] == "assistant" and not item.get("content"):
            wrong.append(f"{at}: the model says nothing")
    return wrong + [f"end: call {key!r} was not answered" for key in opened]


def anthropic_problems(messages):
    """Anthropic: sides take turns from the user on; results come first, at once, once each; no blank text."""
    wrong, used, waiting, expected = [], set(), [], "user"
    start = 0
    while start < len(messages) and messages[start].get("role") == "system":
        start += 1  # lifted out by the caller
    for at, message in enumerate(messages[start:], start):
        role = message.get("role")
        if role != expected:
            wrong.append(f"{at}: {role!r} instead of {expected!r}")
        expected = "assistant" if role == "user" else "user"
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            wrong.append(f"{at}: no content")
            continue
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            wrong.append(f"{at}: blank text")
        results = [block for block in blocks if block["type"] == "tool_result"]
        if role == "user":
            if blocks[: len(results)] != results:
                wrong.append(f"{at}: results do not come first")
            if sorted(block["tool_use_id"] for block in results) != sorted(waiting):
                wrong.append(f"{at}: results {[block['tool_use_id'] for block in results]} for calls {waiting}")
        elif results:
            wrong.append(f"{at}: the model answers itself")
        if waiting and role != "user":
            wrong.append(f"{at}: calls {waiting} were not answered")
        waiting = []
        for block in blocks:
            if block["type"] == "tool_use":
                if block["id"] in used or not _ANTHROPIC_ID.fullmatch(block["id"] or ""):
                    wrong.append(f"{at}: id {block['id']!r}")
                if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", block["name"]):
                    wrong.append(f"{at}: name {block['name']!r}")
                used.add(block["id"])
                waiting.append(block["id"])
    return wrong + ([f"end: calls {waiting} were not answered"] if waiting else [])


_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def langchain_problems(messages):
    """LangChain: what its messages become for a provider follows the rules of chat completions."""
    return chat_problems([_sent(message) for message in messages])


def _sent(message):
    if isinstance(message, dict):
        fields = message.get("data", message)
        kind = message.get("type")
        if kind is None:
            return message  # a dict in the manner of chat completions passes as it is
    else:
        fields, kind = vars(message), message.type
    sent = {"role": _ROLES[kind], "content": fields["content"]}
    if kind == "tool":
        sent["tool_call_id"] = fields["tool_call_id"]
    calls = [(call["id"], call["name"], "{}") for call in fields.get("tool_calls") or ()]
    calls += [(call["id"], call["name"], "") for call in fields.get("invalid_tool_calls") or ()]
    if calls:
        sent["tool_calls"] = [
            {"id": key, "type": "function", "function": {"name": name, "arguments": text}} for key, name, text in calls
        ]
    return sent


PROBLEMS = {
    "openai": chat_problems,
    "items": item_problems,
    "anthropic": anthropic_problems,
    "langchain": langchain_problems,
}
