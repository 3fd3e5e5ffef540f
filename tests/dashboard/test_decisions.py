"""What people decide on the pages: the same as with the commands, once, with a name and a reason."""

import asyncio

import pytest
from dashboard_site import NOW, Dashboard, ask, claim, make_invalid

from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim

KEY = "ab" * 32


@pytest.mark.parametrize(("decision", "status"), [("approve", "approved"), ("deny", "denied")])
async def test_an_answer_is_recorded_with_who_and_why(store, ann, decision, status):
    """The question has its answer, the audit has the name of the session and the reason."""
    ident = ask(store)
    answer = await ann.submit(f"/questions/{ident}", decision=decision, reason="checked with the customer")
    assert answer.status_code == 303
    known = store.approval(ident)
    assert (known.status, known.by, known.reason) == (status, "ann", "checked with the customer")
    assert ident in (await ann.get(answer.headers["location"])).text


@pytest.mark.parametrize(
    "fields",
    [
        {"decision": "approve"},
        {"decision": "approve", "reason": "   "},
        {"reason": "x"},
        {"decision": "yes", "reason": "x"},
    ],
)
async def test_an_answer_needs_a_decision_and_a_reason(store, ann, fields):
    """Anything less is 422, says what is missing, and the question still waits."""
    ident = ask(store)
    answer = await ann.submit(f"/questions/{ident}", **fields)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert store.approval(ident).status == "waiting"


async def test_of_two_people_at_once_one_is_told(store, dashboard, ann):
    """Yes and no at the same moment: one is recorded, the other reads whose answer stands."""
    bob = await dashboard.sign_in("bob")
    ident = ask(store)
    both = await asyncio.gather(
        ann.submit(f"/questions/{ident}", decision="approve", reason="fine"),
        bob.submit(f"/questions/{ident}", decision="deny", reason="no"),
    )
    assert sorted(answer.status_code for answer in both) == [303, 409]
    known = store.approval(ident)
    late = next(answer for answer in both if answer.status_code == 409)
    assert f"already, by {known.by}" in late.text
    assert len([line for line in store.audit() if line.subject == ident]) == 1


async def test_an_expired_question_takes_no_answer(store, ann, clock):
    """The page that was open says so and leads back to what waits."""
    ident = ask(store, expires=NOW + 10.0)
    token = await ann.csrf(f"/questions/{ident}")
    clock.advance(20.0)
    answer = await ann.post(f"/questions/{ident}", {"csrf": token, "decision": "approve", "reason": "x"})
    assert (answer.status_code, "expired" in answer.text, 'href="/questions"' in answer.text) == (409, True, True)


async def test_a_doubt_is_settled_with_a_reference(store, ann):
    """It happened: the record is completed, with the reference, by the session's name; the list shows it no more."""
    claim(store, KEY)
    page = (await ann.get(f"/ledger/{KEY}")).text
    assert "Not run again: pay already ran" in page
    assert "etry" not in page
    answer = await ann.submit(f"/ledger/{KEY}", decision="happened", reference="PO-7", reason="seen in the shop")
    assert answer.status_code == 303
    record = store.record(KEY)
    assert (record.state, record.reference, record.decided_by) == ("completed", "PO-7", "ann")
    assert KEY not in (await ann.get("/ledger?state=doubt")).text


async def test_a_doubt_is_settled_as_not_happened(store, ann):
    """It did not: the same call may run once more, and that is all that happens."""
    claim(store, KEY)
    answer = await ann.submit(f"/ledger/{KEY}", decision="not_happened", reason="no such order")
    assert answer.status_code == 303
    assert (store.record(KEY).state, store.record(KEY).attempt) == ("failed_retriable", 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"decision": "happened", "reason": "x"},
        {"decision": "happened", "reference": "PO", "reason": " "},
        {"decision": "", "reason": "x"},
        {"decision": "retry", "reason": "x"},
    ],
)
async def test_a_doubt_needs_more_than_a_click(store, ann, fields):
    """No reference, no reason, no decision: 422, and it stays in doubt."""
    claim(store, KEY)
    assert (await ann.submit(f"/ledger/{KEY}", **fields)).status_code == 422
    assert store.record(KEY).state == "in_doubt"


