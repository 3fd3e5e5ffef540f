"""The guard as a whole: paths, configuration, approvals, declared failures, traces, wrong use."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import time

import pytest

import pokayoke
from pokayoke import ConfinedPath, Contract, Envelope, Guard, Policy, ToolCall, ToolError
from pokayoke.core.policy import TracePolicy
from pokayoke.errors import (
    CallRefused,
    ConfigurationError,
    ContractError,
    StoreError,
    ToolFailed,
    ToolOutputInvalid,
    UsageError,
)
from pokayoke.testing import FrozenClock

ANY = {"type": "object"}
PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "more": {"type": "array", "items": {"type": "string"}}},
    "required": ["path"],
}


def write(handler=lambda **a: {}, name="write", **fields):
    return Contract.from_schema(name, ANY, handler=handler, **{"output_schema": ANY, **fields})


def read(handler=lambda **a: {}, name="read", **fields):
    return write(handler, name, effect="read", **fields)


def call(name="write", arguments="{}", **fields):
    return ToolCall("c", name, arguments, **fields)


@pytest.fixture
def workspace(tmp_path):
    """A root with a file in it, and a secret outside with a link to it inside."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "in.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("outside")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    return root


@pytest.fixture
def opened(workspace):
    """A run with a tool that reads the file it is given, and what the tool was given."""
    given = []

    def cat(path, more=()):
        given.append((path, list(more)))
        with path.open() as file:
            return file.read()

    contract = Contract.from_schema(
        "cat",
        PATH,
        effect="read",
        output_schema="text",
        handler=cat,
        paths={"path": (str(workspace),), "more": (str(workspace),)},
    )
    return Guard([contract]).run("r"), given


def test_a_path_argument_arrives_as_a_confined_path(opened, workspace, driver):
    """The tool gets an absolute path under its root that opens as one act with the check."""
    run, given = opened
    outcome = driver.call(run, call("cat", '{"path": "in.txt", "more": ["a", "in.txt"]}'))
    assert outcome.value == "inside"
    assert isinstance(given[0][0], ConfinedPath)
    assert given[0] == (os.path.join(workspace, "in.txt"), [os.path.join(workspace, name) for name in ("a", "in.txt")])


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "../secret.txt"},
        {"path": "link"},
        {"path": "/etc/passwd"},
        {"path": "in.txt", "more": ["in.txt", "../secret.txt"]},
        {"path": "in.txt", "more": ["link"]},
        {"path": ""},
        {"path": "a\u0000b"},
    ],
)
def test_a_path_that_leaves_its_root_is_refused(opened, driver, arguments):
    """Lexical escapes and links are refused before the tool starts, and the model is told the argument."""
    run, given = opened
    outcome = driver.call(run, call("cat", json.dumps(arguments)))
    assert (outcome.status, outcome.effect, given) == ("refused", "none", [])
    assert outcome.findings[0].at.split("/")[1] in ("path", "more")


def test_a_missing_root_is_an_error_when_the_guard_is_built(tmp_path):
    """Nobody finds out during a call that the workspace is not there."""
    with pytest.raises(ConfigurationError):
        Guard([Contract.from_schema("cat", PATH, output_schema=ANY, paths={"path": (str(tmp_path / "nowhere"),)})])


def test_something_that_is_no_contract_is_an_error_that_names_the_fix():
    """A plain function is answered with the decorator to use."""
    with pytest.raises(ConfigurationError, match=r"pokayoke\.tool"):
        Guard([lambda: 1])


@pytest.mark.parametrize("tools", [None, 5, write()])
def test_tools_that_are_no_list_are_an_error_that_says_so(tools):
    """One contract is given as a list of one."""
    with pytest.raises(ConfigurationError, match=r"tools is a list of contracts, such as \[pay, find\]"):
        Guard(tools)


@pytest.mark.parametrize("hook", ["on_ask", "on_step", "on_alert", "redactor"])
def test_hooks_that_cannot_be_called_are_refused_when_the_guard_is_built(hook):
    """Nobody finds out in the middle of a call."""
    with pytest.raises(ConfigurationError, match=f"{hook} is a function"):
        Guard([write()], **{hook: "x"})


