"""Every page over every store: complete, small, without anything that acts, with few queries."""

import json
import re
import time

import pytest
from canaries import NAMED, SHAPES, draw_letters, hits
from dashboard_site import NOW, Dashboard, ask, check_page, claim, make_invalid

import pokayoke
from pokayoke.core.state.run_state import step_down_to
from pokayoke.dashboard.desk import Sources
from pokayoke.dashboard.trace_index import TraceIndex
from pokayoke.stores.values import SwitchCommand

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\x1b[31m\x00\u2066 {{7*7}} {% raw %}'\""
NAME = HOSTILE.replace("\x00", "")
LONG = "𝔘" + "x" * 200_000


@pytest.fixture
def hostile(store):
    """A store whose every text was chosen by an enemy."""
    for number in range(60):
        key = claim(store, f"{number:08x}" + "ab" * 28, "in_doubt", tool=f"{NAME}{number}", run=f"run/{NAME}?x=1#y")
        if number % 3 == 0:
            claim(store, "f" + key[1:], "failed_final", tool=LONG[:5_000], run=NAME)
    for number in range(1, 30):
        ask(
            store,
            number,
            arguments={HOSTILE: HOSTILE, "long": LONG, "n": number},
            tool=NAME,
            why=(HOSTILE, LONG),
            run=NAME,
        )
    make_invalid(store, NAME)
    store.flip(SwitchCommand(LONG[:3_000], "open", HOSTILE, LONG, NOW))
    store.change_run(NAME, lambda run: step_down_to(run, "stopped", "kill_switch"))
    store.answer(store.approvals()[0].id, approved=False, by=HOSTILE, reason=LONG, now=NOW)
    return store


async def crawl(visit, start=("/",)):
    """Every page that links lead to, by its path."""
    waiting, seen = list(start), {}
    while waiting and len(seen) < 150:
        path = waiting.pop()
        if path in seen or path.startswith("/static"):
            continue
        answer = seen[path] = await visit.get(path)
        if answer.headers["content-type"].startswith("text/html") and answer.status_code != 303:
            waiting += [link for link in check_page(answer).links if link.startswith("/")]
    return seen


async def test_every_link_answers_and_no_page_acts(hostile, dashboard, ann):
    """From the first page on, every link leads to a page under 100 KB without anything inline, whatever names hold."""
    del hostile, dashboard
    seen = await crawl(ann)
    assert {path: one.status_code for path, one in seen.items() if one.status_code not in (200, 404)} == {}
    # What has no record of its own is said to be unknown: a run that only an enemy's text names.
    assert all(
        path.startswith(("/runs/", "/questions/", "/ledger/", "/too-long"))
        for path, one in seen.items()
        if one.status_code == 404
    )
    assert len(seen) > 60
    for answer in seen.values():
        if answer.headers["content-type"].startswith("text/html"):
            assert "<script>alert" not in answer.text
            assert "<img" not in answer.text
            shown = re.sub(r'value="[^"]*"', "", answer.text)  # a field keeps what was typed
            assert not set("\u202e\x1b\x00\u2066") & set(shown)
            assert "49" not in answer.text.partition("{{7*7}}")[0][-3:]


async def test_a_long_argument_is_folded_and_shown_in_full_on_demand(hostile, dashboard, ann):
    """The card stays small; its link leads to all 200,000 characters as text."""
    del dashboard
    waiting = hostile.waiting_approvals(NOW)[0]
    assert len((await ann.get(f"/questions/{waiting.id}")).content) < 20_000
    whole = await ann.get(f"/questions/{waiting.id}/arguments")
    assert whole.headers["content-type"].startswith("text/plain")
    assert "x" * 200_000 in whole.text


async def test_secrets_stay_hidden(store, ann):
    """What the redactor hides in the terminal is hidden on every page, and in the full view."""
    ident = ask(store)
    for path in ("/questions", f"/questions/{ident}", f"/questions/{ident}/arguments"):
        text = (await ann.get(path)).text
        assert "hunter2" not in text
        assert "[redacted]" in text


@pytest.mark.parametrize("place", [*NAMED, *SHAPES])
async def test_no_page_shows_a_canary(store, clock, tmp_path, place):
    """A secret in arguments, outputs, failures or the user's words is on no page, whatever became of the call."""
    text, secret = SHAPES[place](draw_letters(place)) if place in SHAPES else (draw_letters(place),) * 2
    given = {"note": f"see {text}"} if place in SHAPES else NAMED[place](text)

    def pay(**arguments):
        if arguments["way"] == "raise":
            raise RuntimeError(f"no: {text}")
        return {"wrong": text} if arguments["way"] == "damage" else {"id": "p1", "said": text}

    schema = {"type": "object", "properties": {"way": {"type": "string"}, "nip": {}, "note": {}, "more": {}}}
    output = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
    more = {"output_schema": output, "effect": "write", "redact": ("nip",), "handler": pay}
    tools = [
        pokayoke.Contract.from_schema("pay", schema, **more),
        pokayoke.Contract.from_schema("ask", schema, approval=True, **more),
    ]
    trace = TraceIndex(tmp_path / "trace.jsonl", tmp_path / "cache")
    settings = {"trace": {"path": str(trace.path)}, "retry": {"retries": 0}}
    guard = pokayoke.Guard(tools, store=store, config=settings, clock=clock)
    for number, (tool, way) in enumerate(
        [("ask", "x"), ("pay", "x"), ("pay", "x"), ("pay", "raise"), ("pay", "damage")]
    ):
        with guard.run(f"order-{number % 4}", prompt=f"Do it with {text if place in SHAPES else 'it'}.") as run:
            run.call(pokayoke.ToolCall(f"c{number}", tool, json.dumps({"way": way, **given})))
    guard.trace.flush()
    trace.refresh_all()
    visit = await Dashboard(store, clock, sources=Sources(trace=trace)).sign_in()
    seen = await crawl(visit)
    assert sum(path.startswith("/runs/") for path in seen) >= 4
    assert any(path.startswith("/questions/") for path in seen)
    pages = {path: answer.content for path, answer in seen.items()}
    assert b"order-1" in b"".join(pages.values())
    assert hits(pages, secret) == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/questions",
        "/ledger",
        "/ledger?state=doubt&tool=pay",
        "/audit",
        "/runs",
        "/runs?mode=stopped",
        "/tools",
        "/tools/pay",
        "/replay",
        "/setup",
        "/switches?scope=pay",
    ],
)
async def test_a_page_takes_three_queries_at_most(hostile, clock, path, monkeypatch):
    """And the counts beside the navigation, which all pages share."""
    ann = await Dashboard(hostile, clock).sign_in()
    asked = []
    original = type(hostile)._fetch_rows
    monkeypatch.setattr(
        type(hostile), "_fetch_rows", lambda self, statement: asked.append(statement) or original(self, statement)
    )
    await ann.get(path)
    counts = [sql for sql, _ in asked if "MAX(touched_at)" in sql]
    assert len(asked) - len(counts) <= 3
    assert len(counts) <= 1


