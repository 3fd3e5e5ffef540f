"""What a person has to know before a decision, and what a run has gone through, from real guards and commands."""

import html
import json
import re
import time
from contextlib import closing

import pytest
from clishell import Shell
from dashboard_site import NOW, Dashboard, check_page, claim

import pokayoke
from pokayoke.dashboard.desk import Sources
from pokayoke.dashboard.trace_index import RunPage, TraceIndex
from pokayoke.stores.values import SwitchCommand


@pytest.fixture
def trace(tmp_path):
    """The trace of the guard, and its index."""
    return TraceIndex(tmp_path / "trace.jsonl", tmp_path / "cache")


@pytest.fixture
async def bob(store, clock, trace):
    """Somebody who looks at the pages of the store and the trace."""
    return await Dashboard(store, clock, sources=Sources(trace=trace)).sign_in("bob")


def guard_of(store, clock, trace, **config):
    """A guard with a tool that pays, and one that answers with a page."""

    @pokayoke.tool(effect="write", output="text")
    def pay(order: str, cents: int) -> str:
        """Pay."""
        return "paid"

    @pokayoke.tool(effect="read")
    def look_up(order: str) -> dict[str, str]:
        """Look up an order."""
        return "<html>down for maintenance</html>"

    given = {"trace": {"path": str(trace.path)}, **config}
    return pokayoke.Guard([pay, look_up], store=store, config=given, clock=clock)


def text_of(answer):
    """The text of a page, as it is read."""
    assert answer.status_code == 200
    check_page(answer)
    page = re.sub(r"</t[dh]>", " ", answer.text[answer.text.index("<main") :])
    page = re.sub(r"<[^>]*>", "", page)
    return " ".join(html.unescape(page).split())


async def test_a_question_shows_the_users_words_the_limits_and_the_last_call(store, clock, trace, bob):
    """The card has what the user said, what limits have given out, and how the call differs from the last that ran."""
    limits = [{"tool": "pay", "per": "tool", "calls": 10}]
    amounts = [{"tool": "pay", "field": "cents", "above": 500}]
    guard = guard_of(store, clock, trace, limits=limits, approvals={"amounts": amounts})
    with guard.run("order-1", prompt="Pay A, please") as run:
        assert run.call(pokayoke.ToolCall("c1", "pay", {"order": "A", "cents": 100})).ok
    with guard.run("order-2", prompt="Pay B. The key is ghp_Zk3vQ8sLr2Tn6WbXy9Ha4Jd7Mf1Pc5Ge0Ui2") as run:
        asked = run.call(pokayoke.ToolCall("c2", "pay", {"order": "B", "cents": 9_900}))
    guard.trace.flush()
    trace.refresh_all()
    for page in ("/questions", f"/questions/{asked.approval}"):
        shown = text_of(await bob.get(page))
        assert "The user said: Pay B. The key is" in shown
        assert "ghp_Zk3vQ8s" not in shown
        assert "1 of 10 calls are used, and this call takes 1" in shown
        assert 'had cents 100 instead of 9900; order "A" instead of "B".' in shown


async def test_a_doubt_shows_the_row_of_the_business(clock, tmp_path):
    """After `ledger reconcile`, the page names the row, or says that there is none; a second run says nothing twice."""
    url, rows, at = f"sqlite:///{tmp_path}/own.db", tmp_path / "rows.jsonl", time.time() - 3_600.0
    with closing(pokayoke.open_store(url, create=True)) as store:
        bob = await Dashboard(store, clock).sign_in("bob")
        happened, lost = claim(store, "a1" * 32, at=at), claim(store, "b2" * 32, at=at)
        rows.write_text(json.dumps({"key": happened, "reference": "PO-7", "amount": "12.50"}) + "\n", encoding="utf-8")
        assert "was not compared with this effect yet" in text_of(await bob.get(f"/ledger/{happened}"))
        for _ in range(2):
            assert Shell(tmp_path)("ledger", "reconcile", "--store", url, "--rows", rows).returncode == 1
        assert "A row with the reference PO-7, amount 12.50, when" in text_of(await bob.get(f"/ledger/{happened}"))
        assert "No row of it, when" in text_of(await bob.get(f"/ledger/{lost}"))
        assert {line.subject for line in store.audit() if line.kind == "compared"} == {happened, lost}
        assert len([line for line in store.audit() if line.kind == "compared"]) == 2


async def test_a_run_shows_its_ladder_and_what_the_model_was_told(store, clock, trace, bob):
    """The modes stand in the order of time, and the words for the model are those it got."""
    guard = guard_of(store, clock, trace)
    with guard.run("order-1", prompt="Pay A") as run:
        run.call(pokayoke.ToolCall("c1", "look_up", {"order": "A"}))
        refused = run.call(pokayoke.ToolCall("c2", "pay", {"order": "A", "cents": 100}))
    guard.trace.flush()
    trace.refresh_all()
    assert "normal → safe mode at step 1" in text_of(await bob.get("/runs/order-1"))
    (call,) = [one for one in trace.calls("order-1", RunPage()) if one.tool == "pay"]
    assert " ".join(refused.text.split()) in text_of(await bob.get(f"/runs/order-1/calls/{call.number}"))


async def test_the_first_page_says_what_is_new_since_the_last_visit(store, clock, bob):
    """A second look in the same visit keeps the mark; the next visit begins after it."""
    assert "since you last looked" not in text_of(await bob.get("/"))
    clock.advance(7_200.0)
    store.flip(SwitchCommand("pay", "open", "ann", "incident", NOW + 3_600.0))
    for _ in range(2):
        assert "1 new since you last looked, 2 h ago." in text_of(await bob.get("/"))
        clock.advance(60.0)
    clock.advance(7_200.0)
    assert "0 new since you last looked, 2 h ago." in text_of(await bob.get("/"))


@pytest.mark.parametrize("cookie", ["", "x~y", "nan~nan", "1e999~1", "-1~-1", "9e99~9e99"])
async def test_a_cookie_of_any_kind_is_no_visit(bob, cookie):
    """What no page of this server has set is passed over."""
    bob.http.cookies.set("pokayoke-seen-8788", cookie, domain="127.0.0.1")
    assert (await bob.get("/")).status_code == 200