def test_strict_mode_wants_an_output_contract_of_tools_defined_in_code():
    """The error says what to declare; `declared` lets the tool go without, marked as unchecked."""

    @pokayoke.tool(effect="read")
    def bare(n: int):
        """Do something."""
        return {"n": n}

    with pytest.raises(ConfigurationError, match="output"):
        Guard([bare])
    guard = Guard([bare], config={"validation": {"tool_output": {"schema": "declared"}}})
    outcome = guard.run("r").call(call("bare", '{"n": 1}'))
    assert (outcome.status, [f.code for f in outcome.findings]) == ("ok", ["no_output_contract"])


def test_a_changed_file_is_taken_over_as_a_whole_or_not_at_all(tmp_path):
    """A good file counts from the next run on; a bad one changes nothing and is an event."""
    path = tmp_path / "pokayoke.yaml"
    path.write_text("confidence:\n  threshold: 0.5\n")
    guard = Guard([write()], config=path)
    assert guard.policy.confidence.threshold == 0.5
    path.write_text("confidence:\n  threshold: 0.9\n")
    time.sleep(0.25)  # a change younger than 0.2 s may be half-written and waits
    assert guard.run("a").call(call(confidence=0.8)).stop_reason == "low_confidence"
    path.write_text("confidence:\n  treshold: 0.1\n")
    time.sleep(0.25)
    assert guard.run("b").call(call(confidence=0.8)).stop_reason == "low_confidence"


def test_the_trace_file_holds_what_the_ring_holds(tmp_path):
    """Every event is one line of JSON; the file is complete when the run is closed."""
    path = tmp_path / "trace.jsonl"
    guard = Guard([write(), read()], config=Policy(trace=TracePolicy(path=str(path))))
    with guard.run("r", prompt="hello") as run:
        run.call(call())
        run.call(call())
        run.call(call("nothing"))
        events = list(run.trace)
    guard.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == events
    assert [(e["event"], e["ok"]) for e in lines] == [
        ("tool_call", True), ("tool_result", True), ("tool_call", True), ("tool_result", True), ("tool_call", False),
    ]  # fmt: skip
    assert lines[2]["decision"] == "replay"


def test_marked_fields_and_secret_tools_are_not_written_down():
    """A field the contract marks never reaches the trace; a secret tool's result does not either."""
    tool = write(lambda **a: {"card": "canary-2"}, redact=("pin",))
    secret = read(lambda: {"card": "canary-3"}, name="secret", secret=True)
    run = Guard([tool, secret]).run("r")
    assert run.call(call(arguments='{"pin": "canary-1"}')).ok
    assert run.call(call("secret")).value == {"card": "canary-3"}
    written = repr(list(run.trace))
    assert "canary-1" not in written
    assert "canary-3" not in written


