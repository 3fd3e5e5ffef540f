"""The place of a call in a text decides whether it is the act, a suggestion, or only shown."""

import time

import pytest
from call_suite import KEY, NAME, PLACES, SCHEMA, meant_calls, shown_calls, write_call

import pokayoke
from pokayoke.core.intake import read_calls
from pokayoke.errors import UsageError
from pokayoke.testing import ScriptedModel

TOOLS = {NAME: SCHEMA, "look": {"type": "object"}}
CALL = write_call("hermes", "B-4")
OBJECT = write_call("object", "B-4")
LOOK = '<tool_call>\n{"name": "look", "arguments": {"at": "B"}}\n</tool_call>'


def judged(text, **known):
    """Each call with its grade and reason."""
    return [(one.name, one.reading.grade, one.reading.reason) for one in read_calls(text, tools=TOOLS, **known)]


ACT = [(NAME, "exact", None)]
SUGGESTED = [(NAME, "edited", "beside_text")]
SHOWN = [(NAME, "lossy", "disowned")]


@pytest.mark.parametrize(
    "between",
    [
        "Beobachtung: B ist leer",
        "Result: B is empty",
        "**Ausgabe:**\n```\nleer\n```",
        "<observation>B is empty</observation>",
        "<tool_response>\nB is empty\n</tool_response>",
        "结果：空的",
        "<think>B is empty.</think>",
    ],
)
def test_behind_a_made_up_result_nothing_is_called(between):
    """A call behind text that follows a call goes on from a result that nobody produced."""
    first, second = judged(f"{LOOK}\n{between}\n{CALL}")
    assert first == ("look", "edited", "beside_text")
    assert second == (NAME, "lossy", "after_text")


@pytest.mark.parametrize("behind", ["", "\n", "  \n\n", ";", "<|im_end|>", "</s>", "\n</tool_calls>"])
def test_closing_marks_and_separators_are_no_text(behind):
    """They end the message like nothing does."""
    assert judged(f"Jetzt.\n{CALL}{behind}") == ACT
    assert judged(f"{LOOK}{behind}\n{CALL}") == [("look", "exact", None), *ACT]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"ＯＫ。\n{CALL}", ACT),
        (f"I will never do this:\n{CALL}", ACT),
        (f"<|im_start|>assistant\n{CALL}<|im_end|>", ACT),
        (f"<|start_header_id|>assistant<|end_header_id|>\n\n{CALL}", ACT),
        (f"<think>ist es B?</think>{CALL}", ACT),
        (f"{CALL}\n{CALL}", [*ACT, *ACT]),
        (f"{CALL} ", ACT),
        (f"Ja: {CALL}", SUGGESTED),
        (f"{CALL}\n完成。", SUGGESTED),
        (OBJECT, ACT),
        (f"<think>B?</think>\n{OBJECT}", ACT),
        (f"```json\n{OBJECT}\n```", ACT),
        (f"`{OBJECT}`", ACT),
        (f"Also:\n{OBJECT}", SUGGESTED),
        (f"Also: `{OBJECT}`", SUGGESTED),
        (f"{OBJECT}\nالآن", SUGGESTED),
        (f"Also:\n```xml\n{CALL}\n```", SUGGESTED),
        (f"```xml\n{CALL}\n```", ACT),
        (f'Die Seite sagt: "{CALL}"', SHOWN),
        (f"他说：「{CALL}」", SHOWN),
        (f"Er schrieb: „Bitte {OBJECT}“", SHOWN),
        (f"Il dit « {CALL} »", SHOWN),
        (f"x = '{CALL}'", SHOWN),
        (f"Use `run {OBJECT}`", SHOWN),
        (f'"{OBJECT}"', SHOWN),
        (f"~~{CALL}~~", SHOWN),
        (f'He said "no".\n{CALL}', ACT),
        (f'He said "no" and {CALL}', SUGGESTED),
        (f"Don't wait.\n{CALL}", ACT),
        (f"It isn't: {OBJECT}", SUGGESTED),
        (f"<page>\n{OBJECT}\n</page>", SHOWN),
        (f"<page>x</page>\n{CALL}", ACT),
        (f"<br>\n{CALL}", ACT),
        (f"<page>\n{CALL}", SHOWN),
        (f"Set <name> to x.\n{CALL}", ACT),
        (f"```sh\nls\n{CALL}\n```\nok", SHOWN),
        (f"```sh\nls\n```\n{CALL}", ACT),
        (f"> {CALL}", SHOWN),
        (f"> {CALL}".replace("\n", "\n> "), SHOWN),
        (f"# {OBJECT}", SHOWN),
        (f"- [ ] {CALL}", SHOWN),
        (f"## Plan\n{CALL}", ACT),
        ('{"name": "move_crate", "parameters": {"type": "object", "properties": {"bay": {}}}}', []),
    ],
)
def test_the_place_of_a_call_decides(text, found):
    """In its family's marks at the beginning of a line and the end of the message it is the act, in any language."""
    assert judged(text) == found


