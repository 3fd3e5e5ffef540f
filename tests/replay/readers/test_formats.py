"""Recordings of every format: the same two calls, read alike, whatever wrote them."""

import gzip
import json
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from pokayoke.errors import ConfigurationError
from pokayoke.replay.readers import FORMATS, Source, parse_map
from pokayoke.replay.readers.conversation import CallMatcher
from pokayoke.replay.readers.lines import LONGEST_LINE, InputFile
from pokayoke.replay.readers.source import READERS, parse_format, read_value
from pokayoke.replay.recording import Recording, UnreadRecord

ARGS = {"order_id": "A1"}
TEXT = json.dumps(ARGS)
OPENAI = {
    "conversation_id": "r1",
    "messages": [
        {"role": "user", "content": "where is it"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "find", "arguments": TEXT}},
                {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sent"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "Error: no"}]},
    ],
}
RESPONSES = {
    "id": "r1",
    "object": "response",
    "input": [
        {"type": "message", "role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": TEXT},
        {"type": "function_call_output", "call_id": "c1", "output": "sent"},
    ],
    "output": [
        {"type": "function_call", "call_id": "c2", "name": "pay", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": "Error: no"},
    ],
}
ANTHROPIC = {
    "session_id": "r1",
    "messages": [
        {"role": "user", "content": "where is it"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "t1", "name": "find", "input": ARGS},
                {"type": "tool_use", "id": "t2", "name": "pay", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sent"}]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "Error: no", "is_error": True},
            ],
        },
    ],
}
LANGCHAIN_DICTS = {
    "thread_id": "r1",
    "messages": [
        {"type": "human", "data": {"content": "x"}},
        {
            "type": "ai",
            "data": {
                "content": "",
                "tool_calls": [{"id": "c1", "name": "find", "args": ARGS}],
                "invalid_tool_calls": [{"id": "c2", "name": "pay", "args": "{}"}],
            },
        },
        {"type": "tool", "data": {"content": "sent", "tool_call_id": "c1", "status": "success"}},
        {"type": "tool", "data": {"content": "Error: no", "tool_call_id": "c2", "status": "error"}},
    ],
}
LANGCHAIN_DUMPED = {
    "thread_id": "r1",
    "messages": [
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "AIMessage"],
            "kwargs": {
                "content": "",
                "tool_calls": [{"id": "c1", "name": "find", "args": ARGS}, {"id": "c2", "name": "pay", "args": {}}],
            },
        },
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "ToolMessage"],
            "kwargs": {"content": "sent", "tool_call_id": "c1"},
        },
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "ToolMessage"],
            "kwargs": {"content": "Error: no", "tool_call_id": "c2"},
        },
    ],
}


def otlp(name, arguments, result, code=1):
    values = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.conversation.id": "r1",
        "gen_ai.tool.call.arguments": arguments,
        "gen_ai.tool.call.result": result,
    }
    return {
        "name": f"execute_tool {name}",
        "traceId": "t",
        "status": {"code": code},
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in values.items()],
    }


OTEL = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "name": "chat",
                            "traceId": "t",
                            "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
                        },
                        otlp("find", TEXT, "sent"),
                        otlp("pay", "{}", "Error: no", 2),
                    ]
                }
            ]
        }
    ]
}
TRACE = [
    {
        "ts": 1,
        "run_id": "r1",
        "step": 1,
        "event": "tool_result",
        "tool": "find",
        "ok": True,
        "call_id": "c1",
        "status": "ok",
        "contract": "find@1",
        "result": "sent",
        "decision": "allow",
        "arguments": ARGS,
    },
    {
        "ts": 1,
        "run_id": "r1",
        "step": 2,
        "event": "tool_call",
        "tool": "pay",
        "ok": True,
        "call_id": "c2",
        "decision": "allow",
        "contract": "pay@1",
        "arguments": {},
    },
    {"ts": 1, "run_id": "r1", "step": 2, "event": "stop", "ok": False, "reason": "x"},
    {
        "ts": 2,
        "run_id": "r1",
        "step": 2,
        "event": "tool_result",
        "tool": "pay",
        "ok": False,
        "call_id": "c2",
        "status": "failed",
        "contract": "pay@1",
    },
]
PLAIN = [
    {"tool": "find", "arguments": TEXT, "output": "sent", "run": "r1"},
    {"tool": "pay", "arguments": {}, "output": "Error: no", "run": "r1"},
]
FILES = {
    "openai-chat": [OPENAI],
    "openai-responses": [RESPONSES],
    "anthropic": [ANTHROPIC],
    "langchain": [LANGCHAIN_DICTS],
    "otel": [OTEL],
    "trace": TRACE,
    "plain": PLAIN,
}


