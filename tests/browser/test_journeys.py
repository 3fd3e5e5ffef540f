"""What operators do, in a real Chromium over both stores; a console line or a report of the policy fails each of it."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest
from browser_site import Person, Site

import pokayoke
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Settlement

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(180)]
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e"


def close_account(customer: str) -> str:
    """Close an account."""
    return f"closed {customer}"


def guard_of(store, trace=None):
    """A guard that asks before it closes an account."""
    tool = pokayoke.tool(effect="destructive", approval=True, output="text")(close_account)
    return pokayoke.Guard([tool], store=store, config={"trace": {"path": str(trace)}} if trace else None)


def ask(store, number):
    """A call that asks; what it answers before anybody has."""
    with guard_of(store).run(f"run-{number}", prompt=f"Close account C-{number}") as run:
        return run.call(pokayoke.ToolCall("c", "close_account", f'{{"customer": "C-{number}"}}'))


def doubt(store, number=1, tool="pay"):
    """An effect that nobody knows the end of."""
    key, now = f"{number:08x}" + "ab" * 28, time.time()
    store.admit(
        AdmissionRequest("run-1", tool, "write", (), now, Claim(key, "h", "c", tool, f"{tool}@1", "run-1", now, 60.0))
    )
    store.settle(Settlement(key, "c", "in_doubt", now, failure="the answer was lost"))
    return key


def test_an_agent_waits_until_a_person_answers_in_the_page(visit, store):
    """The card appears without a reload, the answer is recorded with the name, and the agent's own loop goes on."""
    ann = visit()
    ann.goto("/questions")
    ann.wait_live()
    ended = []

    async def agent():
        guard = guard_of(store)
        with guard.run("order-1", prompt="Close account C-1") as run:
            outcome = await run.acall(pokayoke.ToolCall("c", "close_account", '{"customer": "C-1"}'))
            assert outcome.status == "pending"
            await guard.approvals.await_(outcome.approval, 120.0)
            ended.append(await run.acall(pokayoke.ToolCall("c2", "close_account", '{"customer": "C-1"}')))

    running = threading.Thread(target=lambda: asyncio.run(agent()), daemon=True)
    running.start()
    ann.page.wait_for_selector("[data-card]")
    ann.page.fill("[data-card] input[name=reason]", "checked with the customer")
    ann.page.click("button[value=approve]")
    ann.page.wait_for_selector(".done")
    running.join(60)
    assert [outcome.status for outcome in ended] == ["ok"]
    assert [(line.kind, line.by, line.reason) for line in store.audit()] == [
        ("approved", "Ann", "checked with the customer")
    ]


def test_a_change_is_on_the_screen_within_a_second_or_so(visit, store):
    """From the write in another program to the row on the screen."""
    ann = visit()
    ann.goto("/ledger?state=doubt")
    ann.wait_live()
    ann.page.wait_for_timeout(1_200)
    begun = time.monotonic()
    key = doubt(store)
    ann.page.wait_for_selector(f"a[href='/ledger/{key}']")
    took = time.monotonic() - begun
    print(f"visible after {took:.2f} s")
    assert took < 20.0  # catches a page that never hears of it


def test_a_doubt_settled_in_one_tab_disappears_in_the_other(visit, store):
    """Both tabs are open; the second one loses the row by itself, and a form that was open there is told."""
    key = doubt(store)
    ann = visit()
    ann.goto("/ledger?state=doubt")
    ann.wait_live()
    other = ann.open_tab()
    other.goto(f"{ann.site.url}/ledger/{key}")
    other.fill("input[name=reason]", "seen in the shop")
    other.fill("input[name=reference]", "PO-7")
    other.click("button[value=happened]")
    ann.page.wait_for_selector("text=Nothing is in doubt")
    assert (store.record(key).state, store.record(key).decided_by) == ("completed", "Ann")


def test_of_two_people_one_is_told(visit, store):
    """Both have the question open and answer; the second reads whose answer stands."""
    ident = ask(store, 1).approval
    ann, bob = visit("Ann"), visit("Bob", java_script_enabled=False)
    for person in (ann, bob):
        person.goto(f"/questions/{ident}")
        person.page.fill("input[name=reason]", f"{person.name} decides")
    ann.page.click("button[value=approve]")
    ann.page.wait_for_selector(".done")
    bob.page.click("button[value=deny]")
    assert "already, by Ann" in bob.page.inner_text("[role=alert]")
    assert store.approval(ident).by == "Ann"


WRITER = """
import sys, pokayoke
@pokayoke.tool(effect="write", output="text")
def note(text: str) -> str:
    "Write a note."
    return "written"
with pokayoke.Guard([note], store=sys.argv[1]).run("other-process") as run:
    outcome = run.call(pokayoke.ToolCall("c", "note", '{"text": "x"}'))
    print(outcome.status, outcome.findings[0].code if outcome.findings else "")
"""


