"""The index of trace files: found by seeking, kept in step with files that grow, rotate, are cut off or damaged."""

import json
import sqlite3
import threading

import pytest
from dashboard_site import Dashboard, check_page

import pokayoke
from pokayoke.dashboard.desk import Sources
from pokayoke.dashboard.trace_index import RunPage, TraceIndex


@pytest.fixture
def path(tmp_path):
    """Where the trace lies."""
    return tmp_path / "trace.jsonl"


@pytest.fixture
def index(path, tmp_path):
    """An index of the trace."""
    return TraceIndex(path, tmp_path / "cache")


def event(run="r1", step=1, tool="pay", **more):
    """One line of a trace."""
    return {"ts": 1_000.0 + step, "run_id": run, "step": step, "event": "tool_result", "tool": tool, "ok": True, **more}


def append(path, *events):
    """Append lines as a guard does."""
    with path.open("ab") as file:
        for one in events:
            file.write(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n")


def run_ids(index, **page):
    index.refresh_all()
    return [run.run_id for run in index.runs(RunPage(**page))]


def test_what_a_guard_writes_is_found_run_by_run_and_call_by_call(path, index):
    """A write's two lines are one call, with its fixes, its finding, its duration and both places."""

    @pokayoke.tool(effect="write", output="text")
    def pay(order: str, amount: int) -> str:
        """Pay."""
        return "paid"

    guard = pokayoke.Guard([pay], config={"trace": {"path": str(path)}})
    with guard.run("order-1", prompt="Pay A") as run:
        run.call(pokayoke.ToolCall("c1", "pay", '{"order": "A", "amount": "12",}'))
        run.call(pokayoke.ToolCall("c2", "pay", '{"order": "A"}'))
    guard.close()
    index.refresh_all()
    (found,) = index.runs(RunPage())
    assert (found.run_id, found.calls, found.failed, found.writes) == ("order-1", 2, 1, 1)
    done, refused = (one for one in index.calls("order-1", RunPage()) if one.kind.startswith("tool"))
    assert (done.status, done.effect, done.ok) == ("ok", "done", True)
    assert "trailing_comma" in done.fixes
    assert (refused.decision, refused.code) == ("refuse", "missing_field")
    decided, _, problem = index.read_line(done.file, done.place)
    ended, _, _ = index.read_line(done.end_file, done.end_place)
    assert (decided["decision"], ended["status"], problem) == ("allow", "ok", "")
    figures = index.figures("pay")["pay"]
    assert figures["status"]["ok"] == 1
    assert figures["refusal"]["missing_field"] == 1
    assert [one.run_id for one in index.calls(None, RunPage(tool="pay", failed=True))] == ["order-1"]


def test_new_lines_are_indexed_and_none_twice(path, index):
    """However often it looks; half a line waits for its end."""
    append(path, event(step=1), b'{"ts": 1002, "run_id": "r2", "ev')
    assert run_ids(index) == ["r1"]
    append(path, b'ent": "tool_result", "step": 2}\n')
    for _ in range(3):
        assert run_ids(index) == ["r2", "r1"]
    assert [run.calls for run in index.runs(RunPage())] == [1, 1]
    assert index.files()[0].broken == 0


def test_pages_hold_every_run_once(path, index):
    """Behind the last row of each page comes the next one; the filter holds on every page."""
    append(path, *(event(f"r{number}", number, ok=number % 3 > 0) for number in range(25)))
    seen, after = [], None
    index.refresh_all()
    while page := index.runs(RunPage(failed=True, after=after, limit=2)):
        seen += [run.run_id for run in page]
        after = (page[-1].last, page[-1].run_id)
    assert seen == [f"r{number}" for number in range(24, -1, -3)]
    assert run_ids(index, start="r2") == ["r24", "r23", "r22", "r21", "r20", "r2"]


def test_a_rotated_file_keeps_its_lines(path, index):
    """After a rotation the old lines are read from the file under its new name, and new ones come after them."""
    append(path, event("old", 1))
    assert run_ids(index) == ["old"]
    path.rename(path.with_name("trace.jsonl.1"))
    append(path, event("new", 2))
    assert run_ids(index) == ["new", "old"]
    (call,) = index.calls("old", RunPage())
    found, where, problem = index.read_line(call.file, call.place)
    assert (found["run_id"], where.endswith("trace.jsonl.1"), problem) == ("old", True, "")


def test_a_line_that_was_rotated_away_is_said_to_be_gone(path, index):
    """Nothing is shown in its place."""
    append(path, event("old", 1))
    index.refresh_all()
    (call,) = index.calls("old", RunPage())
    path.unlink()
    append(path, event("new", 2))
    found, _, problem = index.read_line(call.file, call.place)
    assert found is None
    assert "rotated away or replaced" in problem


def test_a_file_that_was_cut_off_is_read_anew_and_told(path, index):
    """What was in it before is not shown as what is in it now."""
    append(path, *(event(f"a{number}", number) for number in range(20)))
    index.refresh_all()
    path.write_bytes(b"")
    append(path, event("b", 1))
    assert "b" in run_ids(index)
    assert index.files()[0].cut == 1


DAMAGED = [
    b"\x00\xff\xfe\n",
    b"{}\n",
    b"[1]\n",
    b'{"event": 1}\n',
    b'{"event": "stop", "ts": "soon"}\n',
    b"x" * 100_000 + b"\n",
    b'{"event"' * 5_000 + b"\n",
    b"[" * 100_000 + b"\n",
]


@pytest.mark.parametrize("line", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_line_is_counted_and_the_rest_is_read(path, index, line):
    """Its place is told, and the lines around it are indexed."""
    append(path, event("a", 1), line, event("b", 2))
    assert run_ids(index) == ["b", "a"]
    (file,) = index.files()
    assert (file.lines, file.broken) == (2, 1)
    assert file.first_broken == len(json.dumps(event("a", 1))) + 1


def test_the_index_can_be_deleted(path, index, tmp_path):
    """It is built anew, with the same content."""
    append(path, event("a", 1), event("b", 2))
    before = run_ids(index)
    for file in (tmp_path / "cache").iterdir():
        file.unlink()
    assert run_ids(index) == before


def test_a_trace_that_is_not_there_yet_is_empty(index, path):
    """And it is read once it is there."""
    assert run_ids(index) == []
    append(path, event("a", 1))
    assert run_ids(index) == ["a"]


async def test_the_pages_of_a_hostile_trace(store, clock, path, index):
    """Names and payloads of an enemy, damaged and rotated lines: each page answers, small, and says what is lost."""
    evil = "<script>alert(1)</script>\u202e"
    finding = {"code": evil, "at": evil, "blame": "model", "message": evil, "hint": "x" * 50_000}
    for number in range(120):
        append(
            path,
            event(
                f"run/{number}?{evil}",
                number,
                tool=evil,
                ok=False,
                decision="refuse",
                findings=[finding],
                raw="y" * 200_000 if number == 119 else evil,
                corrections=[{"at": "/a", "rule": evil, "before": evil, "after": 1}],
                reason=evil,
            ),
        )
    append(path, b"\xff\xff\n", {"event": "stop", "run_id": evil, "ts": 5_000.0, "reason": evil, "ok": False})
    index.refresh_all()
    ann = await Dashboard(store, clock, sources=Sources(trace=index)).sign_in()
    page = check_page(await ann.get("/runs"))
    answer = await ann.get("/runs")
    assert "1 line damaged" in answer.text
    links = [link for link in page.links if link.startswith("/runs/")]
    assert links
    for link in links[:3]:
        run = check_page(await ann.get(link))
        for call in [one for one in run.links if "/calls/" in one]:
            shown = await ann.get(call)
            check_page(shown)
            assert "<script>alert" not in shown.text
    whole = await ann.get(next(one for one in run.links if "/calls/" in one) + "?all=1")
    assert whole.status_code == 200
    assert (await ann.get("/tools")).status_code == 200
    assert (await ann.get("/runs/nobody/calls/999999")).status_code == 404


def test_many_who_open_an_index_at_once_all_read_it(path, tmp_path):
    """Readers and writers of several servers begin on one new index, and none of them is told that it is locked."""
    append(path, event())
    indexes = [TraceIndex(path, tmp_path / "cache") for _ in range(4)]
    found, failed = [], []

    def look(index):
        try:
            index.refresh_all()
            found.extend(run.run_id for run in index.runs(RunPage()))
        except sqlite3.Error as error:
            failed.append(error)

    threads = [threading.Thread(target=look, args=(index,)) for index in indexes for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (failed, found) == ([], ["r1"] * 16)