@pytest.fixture
def file(tmp_path):
    """Writes records as JSON Lines; returns the name."""

    def write(records, name="r.jsonl"):
        text = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records)
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def reads(name, **options):
    with Source(name, **options) as source:
        return list(source.read_recordings())


def gist(read):
    arguments = json.loads(read.arguments) if isinstance(read.arguments, str) else read.arguments
    return read.tool, arguments, read.run


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_calls(kind, file):
    """A format is recognised without being named, and its two calls come out in order, with arguments and run."""
    name = file(FILES[kind])
    with Source(name) as source:
        assert source.kind.format == kind
        found = list(source.read_recordings())
    assert [gist(one) for one in found] == [("find", ARGS, "r1"), ("pay", {}, "r1")]
    assert found[0].output == "sent"
    assert found[1].output == ("Error: no" if kind != "trace" else UNSET)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_one_record_of_another_format_does_not_decide(at, file):
    """Most records decide the format, wherever the other one stands; among equally many the first one does."""
    records = [OPENAI] * 3
    records.insert(at, ANTHROPIC)
    with Source(file(records)) as source:
        assert source.kind.format == "openai-chat"
        found = list(source.read_recordings())
    assert [type(one) for one in found].count(UnreadRecord) == 1
    assert len(found) == 7
    for first, second, name in ((OPENAI, ANTHROPIC, "openai-chat"), (ANTHROPIC, OPENAI, "anthropic")):
        with Source(file([first, second])) as source:
            assert source.kind.format == name


def test_the_dumped_form_of_langchain(file):
    """LangChain's constructor form is read like its dictionary form."""
    assert [one.output for one in reads(file([LANGCHAIN_DUMPED]))] == ["sent", "Error: no"]


def test_langchains_own_dumps_are_read(file):
    """What langchain-core itself writes is recognised and read, in all three forms."""
    messages = pytest.importorskip("langchain_core.messages")
    load = pytest.importorskip("langchain_core.load")
    talk = [
        messages.AIMessage(content="", tool_calls=[{"id": "c1", "name": "find", "args": ARGS}]),
        messages.ToolMessage(content="sent", tool_call_id="c1"),
    ]
    for dumped in (messages.messages_to_dict(talk), [m.model_dump() for m in talk], [load.dumpd(m) for m in talk]):
        (found,) = reads(file([{"messages": dumped}]))
        assert (found.tool, found.arguments, found.output) == ("find", ARGS, "sent")


def test_errors_a_format_knows(file):
    """is_error is what the format itself says: True, False, or None where it says nothing."""
    said = {kind: [one.is_error for one in reads(file(FILES[kind]))] for kind in FORMATS}
    assert said == {
        "openai-chat": [None, None],
        "openai-responses": [None, None],
        "anthropic": [None, True],
        "langchain": [False, True],
        "otel": [None, True],
        "trace": [False, True],
        "plain": [None, None],
    }


def test_equal_ids_are_kept_apart(file):
    """Two calls with one id: each answer goes to the earliest call of that id without one."""
    assert [one.output for one in reads(file([OPENAI]))] == ["sent", "Error: no"]


def test_answers_in_another_order_find_their_calls(file):
    """Answers that come back in another order go to the calls they name; one that names none is reported."""
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in ("a", "b", "c")]
    answers = [{"role": "tool", "tool_call_id": name, "content": f"of {name}"} for name in ("c", "a", "z")]
    found = reads(file([{"messages": [{"role": "assistant", "tool_calls": calls}, *answers]}]))
    assert [(one.tool, one.output) for one in found[:3]] == [("a", "of a"), ("b", UNSET), ("c", "of c")]
    assert "not in the recording" in found[3].why