def test_the_kill_switch_stops_a_write_in_another_process(visit, store_url):
    """Opened with two steps and a reason, the next write of a program elsewhere is refused."""
    ann = visit()
    ann.goto("/")
    ann.page.click("text=Refuse all writes…")
    assert "every write is refused" in ann.page.inner_text("main")
    ann.page.fill("input[name=reason]", "incident 42")
    ann.page.click("button[value=open]")
    ann.page.wait_for_selector(".alarm")
    done = subprocess.run(
        [sys.executable, "-c", WRITER, store_url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["refused", "kill_switch"], done.stderr


def test_back_forward_and_reload_keep_the_filter(visit, store):
    """The filter stands in the address, survives an effect that was opened, and the fields show it."""
    key = doubt(store)
    doubt(store, 2, "ship")
    ann = visit()
    ann.goto("/ledger")
    ann.page.select_option("select[name=state]", "doubt")
    ann.page.fill("input[name=tool]", "pay")
    ann.page.click("text=Filter")
    ann.page.click(f"a[href='/ledger/{key}']")
    ann.page.go_back()
    for _ in range(2):
        assert ann.page.input_value("input[name=tool]") == "pay"
        assert ann.page.locator("tbody tr").count() == 1
        ann.page.reload()
    ann.page.go_forward()
    assert key in ann.page.inner_text("main")


def test_everything_works_by_keyboard_alone(visit, store):
    """J finds the card, d asks for the reason, Enter sends the no; a slip of a finger sends nothing."""
    ident = ask(store, 1).approval
    ann = visit()
    ann.goto("/questions")
    ann.wait_live()
    ann.page.keyboard.press("j")
    ann.page.keyboard.press("d")
    assert ann.page.evaluate("document.activeElement.name") == "reason"
    assert store.approval(ident).status == "waiting"
    ann.page.keyboard.type("wrong account")
    ann.page.keyboard.press("Enter")
    ann.page.wait_for_selector(".done")
    known = store.approval(ident)
    assert (known.status, known.reason) == ("denied", "wrong account")


def test_everything_works_without_scripts(visit, store):
    """Sign in, read, filter, answer and settle as plain links and forms."""
    ident, key = ask(store, 1).approval, doubt(store)
    bob = visit("Bob", java_script_enabled=False)
    bob.goto("/")
    bob.page.click("text=Open questions")
    bob.page.fill("input[name=reason]", "fine")
    bob.page.click("button[value=approve]")
    assert store.approval(ident).status == "approved"
    bob.goto(f"/ledger/{key}")
    bob.page.fill("input[name=reason]", "no such order")
    bob.page.click("button[value=not_happened]")
    assert store.record(key).state == "failed_retriable"


@pytest.mark.parametrize("late", ["hx-csp", "hx-sse", "htmx"])
def test_a_script_that_arrives_late_is_waited_for(visit, late):
    """The page becomes live, and guards its nonces, whichever of its scripts comes last."""
    ann = visit()

    def hold(route):
        time.sleep(0.4)
        route.continue_()

    ann.page.route(f"**/{late}.min.js", hold)
    ann.goto("/questions")
    ann.wait_live()


def test_what_somebody_types_survives_a_change(visit, store):
    """A page that changes by itself keeps the focus and the half-written reason."""
    ask(store, 1)
    ann = visit()
    ann.goto("/questions")
    ann.wait_live()
    ann.page.click("input[name=reason]")
    ann.page.keyboard.type("half a rea")
    ask(store, 2)
    ann.page.locator("[data-card]").nth(1).wait_for()
    ann.page.keyboard.type("son")
    assert ann.page.evaluate("document.activeElement.value") == "half a reason"


def test_names_of_an_enemy_are_text(visit, store):
    """Markup in tools and arguments is shown and not executed."""
    doubt(store, 1, HOSTILE)
    ann = visit()
    dialogs = []
    ann.page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    for path in ("/", "/ledger", "/ledger?state=doubt", "/tools"):
        ann.goto(path)
        ann.wait_live()
    ann.goto("/ledger")
    assert "<img src=x onerror=alert(1)><script>" in ann.page.inner_text("main")
    assert dialogs == []


def test_a_restarted_server_is_said_to_be_away_and_asks_to_sign_in(browser, store_url, tmp_path):
    """The open page stops being live; after the restart it says that nobody has signed in, and the link lets in."""
    del tmp_path
    site = Site(store_url)
    ann = Person(browser, site, "Ann")
    ann.goto("/")
    ann.wait_live()
    site.close()
    ann.page.wait_for_selector("#live-state:not(.on)", timeout=60_000)
    again = Site(store_url, site.address)
    try:
        ann.page.reload()
        assert "Nobody has signed in" in ann.page.inner_text("main") or "Sign in" in ann.page.inner_text("main")
        ann.page.goto(f"{again.url}/enter?token={again.tokens[-1]}")
        ann.page.fill("input[name=name]", "Ann")
        ann.page.click("button")
        ann.wait_live()
    finally:
        ann.context.close()
        again.close()


SCREENS = (
    "/",
    "/questions",
    "/ledger",
    "/ledger?state=doubt",
    "/audit",
    "/runs",
    "/runs/run-1",
    "/tools",
    "/tools/pay",
    "/replay",
    "/setup",
    "/switches?scope=*",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1_400])
def test_no_screen_shuts_people_out(visit, store, axe, scheme, width):
    """Axe finds nothing on any screen, and no screen is wider than the window."""
    key, ident = doubt(store), ask(store, 1).approval
    ann = visit(color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    found = {}
    for path in (*SCREENS, f"/ledger/{key}", f"/questions/{ident}"):
        ann.goto(path)
        ann.page.evaluate(axe)
        violations = ann.page.evaluate(
            "axe.run().then(found => found.violations.map(one => one.id + ' ' + one.nodes.map(n => n.target).join(' ')))"
        )
        wide = ann.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if violations or wide > 0:
            found[path] = (violations, wide)
    assert found == {}