async def test_a_doubt_that_another_has_settled_is_said_so(store, ann, dashboard):
    """The second form of two open pages changes nothing and says why."""
    claim(store, KEY)
    bob = await dashboard.sign_in("bob")
    token = await bob.csrf(f"/ledger/{KEY}")
    await ann.submit(f"/ledger/{KEY}", decision="happened", reference="PO-7", reason="seen")
    answer = await bob.post(f"/ledger/{KEY}", {"csrf": token, "decision": "not_happened", "reason": "x"})
    assert (answer.status_code, "Nothing was changed" in answer.text) == (409, True)
    assert store.record(KEY).decided_by == "ann"


async def test_the_kill_switch_refuses_writes_of_every_process(store, ann):
    """Opened on the page, the next write is refused in the admission; closed again, it runs."""

    def admit(number):
        wish = Claim(f"k{number}", "h", "c", "pay", "pay@1", "r", NOW + number, 9.0)
        return store.admit(AdmissionRequest("r", "pay", "write", None, NOW + number, wish))

    page = (await ann.get("/switches?scope=*")).text
    assert "every write is refused" in page
    assert (
        await ann.submit("/switches", "/switches?scope=*", scope="*", mode="open", reason="incident 42")
    ).status_code == 303
    refused = admit(1)
    assert (refused.kind, refused.finding.code) == ("refuse", "kill_switch")
    assert "All writes are off" in (await ann.get("/")).text
    await ann.submit("/switches", "/switches?scope=*", scope="*", mode="closed", reason="repaired")
    assert admit(2).kind == "execute"
    assert [(line.kind, line.by, line.reason) for line in store.audit()] == [
        ("switch", "ann", "incident 42"),
        ("switch", "ann", "repaired"),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "open"},
        {"mode": "open", "reason": ""},
        {"mode": "ajar", "reason": "x"},
        {"mode": "open", "scope": " ", "reason": "x"},
    ],
)
async def test_a_switch_needs_a_reason(store, ann, fields):
    """Without one, or with another word, nothing is switched."""
    answer = await ann.submit("/switches", "/switches?scope=*", **{"scope": "*", **fields})
    assert answer.status_code == 422
    assert store.switches() == ()


async def test_opening_pages_decides_nothing(store, ann):
    """GET with the fields of a form changes nothing."""
    ident, key = ask(store), claim(store, KEY)
    make_invalid(store)
    before = store.audit()
    for path in (
        f"/questions/{ident}?decision=approve&reason=x",
        f"/ledger/{key}?decision=happened&reference=1&reason=x",
        "/switches?scope=*&mode=open&reason=x",
    ):
        assert (await ann.get(path)).status_code == 200
    assert store.audit() == before


async def test_guards_are_fired_on_demand(store, clock):
    """The set-up page shows what an examination found, and when."""
    from pokayoke.dashboard.desk import SetupReport, Sources  # noqa: PLC0415 - used here alone

    report = SetupReport(
        NOW - 60.0,
        (("parser", "cut-off JSON", True), ("ledger", "two claims", False)),
        (("trace", "t.jsonl", "cannot be written"),),
    )
    ann = await Dashboard(store, clock, sources=Sources(examine=lambda: report)).sign_in()
    assert "Nothing was examined" in (await ann.get("/setup")).text
    await ann.submit("/setup")
    page = (await ann.get("/setup")).text
    assert "did not fire" in page
    assert "cannot be written" in page


async def test_two_people_have_to_approve_where_the_question_says_so(store, dashboard, ann):
    """The card says so; the first yes leaves it waiting, the same person is refused, and another one completes it."""
    ident = ask(store, approvers=2)
    page = f"/questions/{ident}"
    assert "Two different people have to approve this." in (await ann.get(page)).text
    await ann.submit(page, decision="approve", reason="looks right")
    assert store.approval(ident).status == "waiting"
    assert "ann approved it" in (await ann.get("/questions")).text
    again = await ann.submit(page, decision="approve", reason="once more")
    assert (again.status_code, "Not recorded" in again.text) == (409, True)
    bob = await dashboard.sign_in("bob")
    assert (await bob.submit(page, decision="approve", reason="agreed")).status_code == 303
    assert store.approval(ident).status == "approved"
    assert "endorsed" in (await ann.get("/audit")).text