def test_a_picture_is_not_kept_and_a_repetition_says_so():
    """The ledger keeps no pictures: a second call of the same write reads that its result is gone, not `null`."""
    picture = [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    guard = Guard([Contract.from_schema("draw", {"type": "object"}, handler=lambda: picture)])
    first, again = (guard.run("r").call(call("draw", {})) for _ in range(2))
    assert (first.status, first.content) == ("ok", tuple(picture))
    assert (again.status, again.value, again.content) == ("replayed", None, ())
    assert " was not kept" in again.text


def test_a_secret_write_is_answered_without_its_value_the_second_time():
    """What is never kept cannot be replayed: the repetition says that it was done."""
    run = Guard([write(lambda: {"token": "t"}, secret=True)]).run("r")
    assert run.call(call()).value == {"token": "t"}
    again = run.call(call())
    assert (again.status, again.value, again.effect) == ("replayed", None, "done")


def test_a_declared_failure_skips_the_schema_and_is_never_repeated():
    """A write whose answer says "failed" is not in doubt, but nobody may send it again."""
    effects = []
    tool = write(
        lambda: effects.append(1) or {"ok": False, "error": "no funds"},
        output_schema={"type": "object", "required": ["id"]},
        envelope=Envelope(ok="/ok", error="/error"),
    )
    run = Guard([tool]).run("r")
    first, second = run.call(call()), run.call(call())
    assert (first.status, first.effect, first.findings[0].code) == ("failed", "unknown", "tool_error")
    assert "no funds" in first.text
    assert (second.status, second.findings[0].code, effects) == ("failed", "failed_before", [1])
    assert second.effect == "unknown"
    assert run.mode == "normal"


def test_a_declared_failure_of_a_read_changes_nothing():
    """A read that says "failed" may be asked again."""
    tool = read(lambda: {"ok": False}, envelope=Envelope(ok="/ok"))
    run = Guard([tool]).run("r")
    assert [run.call(call("read")).effect for _ in range(2)] == ["none", "none"]


def test_taints_follow_the_identity_fields():
    """With declared identity, another page of the same customer opens the latch, another customer does not."""
    answers = iter([None, {}, {}])
    schema = {"type": "object", "properties": {"customer": {"type": "integer"}, "page": {"type": "integer"}}}
    tool = Contract.from_schema(
        "read", schema, effect="read", output_schema=ANY, handler=lambda **a: next(answers), identity=("customer",)
    )
    run = Guard([tool, write()]).run("r")
    run.call(call("read", '{"customer": 1, "page": 1}'))
    run.call(call("read", '{"customer": 2, "page": 1}'))
    assert run.call(call()).findings[0].code == "latched"
    run.call(call("read", '{"customer": 1, "page": 2}'))
    assert run.call(call()).ok


def test_a_person_can_consent_after_the_process_that_asked_is_gone():
    """Approving the review of a run that is not open clears its latch in the store."""
    guard = Guard([read(lambda: None), write()], config={"safe_mode": {"on_invalid_output": "human_review"}})
    run = guard.run("r")
    approval = run.call(call("read")).approval
    del run
    guard.approvals.approve(approval, by="ann")
    assert guard.run("r").call(call()).ok


@pytest.mark.parametrize("opened", [True, False])
def test_a_consent_is_about_the_output_it_was_asked_of(opened):
    """A yes to an older review opens no latch that a later invalid output of the same tool has closed."""
    guard = Guard([read(lambda: None), write()], config={"safe_mode": {"on_invalid_output": "human_review"}})
    run = guard.run("r")
    older, newer = (run.call(call("read")).approval for _ in range(2))
    if not opened:
        del run
    guard.approvals.deny(newer, by="ann")
    guard.approvals.approve(older, by="bob")
    assert guard.run("r").call(call()).stop_reason == "invalid_tool_output"


def test_approvals_are_answered_once_and_expire():
    """A second answer, an unknown id and a late answer are errors that say what is the matter."""
    clock = FrozenClock()
    guard = Guard([write(approval=True)], clock=clock, config={"approvals": {"expires_seconds": 60.0}})
    run = guard.run("r")
    approval = run.call(call()).approval
    with pytest.raises(StoreError, match="no approval"):
        guard.approvals.approve("ap-none")
    with pytest.raises(StoreError, match="no approval"):
        guard.approvals.wait("ap-none")
    assert guard.approvals.wait(approval, timeout=1).status == "waiting"
    clock.advance(61)
    with pytest.raises(StoreError, match="expired"):
        guard.approvals.approve(approval)
    assert guard.approvals.wait(approval, timeout=1).status == "expired"
    assert run.call(call()).stop_reason == "approval_denied"
    again = run.call(call()).approval
    assert guard.approvals.deny(again, by="ann", reason="no").by == "ann"
    with pytest.raises(StoreError, match="denied"):
        guard.approvals.approve(again)
    assert guard.approvals.list() == ()


def test_an_asynchronous_callback_is_awaited():
    """`on_ask` may be a coroutine function in asynchronous code."""

    async def ask(approval):
        await asyncio.sleep(0)
        return True

    guard = Guard([write(approval=True)], on_ask=ask)
    assert asyncio.run(guard.run("r").acall(call())).ok


def test_policy_can_ask_for_every_destructive_call():
    """An effect named in the policy asks, whatever the contract says."""
    guard = Guard(
        [write(effect="destructive"), write(name="other")], config={"approvals": {"effects": ["destructive"]}}
    )
    run = guard.run("r")
    assert [run.call(call(name)).status for name in ("write", "other")] == ["pending", "ok"]
    assert run.check(call()).decision == "ask"


def test_unwrap_raises_what_the_status_means():
    """For hosts that want exceptions: one class per kind of bad news, with the outcome in it."""

    def failing(**arguments):
        raise ToolError("no")

    run = Guard([write(), read(lambda: None), write(failing, name="broken"), write(approval=True, name="ask")]).run("r")
    assert run.call(call()).unwrap() == {}
    for name, kind in (
        ("nothing", CallRefused),
        ("broken", ToolFailed),
        ("ask", CallRefused),
        ("read", ToolOutputInvalid),
    ):
        with pytest.raises(kind) as raised:
            run.call(call(name)).unwrap()
        assert raised.value.outcome.tool == name


def test_a_tool_without_a_handler_needs_a_continuation():
    """The programmer's mistake is an exception that names both ways out."""
    run = Guard([write(handler=None)]).run("r")
    with pytest.raises(UsageError, match="invoke="):
        run.call(call())


@pytest.mark.parametrize("arguments", [5, ["a"], {1: 2}, {"a": object()}, {"a": {1, 2}}])
def test_arguments_of_any_python_type_get_an_answer(arguments, driver):
    """What is no JSON object is refused, never an exception."""
    effects = []
    run = Guard([write(lambda **a: effects.append(a) or {})]).run("r")
    outcome = driver.call(run, call(arguments=arguments))
    assert (outcome.status, effects) == ("refused", [])


def test_a_hook_hears_how_far_a_call_has_come(driver):
    """`on_step` is told in order; reads claim and settle nothing."""
    steps = []
    run = Guard([write(), read()], on_step=steps.append).run("r")
    driver.call(run, call())
    assert steps == ["after_claim", "before_invoke", "after_invoke", "after_settle"]
    steps.clear()
    driver.call(run, call("read"))
    assert steps == ["before_invoke", "after_invoke"]


def test_too_many_hanging_tools_refuse_the_next_one(driver):
    """When every worker hangs, a tool with a deadline is not started, and nothing is in doubt."""
    gate = threading.Event()
    hanging = write(lambda n: gate.wait(20), timeout=0.02)
    run = Guard([hanging], config={"execution": {"max_lost_workers": 1}}).run("r")
    first = driver.call(run, call(arguments='{"n": 1}'))
    second = driver.call(run, call(arguments='{"n": 2}'))
    gate.set()
    assert (first.status, first.effect) == ("in_doubt", "unknown")
    assert (second.status, second.effect, second.findings[0].code) == ("failed", "none", "not_started")


def test_stores_are_named_by_url():
    """Memory is the default; a kind this version does not have is an error that says so."""
    assert pokayoke.open_store(None).durable is False
    assert pokayoke.open_store("memory://").durable is False
    with pytest.raises(StoreError, match="redis"):
        pokayoke.open_store("redis://localhost")


def test_runs_in_many_threads_share_one_guard():
    """A hundred equal writes of one run from eight threads are one effect."""
    effects = []
    guard = Guard([write(lambda: effects.append(1) or {})])
    run = guard.run("r")
    outcomes = []

    def work():
        outcomes.extend(run.call(call()).status for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert effects == [1]
    assert len(outcomes) == 800
    assert set(outcomes) <= {"ok", "replayed", "refused"}


def test_importing_loads_nothing_that_is_not_needed():
    """The front door does not drag in the command line, YAML, pydantic or a database."""
    code = "import sys, pokayoke; print([m for m in ('typer', 'rich', 'ruamel', 'pydantic', 'apsw', 'sqlite3') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class TestClosing:
    """After `close` there is neither a trace nor a store to rely on."""

    @pytest.mark.parametrize(
        "use",
        [
            lambda driver, guard, run: driver.call(run, call()),
            lambda driver, guard, run: driver.batch(run, [call(), call("read"), call("read")]),
            lambda driver, guard, run: driver.begin(run, call()),
            lambda driver, guard, run: run.check(call()),
            lambda driver, guard, run: run.user("Go on."),
            lambda driver, guard, run: driver.call(guard.run(), call()),
            lambda driver, guard, run: guard.loop(lambda messages, tools: pytest.fail("was asked"), "Hi."),
            lambda driver, guard, run: asyncio.run(guard.aloop(lambda messages, tools: pytest.fail("was asked"), "Hi.")),
        ],
        ids=["call", "batch", "begin", "check", "user", "run", "loop", "aloop"],
    )  # fmt: skip
    def test_a_closed_guard_takes_no_call(self, driver, use):
        """Whoever goes on using it is told, and no tool runs that the trace would not show."""
        ran = []
        guard = Guard([write(lambda **a: ran.append(a) or {}), read(lambda **a: ran.append(a) or {})])
        run = guard.run()
        guard.close()
        guard.close()
        with pytest.raises(UsageError, match="the guard was closed"):
            use(driver, guard, run)
        assert ran == []

    def test_the_last_guard_closes_the_store(self, tmp_path, driver):
        """Of guards that share one store object, closing one leaves the others its ledger; no lost one is waited for."""
        store = pokayoke.open_store(f"sqlite:///{tmp_path / 'ledger.db'}", create=True)
        first, second, lost = (Guard([write()], store=store) for _ in range(3))
        with pytest.raises(ContractError) as unbuilt:  # its traceback keeps what there was of it
            Guard([write(), write()], store=store)
        first.close()
        first.close()
        assert driver.call(second.run("r"), call()).status == "ok"
        del lost
        gc.collect()
        second.close()
        with pytest.raises(StoreError):
            store.load_run("r")
        assert unbuilt.traceback

    @pytest.mark.parametrize("hashed", [None, lambda _: 1])
    def test_a_store_of_the_hosts_own_is_told_from_one_that_is_equal(self, driver, hashed):
        """A store that has no hash, or is equal to another, is used and closed with its own guards."""

        class Counting:
            __slots__ = ("closed", "inner")
            __hash__ = hashed

            def __init__(self):
                self.inner, self.closed = pokayoke.open_store(None), 0

            def __eq__(self, other):
                return isinstance(other, Counting)

            def __getattr__(self, name):
                return getattr(self.inner, name)

            def close(self):
                self.closed += 1

        stores = [Counting(), Counting()]
        guards = [Guard([write()], store=store) for store in stores]
        assert [driver.call(guard.run("r"), call()).status for guard in guards] == ["ok", "ok"]
        guards[0].close()
        assert [store.closed for store in stores] == [1, 0]
        guards[1].close()
        assert [store.closed for store in stores] == [1, 1]

    def test_closing_goes_on_after_what_raises(self, tmp_path, monkeypatch):
        """Whatever one part raises goes through, and the trace is written and the guard's own store closed all the same."""
        url, path = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "trace.jsonl"
        pokayoke.open_store(url, create=True).close()
        guard = Guard([write()], store=url, config={"trace": {"path": str(path)}})
        assert guard.run("r").call(call()).ok
        monkeypatch.setattr(guard.switchboard, "flush", lambda: 1 / 0)
        monkeypatch.setattr(guard.workers, "close", lambda: {}["workers"])
        with pytest.raises(KeyError):
            guard.close()
        assert b"tool_result" in path.read_bytes()
        with pytest.raises(StoreError):
            guard.store.load_run("r")

    def test_a_closed_run_is_reopened_by_a_call(self, tmp_path, driver):
        """It goes on with its totals, and what it then does is kept when it is closed again."""
        store = pokayoke.open_store(f"sqlite:///{tmp_path / 'ledger.db'}", create=True)
        guard = Guard([write()], store=store)
        run = guard.run("r")
        for number in range(3):
            assert driver.call(run, call(arguments=f'{{"n": {number}}}')).ok
            run.close()
        other = Guard([write()], store=store)
        guard.close()
        assert other.run("r").state.calls == 3
        other.close()


def test_a_guard_can_be_used_in_a_with_block(tmp_path):
    """Leaving the block closes it, also by an exception, and writes the trace out."""
    guard = Guard([read()], config={"trace": {"path": str(tmp_path / "t.jsonl")}})

    def fail():
        with guard:
            guard.run("r").call(call("read"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert guard.closed
    assert '"run_id":"r"' in (tmp_path / "t.jsonl").read_text()