async def test_a_filter_survives_pages_and_the_export_holds_what_it_shows(store, ann):
    """The next page keeps the filter; CSV and JSON Lines hold all of its rows, and a formula is defused."""
    for number in range(120):
        claim(store, f"{number:08x}" + "cd" * 28, "completed", tool="pay" if number % 2 else "=ship", at=NOW - number)
    seen, path = [], "/ledger?tool=pay&state=completed&age=24h"
    while path:
        page = check_page(await ann.get(path))
        seen += [
            link.removeprefix("/ledger/") for link in page.links if link.startswith("/ledger/") and "." not in link
        ]
        path = next((link for link in page.links if "after=" in link), "")
        assert not path or "tool=pay" in path
    assert len(seen) == len(set(seen)) == 60
    lines = (await ann.get("/ledger.jsonl?tool=pay&state=completed")).text.splitlines()
    assert [json.loads(line)["key"] for line in lines] == seen
    csv = (await ann.get("/ledger.csv?tool=%3Dship")).text
    assert "'=ship" in csv
    assert len(csv.splitlines()) == 61


@pytest.mark.parametrize(
    "path",
    [
        "/ledger?after=x",
        "/ledger?after=1e999~k",
        "/ledger?after=nan~k",
        "/ledger?age=9y&state=nothing&key=%27;--",
        "/questions?after=~",
        "/audit?before=99999999999999999999",
        "/audit?kind=x",
        "/runs?after=x~y&mode=z",
        "/switches?scope=" + "x" * 3_000,
        "/ledger/zz",
        "/ledger/%00%ff",
        "/questions/%F0%9F",
        "/runs/%00",
        "/tools/%0d%0a",
        "/replay/..%2f..%2fetc%2fpasswd",
        "/questions/../../etc/passwd",
        "/static/../application.py",
        "/ledger.exe",
    ],
)
async def test_an_address_of_any_kind_has_an_answer(ann, path):
    """Whatever a query or a path holds, the answer is a page or 404: never a failure."""
    answer = await ann.get(path)
    assert answer.status_code in (200, 400, 404)
    assert "passwd" not in answer.text.replace("/etc/passwd", "") or answer.status_code == 404
    assert "from __future__" not in answer.text


