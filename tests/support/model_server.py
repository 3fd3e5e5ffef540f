"""A model behind HTTP that plays a script: chat completions, responses and Anthropic messages, whole and streamed.

It speaks the wire formats as the providers document them and refuses what they refuse: a request whose history
breaks their rules gets a 400, so a client that sends one fails its test.
"""

import itertools
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from provider_rules import anthropic_problems, chat_problems, item_problems

TIRED = "(This went on for too long.)"
STOPS = {
    "chat": {"stop": "stop", "tools": "tool_calls", "length": "length", "filter": "content_filter"},
    "responses": {"stop": None, "tools": None, "length": "max_output_tokens", "filter": "content_filter"},
    "anthropic": {"stop": "end_turn", "tools": "tool_use", "length": "max_tokens", "filter": "refusal"},
}

ENDS = {
    "chat/completions": ("chat", "messages", chat_problems),
    "responses": ("responses", "input", item_problems),
    "messages": ("anthropic", "messages", anthropic_problems),
}


@dataclass
class Turn:
    """One reply.

    Args:
        text: what it says.
        calls: id, name and argument text of each call.
        stop: `stop`, `tools`, `length` or `filter`; None is the honest one.
        refusal: text of a refusal, where the provider has a place for one.
        tokens: tokens of the request and of the reply.
        breaks: events after which a stream ends, counted from its start; None sends all.
        then: a second reason to stop, in a chunk of its own behind the first: only chat streams have a place for it.
        rude: True if the connection then breaks, instead of ending in order.
        status: HTTP status; with another than 200, nothing else counts.
    """

    text: str = ""
    calls: tuple[tuple[Any, str, str], ...] = ()
    stop: str | None = None
    refusal: str = ""
    tokens: tuple[int, int] = (10, 5)
    breaks: int | None = None
    then: str | None = None
    rude: bool = False
    status: int = 200

    @property
    def end(self):
        """Why it ended."""
        return self.stop or ("tools" if self.calls else "stop")


@dataclass
class ModelServer:
    """Serves a script on a port of its own; use it in a with block.

    Attributes:
        url: where it listens.
        requests: path and body of every request, in order.
        refused: what was wrong with requests that were refused.
        at: when each request was there and when its answer was sent, in seconds of the monotonic clock.
        most: requests after which a client that never ends is told `TIRED`; None never.
    """

    turns: list[Turn]
    url: str = ""
    requests: list[tuple[str, dict]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    at: list[list[float]] = field(default_factory=list)
    most: int | None = None

    def __enter__(self):
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        return self

    def __exit__(self, *exc):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def bodies(self):
        """What was sent, in order."""
        return [body for _, body in self.requests]


def _handler(owner):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_POST(self):
            moments = [time.monotonic()]
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0].removeprefix("/v1").strip("/")
            if path not in ENDS:
                self._json(404, {"error": {"type": "not_found_error", "message": path}})
                return
            owner.requests.append((path, body))
            owner.at.append(moments)
            self._answer(path, body)
            moments.append(time.monotonic())

        def _answer(self, path, body):
            wire, history, rules = ENDS[path]
            if problems := rules(body[history]):
                owner.refused += problems
                self._json(400, {"error": {"type": "invalid_request_error", "message": "; ".join(problems)}})
                return
            turn = owner.turns[min(len(owner.requests), len(owner.turns)) - 1]
            if owner.most is not None and len(owner.requests) > owner.most:
                turn = Turn(TIRED)
            if turn.status != 200:
                self._json(turn.status, {"error": {"type": "overloaded_error", "message": "no"}})
            elif body.get("stream"):
                self._events(wire, STREAMS[wire](turn), turn)
            else:
                self._json(200, WHOLE[wire](turn))

        def _json(self, status, value):
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _events(self, wire, events, turn):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in events if turn.breaks is None else itertools.islice(events, turn.breaks):
                head = "" if wire == "chat" else f"event: {event['type']}\n"
                self._chunk(f"{head}data: {json.dumps(event)}\n\n")
            if turn.breaks is None and wire == "chat":
                self._chunk("data: [DONE]\n\n")
            if turn.rude:
                self.close_connection = True  # no last chunk: the body is not whole
            else:
                self._chunk("")

        def _chunk(self, text):
            data = text.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    return Handler


def _parts(text, size=3):
    return [text[at : at + size] for at in range(0, len(text), size)]


def _mixed(lists):
    """The lists, one of each in turn: how parallel calls come."""
    return [one for group in itertools.zip_longest(*lists) for one in group if one is not None]


# -- chat completions --------------------------------------------------------------------------------


def _chat_usage(turn):
    into, out = turn.tokens
    return {"prompt_tokens": into, "completion_tokens": out, "total_tokens": into + out}


def _chat(turn):
    message = {"role": "assistant", "content": turn.text or None, "refusal": turn.refusal or None, "annotations": []}
    if turn.calls:
        message["tool_calls"] = [
            {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}
            for ident, name, text in turn.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": STOPS["chat"].get(turn.end, turn.end), "logprobs": None}
    base = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**base, "choices": [choice], "usage": _chat_usage(turn)}


