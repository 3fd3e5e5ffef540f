"""Calls inside a model's thoughts, examples and quotations."""

import pytest

from pokayoke.core.intake import read_arguments, read_calls


@pytest.mark.parametrize("tag", ["THINK", "Think", "Tool_Response"])
def test_thoughts_are_thoughts_in_any_case(tag):
    """The case of a tag says nothing about what is inside of it."""
    found = read_calls(f'<{tag}>{{"name": "pay", "arguments": {{}}}}</{tag}>', tools={"pay": None})
    assert found.calls == ()


THOUGHTS = [
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<scratch_pad>", "</scratch_pad>"),
    ("<inner_monologue>", "</inner_monologue>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<think>", "</think >"),
]


@pytest.mark.parametrize(("opens", "closes"), THOUGHTS)
def test_thoughts_are_thoughts_in_the_signs_of_every_model(opens, closes):
    """What stands between the signs of thoughts is no call, with both of them, with the last, and with the first."""
    one, other = (f'{{"name": "pay", "arguments": {{"a": {a}}}}}' for a in (1, 2))

    def calls(text: str) -> list[object]:
        return [(call.reading.value, call.reading.reason) for call in read_calls(text, tools={"pay": None}).calls]

    assert calls(f"{opens}It is {one}.{closes}\n{other}") == [({"a": 2}, None)]
    assert calls(f"It is {one}.{closes}\n{other}") == [({"a": 2}, None)]
    assert calls(f"{opens}It is {one}.{closes}") == []
    assert calls(f"{opens}\n{one}") == [(None, "quoted")]


@pytest.mark.parametrize(("opens", "closes"), THOUGHTS)
def test_thoughts_about_arguments_are_no_arguments(opens, closes):
    """An object within thoughts is not what is sent; one behind them is."""
    assert read_arguments(f'{opens}It may be\n{{"a": 1}}\n{closes}').reason == "quoted"
    assert read_arguments(f'{opens}It is one.{closes}\n{{"a": 1}}').value == {"a": 1}


@pytest.mark.parametrize("tag", ["del", "strike", "blockquote"])
def test_what_is_struck_out_or_quoted_by_a_tag_is_no_call(tag):
    """The tag says that it is not what is meant now."""
    assert read_calls(f'<{tag}>{{"name": "f", "arguments": {{"a": 1}}}}</{tag}>').calls == ()


def test_what_stands_in_an_example_is_no_call():
    """A tag says so, as it does for thoughts and lists of tools."""
    assert read_calls('<example>{"name": "f", "arguments": {"a": 1}}</example>').calls == ()
