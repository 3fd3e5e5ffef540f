"""Invariants, declared rules, and structure extracted from text."""

from typing import Any

import pytest
from output_cases import GOOD, PAGE, code, judge, later

from pokayoke.core.call import Raw
from pokayoke.core.contract.terms import Compare, Equal, Format, Range


def leave(value: Any = None) -> Any:
    raise SystemExit(value)


def piecemeal(output: Any, arguments: Any) -> Any:
    yield True


class Awaitable:
    def __await__(self):
        return iter(())


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (lambda output, arguments: None, None),
        (lambda output, arguments: True, None),
        (lambda output, arguments: output["user_id"] == arguments["user_id"], None),
        (lambda output, arguments: [], None),
        (lambda output, arguments: 1, None),
        (lambda output, arguments: False, "invariant_failed"),
        (lambda output, arguments: 0, "invariant_failed"),
        (lambda output, arguments: "", "invariant_failed"),
        (lambda output, arguments: "user is locked", "invariant_failed"),
        (lambda output, arguments: ["a", "b"], "invariant_failed"),
        (lambda output, arguments: ("a",), "invariant_failed"),
        (lambda output, arguments: output["absent"], "invariant_raised"),
        (lambda output, arguments: leave("bye"), "invariant_raised"),
        (lambda output: True, "invariant_raised"),
        (later, "invariant_raised"),
        (piecemeal, "invariant_raised"),
        (lambda output, arguments: Awaitable(), "invariant_raised"),
        (lambda output, arguments: output.clear(), "output_changed"),
        (lambda output, arguments: output["tags"].append("b"), "output_changed"),
    ],
)
def test_an_invariant_never_escapes(rule, expected):
    """Whatever a rule returns, raises or changes, the result is a finding or nothing."""
    assert code(judge(GOOD, arguments={"user_id": "u1"}, invariants=(rule,))) == expected


def test_every_complaint_of_a_rule_is_reported():
    """A list of sentences is as many findings; the rule is named."""
    found = judge(GOOD, invariants=(lambda output, arguments: ["a", "b"],)).findings
    assert [one.message.rpartition(": ")[2] for one in found] == ["a", "b"]


def test_a_keyboard_interrupt_belongs_to_the_person():
    """Ctrl-C during a rule or an extract function is not swallowed."""

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(GOOD, invariants=(interrupt,))
    with pytest.raises(KeyboardInterrupt):
        judge("x", extract=interrupt)


BOOKING = {
    "id": "B1",
    "total": 10,
    "start": "2026-01-02",
    "end": "2026-01-05",
    "at": "2026-01-02T10:00:00Z",
    "until": "2026-01-02T11:00:00+00:00",
    "opens": "09:00",
    "closes": "17:00:00",
    "items": [{"price": 3, "email": "a@example.com"}, {"price": 7.5, "email": None}],
    "flag": True,
    "nothing": None,
    "deep": {"list": [1, {"x": True}]},
}


@pytest.mark.parametrize(
    ("rule", "at"),
    [
        (Range("/total", 0, 10), None),
        (Range("/total", 11), "/total"),
        (Range("/total", None, 9.5), "/total"),
        (Range("/items/*/price", 0, 7), "/items/1/price"),
        (Range("/items/0/price", 3, 3), None),
        (Range("/items/7/price", 3, 3), None),
        (Range("/items/x/price", 3, 3), None),
        (Range("/absent", 1), None),
        (Range("/nothing", 1), None),
        (Range("/flag", 0), "/flag"),
        (Range("/id", 0), "/id"),
        (Range("/id/deeper", 0), None),
        (Format("/start", "date"), None),
        (Format("/items/*/email", "email"), None),
        (Format("/id", "date"), "/id"),
        (Format("/total", "date"), "/total"),
        (Compare("/start", "<", "/end"), None),
        (Compare("/end", "<=", "/start"), "/end"),
        (Compare("/at", "<", "/until"), None),
        (Compare("/opens", "<", "/closes"), None),
        (Compare("/total", ">=", "/items/*/price"), None),
        (Compare("/total", "<", "/items/*/price"), "/total"),
        (Compare("/id", "<", "/start"), "/id"),
        (Compare("/id", "<", "/total"), "/id"),
        (Compare("/start", "<", "/at"), "/start"),
        (Compare("/start", "!=", "/end"), None),
        (Compare("/start", "==", "/end"), "/start"),
        (Compare("/deep", "==", "/deep"), None),
        (Compare("/nothing", "<", "/total"), None),
        (Compare("/total", "<", "/nothing"), None),
    ],
)
def test_declared_rules_hold_or_name_the_place(rule, at):
    """Ranges, formats and comparisons are evaluated for every place their pointers reach."""
    found = judge(BOOKING, {"type": "object"}, invariants=(rule,)).findings
    assert [one.at for one in found] == ([] if at is None else [at] * len(found))
    assert bool(found) is (at is not None)


@pytest.mark.parametrize(
    ("given_", "returned", "holds"),
    [
        ("u1", "u1", True),
        ("u1", "u2", False),
        (1, 1.0, True),
        (1, True, False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a": 1}, {"b": 1}, False),
        ([1, 2], [1], False),
        ("1", 1, False),
    ],
)
def test_the_answer_is_about_what_was_asked(given_, returned, holds):
    """An id in the output equals the one in the arguments, as JSON equality sees it."""
    rule = Equal("/user_id", "/user_id")
    checked = judge({"user_id": returned}, {"type": "object"}, arguments={"user_id": given_}, invariants=(rule,))
    assert checked.ok is holds
    assert judge({"user_id": returned}, {"type": "object"}, invariants=(rule,)).ok


def test_each_item_may_equal_any_of_the_ids_asked_for():
    """With wildcards, every id returned is one of those asked for."""
    rule = Equal("/*/id", "/ids/*")
    items = [{"id": "a"}, {"id": "b"}]
    assert judge(items, {"type": "array"}, arguments={"ids": ["b", "a"]}, invariants=(rule,)).ok
    found = judge(items, {"type": "array"}, arguments={"ids": ["a"]}, invariants=(rule,)).findings
    assert [one.at for one in found] == ["/1/id"]


def read(text: str) -> Any:
    return {"user_id": text.split("=")[1]}


@pytest.mark.parametrize(
    "raw",
    ["id=u1", b"id=u1", Raw("id=u1", "text/plain"), {"content": [{"type": "text", "text": "id=u1"}]}],
)
def test_structure_taken_from_text_is_held_to_the_schema(raw):
    """Free text is read by the contract's function, and what that returns is validated."""
    assert judge(raw, extract=read).value == {"user_id": "u1"}


@pytest.mark.parametrize(
    ("raw", "function", "expected"),
    [
        ("no id", read, "extract_failed"),
        ("x", lambda text: leave(), "extract_failed"),
        ("x", lambda text: {"plan": "pro"}, "missing_field"),
        ("x", lambda text: print, "not_serialisable"),
        (PAGE, read, "html_instead_of_data"),
        (Raw(b"\xff", "text/plain"), read, "bad_encoding"),
        (b"\xff", read, "bad_encoding"),
    ],
)
def test_a_text_that_cannot_be_read_is_a_finding(raw, function, expected):
    """An extract function that fails, or gives something else, ends in a finding."""
    assert code(judge(raw, extract=function)) == expected
