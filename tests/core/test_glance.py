"""The look that is enough for the usual answer says what the rooms say, or nothing."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from pokayoke import Contract
from pokayoke.core import output
from pokayoke.core.policy import ToolOutputPolicy

FIELDS = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "path": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "error": {"type": ["string", "null"]},
    },
}
TEXTS = st.sampled_from(
    [
        "a",
        "",
        "a/b.txt",
        "../x",
        "/etc/passwd",
        "<user_id>",
        "TODO",
        "...",
        "é",
        "<html><body>x",
        "a:b",
        "\\u003a",
        "x" * 20,
    ]
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "count": st.integers() | st.just(2**70) | TEXTS,
        "share": st.floats(allow_nan=False, allow_infinity=False) | st.just(1.0),
        "path": TEXTS,
        "tags": st.lists(TEXTS, max_size=3),
        "error": st.none() | TEXTS,
        "ok": st.booleans(),
    },
)
DAMAGE = st.sampled_from([
    lambda text: text, lambda text: text[:-1], lambda text: text.replace("}", ",}"), lambda text: text + text,
    lambda text: text.replace(":", ": "), lambda text: "[" * 70 + text + "]" * 70, lambda text: f"```json\n{text}\n```",
    lambda text: text.replace("{", '{"name": "b",', 1), lambda text: text.replace('"', "'"), lambda text: " " + text,
])  # fmt: skip
WRITTEN = st.builds(lambda value, damage: damage(json.dumps(value)), VALUES, DAMAGE) | st.sampled_from(
    ["", "null", "5", '"x"', "[]", '{"name": "\\ud800"}', '{"name": 1e999}', '{"name": "a", "na\\u006de": "b"}']
)


CONTRACTS = [
    Contract.from_schema("t", {}, output_schema=FIELDS, effect="read"),
    Contract.from_schema("t", {}, output_schema=FIELDS, effect="read", max_chars=30),
    Contract.from_schema("t", {}, output_schema=FIELDS, effect="read", output_checks="size_only"),
    Contract.from_schema("t", {}, output_schema=FIELDS, effect="read", invariants=(lambda value, _: "name" in value,)),
    Contract.from_schema("t", {}, output_schema="text", effect="read"),
    Contract.from_schema("t", {}, effect="read"),
    Contract.from_schema("t", {}, output_schema={}, effect="read"),
]


@given(st.sampled_from(CONTRACTS), WRITTEN | VALUES | WRITTEN.map(str.encode))
@example(CONTRACTS[0], '{"name": "a"}')
@example(CONTRACTS[0], '{"name": "a", "error": "no"}')
@example(CONTRACTS[0], '{"name": "<html>"}')
def test_an_answer_judged_at_a_glance_is_judged_as_in_the_rooms(contract, raw):
    """Whatever the look says about an answer, the rooms say alike; and an ordinary answer is judged by it."""
    policy = ToolOutputPolicy()
    quick, whole = output._at_a_glance(raw, contract, policy), output._checked(raw, contract, {}, policy)
    assert quick is None or quick == whole
    if contract is CONTRACTS[0] and raw == '{"name": "a"}':
        assert quick is not None