@pytest.mark.parametrize(
    ("end", "reason"), [("<|call|>", None), ("", None), ("<|end|>", "disowned"), ("<|return|>", "disowned")]
)
def test_a_harmony_message_is_a_call_by_its_end(end, reason):
    """Only the token of a call, or the end of a whole message, makes it one."""
    text = f'<|channel|>analysis to=functions.{NAME} code<|message|>{{"bay": "B-4"}}{end}'
    assert [one[2] for one in judged(text)] == [reason]
    assert [one[2] for one in judged(text, stop_reason="length")] == ["cut_message"]


def test_a_form_that_the_host_asked_for_is_a_form_of_the_models_own():
    """Prose before it changes nothing then; text behind it, or on its line, does."""
    assert judged(f"Gut.\n{OBJECT}", form="json") == ACT
    assert judged(f"Gut.\n```json\n{OBJECT}\n```", form="jsonl") == ACT
    assert judged(f"Gut: {OBJECT}", form="json") == judged(f"{OBJECT}\nGut.", form="json") == SUGGESTED
    with pytest.raises(UsageError, match="unknown form 'xml'"):
        read_calls(OBJECT, form="xml")


def test_after_native_calls_a_call_in_the_text_is_a_suggestion():
    """A model that can call does not write."""
    assert judged(CALL, has_native_calls=True) == [(NAME, "edited", "not_native")]


@pytest.mark.parametrize(
    "read",
    [f"Lies: {CALL}", '{"page": ' + repr(CALL).replace('"', '\\"') + "}", CALL.replace("<", "\\u003c"), f"\\\\{CALL}"],
)
@pytest.mark.parametrize("text", [CALL, f"Ich fasse zusammen:\n{CALL}"])
def test_a_call_that_was_read_before_is_a_quotation(read, text):
    """Letter for letter, also where the text that was read was escaped."""
    assert judged(text, read_texts=[read]) == [(NAME, "lossy", "recited")]
    assert judged(text.replace("B-4", "B-5"), read_texts=[read]) == ACT


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "Gleich.\n<tool_call>",
        "<tool_call>\nmove it, please",
        "<|tool_call>\n",
        "<function=>{}",
        "<invoke name=>\n",
        "[TOOL_CALLS]",
        '>\n<tool_call>{"answer": 5}</tool_call>',
        'analysis to=functions.move_crate code {"bay": "B-4"}',
    ],
)
def test_marks_that_cannot_be_read_are_reported(text):
    """They begin a line outside of quotations, tags and code, so the message is no answer."""
    assert [one[1:] for one in judged(text)] == [("lossy", "unread_call")]


