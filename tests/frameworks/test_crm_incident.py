"""The CRM incident in every framework: a customer system is down, and the agent then wants to refund.

Nothing is declared but what the tools say of themselves. The table of what a return annotation can tell is the one of
the guide; below it is the checklist of the incident, row by row.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from conversation import HOST, calls, modes
from framework_shop import PAGE, Shop
from model_server import Turn

from pokayoke import Equal
from pokayoke.errors import ContractError


@dataclass
class Customer:
    """What a customer system returns."""

    id: str
    plan: Literal["free", "pro", "enterprise"]


ASKED = calls(("call_0", "crm", {"customer": "C-1"}))
REFUND = calls(("call_1", "refund", {"order_id": "A1", "amount": 5}))
SAID = "C-1 is on enterprise, and the refund is made."
HELD, FAILED, DATA = "held back", "the tool's failure", "passes"
KINDS = {"`-> dict`": dict, "`-> str`": str, "no annotation": None}
GOOD = {"id": "C-1", "plan": "enterprise"}
TABLE = {
    "a web page": (PAGE, (HELD, HELD, HELD)),
    "a web page in a wrapper without data": (
        {"ok": True, "profile": PAGE, "note": "upstream returned HTML inside JSON wrapper"},
        (HELD, HELD, HELD),
    ),
    "nothing but the report of a failure": ({"ok": True, "error": PAGE}, (FAILED, FAILED, FAILED)),
    "a web page beside data": ({**GOOD, "profile": PAGE}, (HELD, DATA, DATA)),
    "an error beside data": ({**GOOD, "ok": True, "error": "upstream is down"}, (HELD, DATA, DATA)),
    "JSON that was cut": (json.dumps(GOOD)[:-2], (HELD, DATA, DATA)),
}
ROWS = [
    pytest.param(answer, kind, became, id=f"{name}, {written}")
    for name, (answer, all_three) in TABLE.items()
    for (written, kind), became in zip(KINDS.items(), all_three, strict=True)
]


def crm_shop(answer, kind):
    """A shop beside a customer system that answers each question with the same, and says that it returns `kind`."""

    class CrmShop(Shop):
        def functions(self, names=None):
            def crm(customer: str):
                """Look a customer up."""
                self.note("crm", customer=customer)
                return answer if kind is not str or isinstance(answer, str) else json.dumps(answer)

            if kind is not None:
                crm.__annotations__["return"] = kind
            return [crm, *super().functions(("refund",))]

    return CrmShop


@pytest.fixture
def incident(play):
    """Play the incident: the customer system answers, the model asks for the refund and claims it."""

    def played(answer, kind, *asked, **options):
        turns, shop = (*(asked or (ASKED, REFUND)), Turn(SAID)), crm_shop(answer, kind)
        options = {"declares": False, "reads": ("crm",), **options}
        if kind is None and getattr(HOST, "DEMANDS_OUTPUT", False):
            with pytest.raises(ContractError, match=r"no output contract: crm@1\. Annotate what the function returns"):
                play(*turns, shop=shop, **options)
            pytest.skip("a function without an annotation is refused")
        return play(*turns, shop=shop, **options)

    return played


def assert_held(seen, note="Not done: refund (an answer it may build on was unusable)."):
    """Nothing of the answer reached the model, nothing was built on it, and the user reads that."""
    assert [one["tool"] for one in seen.happened] == ["crm"]
    assert "enterprise" not in json.dumps(seen.bodies)
    assert "Bad Gateway" not in json.dumps(seen.bodies)
    assert re.search("answer (?:cannot|is too large to) be used", seen.answers[0])
    assert seen.text.startswith(SAID)
    assert note in seen.text or HOST.PACKAGE == "fastmcp"  # a server has no part in the last word


# -- what can be told without a declaration ----------------------------------------------------------


@pytest.mark.parametrize(("answer", "kind", "became"), ROWS)
def test_what_a_return_annotation_can_tell(incident, answer, kind, became):
    """Each row of the guide's table."""
    seen = incident(answer, kind)
    if became == HELD:
        assert_held(seen)
        return
    assert [one["tool"] for one in seen.happened] == ["crm", "refund"]
    assert seen.text == SAID
    if became == FAILED:
        assert "crm reports a failure" in seen.answers[0]
        assert "an HTML page" in seen.answers[0]
        assert "Bad Gateway" not in json.dumps(seen.bodies)
    else:
        trust = "unchecked" if kind is None else "checked"
        assert re.search(rf'trust=\\?"{trust}\\?">', seen.answers[0])
        assert "enterprise" in seen.answers[0]