def test_answers_with_and_without_ids_find_the_earliest_call():
    """An answer without an id belongs to the earliest call that waits, whatever its id; each call gets one answer."""
    talk = CallMatcher("r", 1)
    for ident, name in [("1", "a"), (None, "b"), ("1", "c"), (2, "d")]:
        talk.add_call(ident, name, {})
    for ident, output in [("1", "of a"), (None, "of b"), ("2", "of d"), (None, "of c"), ("1", "none"), (None, "none")]:
        talk.add_answer(ident, output)
    found = list(talk.list_recordings())
    assert [one.output for one in found[:4]] == ["of a", "of b", "of c", "of d"]
    assert [type(one) for one in found[4:]] == [UnreadRecord, UnreadRecord]


def test_calls_without_an_answer_cost_the_others_nothing():
    """An answer is not compared with the calls that never got one, however many they are."""
    asked = 0

    class Ident(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal asked
            asked += 1
            return str.__eq__(self, other)

    talk = CallMatcher("r", 1)
    for index in range(500):
        talk.add_call(Ident(f"c{index}"), "t", {})
        talk.add_call(Ident(f"d{index}"), "t", {})
        talk.add_answer(Ident(f"d{index}"), "ok")
    assert sum(one.output == "ok" for one in talk.list_recordings()) == 500
    assert asked < 5 * 500


def test_a_call_without_a_name_is_reported(file):
    """A call without a name, or with arguments that are neither text nor object, is no call."""
    blocks = [{"type": "tool_use", "id": "1", "input": {}}, {"type": "tool_use", "id": "2", "name": "t", "input": [1]}]
    found = reads(file([{"messages": [{"role": "assistant", "content": blocks}]}]))
    assert [type(one) for one in found] == [UnreadRecord, UnreadRecord]


def test_a_completion_keeps_its_finish_reason(file):
    """A completion that was cut hands its reason on, so that replay refuses its calls."""
    record = {
        "id": "x",
        "choices": [
            {
                "finish_reason": "length",
                "message": {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "function": {"name": "find", "arguments": "{}"}}],
                },
            }
        ],
    }
    (found,) = reads(file([record]))
    assert found.stop_reason == "length"


def test_an_incomplete_response_is_cut(file):
    """The Responses API says `incomplete`: its calls are cut ones."""
    record = {
        "id": "x",
        "object": "response",
        "status": "incomplete",
        "output": [{"type": "function_call", "call_id": "1", "name": "find", "arguments": "{}"}],
    }
    assert reads(file([record]))[0].stop_reason == "incomplete"


def test_a_write_that_never_ended_is_a_call_without_an_answer(file):
    """A trace that ends in the middle of a write still gives the call."""
    (found,) = reads(file(TRACE[1:2]))
    assert (found.tool, found.output) == ("pay", UNSET)


def test_a_refused_call_of_a_trace_keeps_the_models_text(file):
    """`raw` is what the model wrote; it counts before the arguments."""
    event = {
        "run_id": "r",
        "step": 1,
        "event": "tool_call",
        "tool": "find",
        "ok": False,
        "decision": "refuse",
        "raw": '{"order_id": "A',
        "arguments": {},
    }
    assert reads(file([event]))[0].arguments == '{"order_id": "A'


def test_replayed_calls_count_once(file):
    """A call that was answered from the ledger is not another call."""
    replayed = [{**TRACE[1], "decision": "replay", "step": 3}, {**TRACE[3], "status": "replayed", "step": 3}]
    assert len(reads(file([*TRACE, *replayed]))) == 2


@pytest.mark.parametrize("stub", [{"bytes": 9000}, {"bytes": 5, "sha256": "ab"}])
def test_payloads_that_were_not_recorded_are_named(stub, file):
    """A trace without payloads gives no invented arguments, but a reason; an unrecorded result is no result."""
    (found,) = reads(file([{**TRACE[0], "arguments": stub}]))
    assert isinstance(found, UnreadRecord)
    assert "not recorded" in found.why
    assert reads(file([{**TRACE[0], "result": stub}]))[0].output is UNSET