def _chat_stream(turn):
    def chunk(delta=None, finish=None, **more):
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": choices,
            **more,
        }

    yield chunk({"role": "assistant", "content": ""})
    for part in _parts(turn.text):
        yield chunk({"content": part})
    for part in _parts(turn.refusal):
        yield chunk({"refusal": part})
    for place, (ident, name, _) in enumerate(turn.calls):
        function = {"name": name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": place, "id": ident, "type": "function", "function": function}]})
    hands = [
        [{"tool_calls": [{"index": place, "function": {"arguments": part}}]} for part in _parts(text)]
        for place, (_, _, text) in enumerate(turn.calls)
    ]
    for delta in _mixed(hands):
        yield chunk(delta)
    yield chunk({}, STOPS["chat"].get(turn.end, turn.end))
    if turn.then is not None:
        yield chunk({}, turn.then)
    yield chunk(usage=_chat_usage(turn))


# -- responses ---------------------------------------------------------------------------------------


def _items(turn):
    found = []
    if turn.text or turn.refusal:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        if turn.refusal:
            part = {"type": "refusal", "refusal": turn.refusal}
        found.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]})
    for number, (ident, name, text) in enumerate(turn.calls):
        call = {"call_id": ident, "name": name, "arguments": text, "status": "completed"}
        found.append({"type": "function_call", "id": f"fc_{number}", **call})
    return found


def _response(turn):
    reason = STOPS["responses"].get(turn.end)
    into, out = turn.tokens
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None, "metadata": {},
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": _items(turn), "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": {"input_tokens": into, "output_tokens": out, "total_tokens": into + out, **details},
    }  # fmt: skip


def _response_stream(turn):
    number = itertools.count()

    def event(kind, **more):
        return {"type": f"response.{kind}", "sequence_number": next(number), **more}

    whole = _response(turn)
    yield event("created", response={**whole, "status": "in_progress", "output": [], "usage": None})
    for place, item in enumerate(whole["output"]):
        begun = {
            **item,
            "status": "in_progress",
            **({"content": []} if item["type"] == "message" else {"arguments": ""}),
        }
        yield event("output_item.added", output_index=place, item=begun)
        if item["type"] == "message":
            part = item["content"][0]
            kind, field_, text = (
                ("refusal", "refusal", turn.refusal) if turn.refusal else ("output_text", "text", turn.text)
            )
            at = {"output_index": place, "item_id": "msg_1", "content_index": 0}
            yield event("content_part.added", **at, part={**part, field_: ""})
            for piece in _parts(text):
                yield event(f"{kind}.delta", **at, delta=piece, logprobs=[])
            yield event(f"{kind}.done", **at, **{field_: text}, logprobs=[])
            yield event("content_part.done", **at, part=part)
        else:
            for piece in _parts(item["arguments"]):
                yield event("function_call_arguments.delta", output_index=place, item_id=item["id"], delta=piece)
            done = {"arguments": item["arguments"], "name": item["name"], "item_id": item["id"]}
            yield event("function_call_arguments.done", output_index=place, **done)
        yield event("output_item.done", output_index=place, item=item)
    yield event("incomplete" if whole["incomplete_details"] else "completed", response=whole)


# -- Anthropic messages ------------------------------------------------------------------------------


def _message(turn):
    content = (
        [{"type": "text", "text": turn.text or turn.refusal, "citations": None}] if turn.text or turn.refusal else []
    )
    content += [
        {"type": "tool_use", "id": ident, "name": name, "input": json.loads(text)} for ident, name, text in turn.calls
    ]
    into, out = turn.tokens
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": STOPS["anthropic"].get(turn.end, turn.end), "stop_sequence": None,
        "usage": {"input_tokens": into, "output_tokens": out},
    }  # fmt: skip


def _message_stream(turn):
    into, out = turn.tokens
    end = STOPS["anthropic"].get(turn.end, turn.end)
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    yield {
        "type": "message_start",
        "message": {**start, "stop_sequence": None, "usage": {"input_tokens": into, "output_tokens": 1}},
    }
    place = itertools.count()
    if text := turn.text or turn.refusal:
        at = next(place)
        yield {"type": "content_block_start", "index": at, "content_block": {"type": "text", "text": ""}}
        yield {"type": "ping"}
        for piece in _parts(text):
            yield {"type": "content_block_delta", "index": at, "delta": {"type": "text_delta", "text": piece}}
        yield {"type": "content_block_stop", "index": at}
    for ident, name, text in turn.calls:
        at = next(place)
        begun = {"type": "tool_use", "id": ident, "name": name, "input": {}}
        yield {"type": "content_block_start", "index": at, "content_block": begun}
        for piece in _parts(text):
            yield {
                "type": "content_block_delta",
                "index": at,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
        yield {"type": "content_block_stop", "index": at}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": end, "stop_sequence": None},
        "usage": {"output_tokens": out},
    }
    yield {"type": "message_stop"}


WHOLE = {"chat": _chat, "responses": _response, "anthropic": _message}
STREAMS = {"chat": _chat_stream, "responses": _response_stream, "anthropic": _message_stream}