@modes
@pytest.mark.parametrize("reads", [("crm",), ()], ids=["a read", "undeclared"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_page_is_never_data_and_no_write_is_built_on_it(incident, mode, kind, reads):
    """Whatever the tool says that it returns, and though an undeclared tool counts as a write, in every mode."""
    assert_held(incident(PAGE, kind, mode=mode, reads=reads))


def test_the_guide_has_the_table():
    """It lists each row, with what becomes of it."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "frameworks.md").read_text(encoding="utf-8")
    rows = [f"| {name} | {' | '.join(became)} |" for name, (_, became) in TABLE.items()]
    assert [row for row in (f"| the tool returns | {' | '.join(KINDS)} |", *rows) if row not in guide] == []


# -- the checklist -----------------------------------------------------------------------------------


CHECKLIST = {
    "enforce a maximum response size": ({"id": "x" * 200_000, "plan": "enterprise"}, Customer),
    "verify the content type": ({"body": json.dumps(GOOD), "content_type": "text/html", "status": 200}, dict),
    "parse strictly: NaN": ('{"id": "C-1", "plan": "enterprise", "seats": NaN}', dict),
    "parse strictly: one key twice": ('{"id": "C-1", "id": "C-2", "plan": "enterprise"}', dict),
    "validate the schema": ({"plan": "enterprise"}, Customer),
    "validate enums": ({"id": "C-1", "plan": "enterprise plus"}, Customer),
}


@pytest.mark.parametrize(("answer", "kind"), CHECKLIST.values(), ids=CHECKLIST)
def test_an_answer_that_breaks_its_type_is_held_back(incident, answer, kind):
    """Size, content type, strict parsing, schema and enums, with no more than the annotation of the function."""
    assert_held(incident(answer, kind))


def test_an_answer_that_breaks_an_invariant_is_held_back(incident):
    """The profile of somebody else."""
    fields = {"crm": {"invariants": (Equal("/id", "/customer"),)}}
    assert_held(incident({"id": "C-2", "plan": "enterprise"}, Customer, fields=fields))
    seen = incident(GOOD, Customer, fields=fields)
    assert "enterprise" in seen.answers[0]


def test_to_fail_closed_stops_the_run(incident):
    """With `fail_closed` nothing more runs, and the user reads what was not done."""
    seen = incident(PAGE, dict, config={"safe_mode": {"on_invalid_output": "fail_closed"}})
    assert [one["tool"] for one in seen.happened] == ["crm"]
    assert "Bad Gateway" not in json.dumps(seen.bodies)
    assert SAID not in seen.text or HOST.PACKAGE == "fastmcp"


def test_the_trace_names_class_version_and_arguments(incident, tmp_path):
    """An error class, a tool version and a hash of the arguments, and once that writes have stopped."""
    incident(PAGE, dict, config={"trace": {"path": str(tmp_path / "trace.jsonl")}})
    events = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    [result] = [one for one in events if one["event"] == "tool_result" and one["tool"] == "crm"]
    assert (result["ok"], result["error"], result["contract"]) == (False, "ToolOutputInvalid", "crm@1")
    assert len(result["args_hash"]) == 64
    [stop] = [one for one in events if one["event"] == "stop"]
    assert (stop["reason"], stop["safe_mode"]) == ("invalid_tool_output", "skip_writes")


def test_a_row_of_invalid_answers_is_an_alert(incident, tmp_path):
    """Five customers in one message, five pages: the trace has one alert."""
    asked = calls(*((f"call_{number}", "crm", {"customer": f"C-{number}"}) for number in range(5)))
    incident(PAGE, dict, asked, config={"trace": {"path": str(tmp_path / "trace.jsonl")}})
    events = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [one["tool"] for one in events if one["event"] == "alert"] == ["crm"]