@pytest.mark.parametrize(
    ("status", "is_error", "code"),
    [
        ("ok", False, None),
        ("failed", True, None),
        ("in_doubt", True, None),
        ("degraded", None, "wrong_type"),
        ("invalid_output", None, "wrong_type"),
        ("pending", None, None),
    ],
)
def test_how_a_call_of_a_trace_ended(status, is_error, code, file):
    """What nobody knows of has failed, and an answer that broke its contract is no answer: its finding is."""
    findings = [{"code": "wrong_type", "at": "/id", "blame": "tool", "message": "no"}]
    (found,) = reads(file([{**TRACE[0], "status": status, "findings": findings, "result": "x"}]))
    assert (found.is_error, found.fault and found.fault.code) == (is_error, code)
    assert (found.output is UNSET) == (code is not None)


@pytest.mark.parametrize("findings", [None, [], [5], [{"at": "/id"}], "[redacted]"])
def test_an_invalid_answer_without_its_finding_is_invalid(findings, file):
    """A trace that lost the finding still says that the answer broke its contract."""
    (found,) = reads(file([{**TRACE[0], "status": "degraded", "findings": findings}]))
    assert found.fault.code == "schema_mismatch"


def test_the_end_of_an_unknown_call_is_named(file):
    """The second event of a write whose first one is in an older file is reported."""
    assert [type(one) for one in reads(file(TRACE[3:]))] == [UnreadRecord]