async def test_a_store_that_is_away_is_said_to_be_away(store, ann):
    """Every page says so with 503, nothing else happens, and a decision says that nothing was changed."""
    key = claim(store, "ab" * 32)
    token = await ann.csrf(f"/ledger/{key}")
    store.close()
    for path in ("/", "/questions", "/ledger", f"/ledger/{key}", "/audit", "/tools", "/switches"):
        answer = await ann.get(path)
        assert (answer.status_code, "Nothing was changed" in answer.text) == (503, True)
    answer = await ann.post(f"/ledger/{key}", {"csrf": token, "decision": "not_happened", "reason": "x"})
    assert answer.status_code == 503


async def test_reports_are_shown_in_a_page_that_can_do_nothing(store, clock, tmp_path):
    """A report is served in a sandbox; links out of the folder, symbolic links and other files are not served."""
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "a.html").write_text("<style>p{color:red}</style><script>alert(1)</script><p>figures")
    (folder / "secret.txt").write_text("x")
    (tmp_path / "outside.html").write_text("outside")
    (folder / "link.html").symlink_to(tmp_path / "outside.html")
    ann = await Dashboard(store, clock, sources=Sources(reports=folder)).sign_in()
    assert "a.html" in (await ann.get("/replay")).text
    report = await ann.get("/replay/a.html")
    assert report.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    for name in ("secret.txt", "link.html", "..%2foutside.html", "missing.html"):
        assert (await ann.get(f"/replay/{name}")).status_code == 404


async def test_an_empty_store_says_what_fills_it(store, ann):
    """No page is blank: each says which command or setting fills it."""
    del store
    for path, words in (
        ("/", "Nothing was decided"),
        ("/questions", "Nobody waits"),
        ("/ledger", "No effect was recorded"),
        ("/runs", "--trace FILE"),
        ("/tools", "No tool was called"),
        ("/replay", "--reports FOLDER"),
        ("/setup", "pokayoke install"),
    ):
        assert words in (await ann.get(path)).text


async def test_a_page_takes_little_time(hostile, ann):
    """A bound that catches a page which renders everything: 50 rows of hostile texts take well below a second of CPU."""
    del hostile
    for path in ("/", "/questions", "/ledger", "/audit"):
        await ann.get(path)
        begun = time.process_time()
        await ann.get(path)
        assert time.process_time() - begun < 1.0