@pytest.mark.parametrize(
    "text",
    [
        "It begins with <tool_call> and ends with </tool_call>.",
        "```\n<tool_call>\n```",
        "> <tool_call>",
        'The mark is\n"<tool_call>"',
        "<page>\n<tool_call>\n</page>",
        "<think>\n<tool_call>\n</think>\nNichts.",
        "Action: we wait.",
        "</tool_call>",
        '{"a": 1.x, "s": "\n<tool_call>"}',
    ],
)
def test_marks_that_are_mentioned_are_none(text):
    """In a sentence, code, a quotation, a tag, data or thoughts nothing was lost."""
    assert judged(text) == []


def played(text, *more, effect="write"):
    """Let a model say this in a loop: what ran, and how it ended."""
    ran = []
    contract = pokayoke.Contract.from_schema(
        NAME, SCHEMA, output_schema="text", effect=effect, handler=lambda **given: (ran.append(given[KEY]), "moved")[1]
    )
    look = pokayoke.Contract.from_schema(
        "look", {"type": "object"}, output_schema="text", effect="read", handler=lambda **_: "empty"
    )
    model = ScriptedModel([text, *more], then="Done.")
    return ran, pokayoke.Guard([contract, look]).loop(model, "Go."), model


def test_meant_calls_run_or_come_back_with_a_hint_that_one_turn_follows():
    """At least 98 % of the writes, over all framings and five languages; the rest is unmarked beside prose."""
    done = again = number = 0
    for _, _, text, alone in meant_calls():
        number += 1
        ran, _, model = played(text)
        if ran:
            done += 1
            continue
        hint = str(model.seen[1])
        ran, _, _ = played(text, *[alone] * ("send the call alone" in hint))
        again += len(ran) == 1
    print(f"\nmeant calls: {number}, run at once {done}, after one hint {again}")
    assert number >= 200
    assert done + again >= 0.98 * number


def test_shown_calls_never_run_as_a_write():
    """Over all places and five languages; as a read only what is graded edited."""
    number = suggested = 0
    for place, _, _, text in shown_calls():
        number += 1
        assert played(text)[0] == [], (place, text)
        grades = {grade for name, grade, _ in judged(text) if name == NAME}
        ran = played(text, effect="read")[0]
        assert bool(ran) == ("edited" in grades), (place, text)
        suggested += bool(ran)
    print(f"\nshown calls: {number}, run as a read {suggested}")
    assert number >= 200
    assert len(PLACES) * 20 == number


@pytest.mark.parametrize(
    "unit",
    [
        "<tool_call>",
        "</tool_call>",
        "to=functions.x <|message|>",
        "to=functions.",
        "<|im_start|>user\n",
        "<|im_end|>",
        "<a>",
        "<a>\n",
        "</a>",
        '"',
        "`",
        "「",
        "{",
        "[",
        "(",
        "}",
        '<|"|>',
        "<|tool_call>call:a{",
        '<invoke name="a"><parameter name="b">',
        "]<]minimax[>[<a>",
        "TOOL>>>",
        "> ",
        "\u202e\u200b<tool_call>",
        f"{OBJECT}\nx\n",
    ],
)
def test_hostile_texts_are_judged_in_linear_time(unit):
    """200,000 characters of nothing but one sign or mark take no longer than a moment."""
    text = unit * (200_000 // len(unit))
    begun = time.process_time()
    read_calls(text, tools=TOOLS, read_texts=[text[:1000]])
    assert time.process_time() - begun < 4


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"\u202e{CALL}", SUGGESTED),
        (CALL.replace("<tool_call>", "<tool\u200b_call>"), SUGGESTED),
        (CALL.replace('"arguments"', '"argu\u200bments"'), [(NAME, "lossy", "unknown_envelope")]),
        ('<function=move\u200b_crate>{"bay": "x"}</function>', [("", "lossy", "unread_call")]),
        ('<function=mоve_crate>{"bay": "x"}</function>', [("mоve_crate", "exact", None)]),
    ],
)
def test_signs_that_nobody_sees_get_an_answer(text, found):
    """A mark with one in it is none, a name with one is another name; nothing runs as something else."""
    assert judged(text) == found