def test_otel_values_of_every_kind(file):
    """OTLP wraps values: maps, lists, numbers as texts; a result written as a JSON string is the text in it."""
    span = otlp("find", "", '"sent \\u00e9"')
    span["attributes"][3] = {
        "key": "gen_ai.tool.call.arguments",
        "value": {
            "kvlistValue": {
                "values": [
                    {"key": "n", "value": {"intValue": "12"}},
                    {"key": "l", "value": {"arrayValue": {"values": [{"boolValue": True}, {"doubleValue": 0.5}]}}},
                ]
            }
        },
    }
    (found,) = reads(file([{"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}]))
    assert found.arguments == {"n": 12, "l": [True, 0.5]}
    assert found.output == "sent é"


def test_an_sdk_span_is_read(file):
    """The Python SDK's own JSON of a span is read too, and an error type makes it a failure."""
    span = {
        "name": "execute_tool find",
        "context": {"trace_id": "0x1"},
        "status": {"status_code": "UNSET"},
        "attributes": {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "find",
            "gen_ai.tool.call.arguments": TEXT,
            "error.type": "ValueError",
        },
    }
    (found,) = reads(file([span]))
    assert (found.run, found.is_error, found.output) == ("0x1", True, UNSET)


def test_a_span_without_content_is_named(file):
    """Exporters leave arguments out by default: that is said, not guessed."""
    span = {"context": {}, "attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find"}}
    (found,) = reads(file([span]))
    assert "gen_ai.tool.call.arguments" in found.why


def test_a_cut_line_is_reported_with_its_number(file):
    """One line cut in the middle: its number and the reason, and every other line still counts."""
    name = file([PLAIN[0], json.dumps(PLAIN[1])[:20], "", PLAIN[1]])
    found = reads(name)
    assert [one.line for one in found] == [1, 2, 4]
    assert isinstance(found[1], UnreadRecord)
    assert "cut" in found[1].why


def test_a_record_of_another_kind_is_reported(file):
    """A line that is JSON and no record of the file's kind is reported, and the rest counts."""
    found = reads(file([OPENAI, {"hello": 1}, OPENAI]))
    assert [type(one).__name__ for one in found] == ["Recording", "Recording", "UnreadRecord", "Recording", "Recording"]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("claimed", FORMATS)
def test_a_file_of_another_kind_is_named(kind, claimed, file):
    """A file that is not what it is said to be is an error that names what it looks like; never a wrong reading."""
    name = file(FILES[kind])
    if kind == claimed:
        assert reads(name, claimed=claimed)
        return
    with pytest.raises(ConfigurationError, match=rf"no recording of the kind {claimed}\.") as error:
        reads(name, claimed=claimed)
    assert kind in str(error.value) or "first record" in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("hello\nworld\n", "is no JSON Lines"),
        ('{"a": 1}\n', "no known kind"),
        ("[1, 2]\n", "no known kind"),
        ("\x00\x01\n", "is no JSON Lines"),
        ("{\n", "is no JSON Lines"),
    ],
)
def test_what_is_no_recording(content, said, tmp_path):
    """A file that is no recording is a clear error."""
    (tmp_path / "x").write_text(content)
    with pytest.raises(ConfigurationError, match=said):
        reads(str(tmp_path / "x"))


def test_files_that_cannot_be_opened(tmp_path):
    """A folder and an absent file are clear errors."""
    with pytest.raises(ConfigurationError, match="is a folder"):
        Source(str(tmp_path))
    with pytest.raises(ConfigurationError, match="No such file"):
        Source(str(tmp_path / "none"))


def test_a_json_document_over_many_lines(tmp_path):
    """A pretty-printed list of records, and one pretty-printed conversation, are read."""
    (tmp_path / "list.json").write_text(json.dumps(PLAIN, indent=2))
    (tmp_path / "one.json").write_text(json.dumps(OPENAI, indent=2))
    with Source(str(tmp_path / "list.json")) as source:
        assert [gist(one) for one in source.read_recordings()] == [("find", ARGS, "r1"), ("pay", {}, "r1")]
        assert source.kind.unit == "item"
    assert len(reads(str(tmp_path / "one.json"))) == 2


def test_a_bare_list_of_messages_is_a_conversation(file):
    """A line that is a list of messages is one conversation; a list of records is several."""
    assert len(reads(file([OPENAI["messages"]]))) == 2
    assert len(reads(file([PLAIN]))) == 2


def test_a_byte_order_mark_costs_no_call(tmp_path):
    """What some editors put before the first line is no part of it."""
    (tmp_path / "r").write_bytes(b"\xef\xbb\xbf" + "".join(json.dumps(one) + "\n" for one in PLAIN).encode())
    assert [type(one) for one in reads(str(tmp_path / "r"))] == [Recording, Recording]


@pytest.mark.parametrize("place", [12, 20, 40])
def test_a_damaged_compressed_file_is_told(tmp_path, place):
    """Whatever is overwritten in it, what cannot be unpacked is a sentence with the file's name."""
    data = bytearray(gzip.compress("".join(json.dumps(one) + "\n" for one in PLAIN).encode()))
    data[place : place + 4] = b"\xff" * 4
    (tmp_path / "r.gz").write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"r\.gz"):
        reads(str(tmp_path / "r.gz"))


def test_gzip_is_recognised(tmp_path):
    """A compressed file is read as it is; one cut in the middle is an error that says so."""
    data = gzip.compress("".join(json.dumps(one) + "\n" for one in PLAIN).encode())
    (tmp_path / "r.gz").write_bytes(data)
    assert len(reads(str(tmp_path / "r.gz"))) == 2
    (tmp_path / "cut.gz").write_bytes(data[:-10])
    with pytest.raises(ConfigurationError, match="cannot be read to its end"):
        reads(str(tmp_path / "cut.gz"))


def test_a_line_without_end_is_not_kept(tmp_path):
    """A line of more than 16 MB is reported by its number; the next line is read."""
    path = tmp_path / "r.jsonl"
    with path.open("w") as file:
        file.write(
            json.dumps(PLAIN[0]) + "\n" + '{"x": "' + "a" * (LONGEST_LINE + 10) + '"}\n' + json.dumps(PLAIN[1]) + "\n"
        )
    found = reads(str(path))
    assert [(one.line, type(one).__name__) for one in found] == [
        (1, "Recording"),
        (2, "UnreadRecord"),
        (3, "Recording"),
    ]
    assert found[1].why == "the line is longer than 16 MB"


def test_a_document_on_one_line_that_is_too_long(tmp_path):
    """A file whose first line is too long to be read is told as that, and not as one that holds no JSON."""
    path = tmp_path / "r.json"
    path.write_text(json.dumps([{**PLAIN[0], "output": "a" * LONGEST_LINE}]))
    with pytest.raises(ConfigurationError, match="its first line is longer than 16 MB"):
        reads(str(path))


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line and b"\r" not in line), max_size=20),
    st.integers(1, 60),
)
def test_blocks_hold_every_line_once(lines, size):
    """However the blocks are cut, their lines are the file's lines, and each knows its number. A mark at the start is none."""
    if lines and lines[0][:2] == b"\x1f\x8b":
        return  # it says that it is compressed, and is not
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(line + b"\n" for line in lines))
        file.flush()
        held = InputFile(file.name)
        numbered = []
        for block in held.read_blocks(size):
            numbered += enumerate(block.data.split(b"\n")[:-1], block.line)
        held.close()
    assert numbered == list(enumerate([line.removeprefix(b"\xef\xbb\xbf") for line in lines[:1]] + lines[1:], 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "type",
                    "content",
                    "messages",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "input",
                    "id",
                    "event",
                    "run_id",
                    "attributes",
                    "resourceSpans",
                    "scopeSpans",
                    "spans",
                    "key",
                    "value",
                    "data",
                    "kwargs",
                    "lc",
                    "choices",
                    "message",
                    "output",
                    "tool",
                    "args",
                    "status",
                ]
            )
            | st.text(max_size=4),
            inner
            | st.sampled_from(["assistant", "tool", "ai", "tool_use", "function_call", "tool_result", "tool_call"]),
            max_size=5,
        )
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("kind", FORMATS)
@given(value=JSON)
def test_no_record_breaks_a_reader(kind, value):
    """Whatever JSON a line holds, a reader returns calls or reasons, and raises nothing."""
    reader = READERS[kind]()
    found = [*read_value(value, reader, 1), *reader.finish()]
    assert all(isinstance(one, (Recording, UnreadRecord)) for one in found)
    assert all(isinstance(one.arguments, (str, dict)) for one in found if isinstance(one, Recording))


def test_the_mapping_of_plain_lines(file):
    """Parts come from the named fields: nested ones, indexed ones, and several joined for the run."""
    record = {
        "call": {"fn": "find", "a": TEXT},
        "answers": [{"v": 1}],
        "task": 3,
        "trial": "x",
        "right": {"order_id": "B"},
        "bad": "true",
    }
    fields = parse_map("tool=call.fn,arguments=call.a,output=answers.0.v,run=task+trial,truth=right,is_error=bad")
    (found,) = reads(file([record]), fields=fields)
    assert (found.tool, found.arguments, found.output, found.run) == ("find", TEXT, 1, "3 x")
    assert (found.truth, found.is_error) == ({"order_id": "B"}, True)


def test_a_plain_line_without_its_parts_is_named(file):
    """A record without a tool name or arguments is reported with the field that was asked for."""
    found = reads(file([PLAIN[0], {"arguments": {}}, {"tool": "x"}, {"tool": "x", "arguments": [1]}, [1]]))
    assert [one.why for one in found[1:4]] == [
        "no tool name in the field 'tool'",
        "no arguments in the field 'arguments'",
        "no arguments in the field 'arguments'",
    ]
    assert isinstance(found[4], UnreadRecord)


@pytest.mark.parametrize("text", ["toool=x", "tool", "tool=", "tool=a,tool=b"])
def test_a_mapping_that_cannot_work(text):
    """An unknown part, a part without a field and a part named twice are errors."""
    with pytest.raises(ConfigurationError, match="--map"):
        parse_map(text)


def test_an_unknown_format_lists_the_known_ones():
    """--format names one of the formats, or auto."""
    assert parse_format("auto") is None
    assert parse_format("otel") == "otel"
    with pytest.raises(ConfigurationError, match="openai-chat"):
        parse_format("csv")


def test_waiting_calls_are_bounded():
    """A trace in which no write ever ends holds back at most 10,000 calls."""
    reader = READERS["trace"]()
    out = 0
    for step in range(10_050):
        out += len(list(reader.read_record({**TRACE[1], "step": step}, step)))
    assert out == 50
    assert len(list(reader.finish())) == 10_000
