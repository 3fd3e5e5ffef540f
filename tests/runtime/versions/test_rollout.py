"""Several versions of a tool in one guard: what a lock puts in force, and what runs see of it."""

import asyncio
import json
import threading
from dataclasses import dataclass
from decimal import Decimal

import pytest

import pokayoke
from pokayoke import ToolCall
from pokayoke.core.versions import lock as locking
from pokayoke.core.versions.lock import StepReason
from pokayoke.errors import ConfigurationError, ContractError, StoreError
from pokayoke.runtime.config.contract_files import read_contracts
from pokayoke.runtime.versions.lock_file import exclusive_change, lock_text, read_lock
from pokayoke.testing import FailingStore

NOTE = StepReason("2026-11-21T08:00:00Z", "mo", "test")
S, N = {"type": "string"}, {"type": "number"}


def obj(required=(), **properties):
    """A closed object schema."""
    return {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False,
    }  # fmt: skip


def entry(version="1", name="get", **fields):
    """One entry of a file of contracts."""
    made = {"name": name, "version": version, "effect": "read", "timeout": 5, "input_schema": obj(["key"], key=S)}
    return {**made, "output_schema": obj(["key", "total"], key=S, total=N), **fields}


TEXTS = {"output_schema": obj(["key", "total"], key=S, total=S)}


class Shop:
    """A folder with contracts and their lock."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "contracts.lock"

    def write(self, *entries, name="contracts.json"):
        (self.folder / name).write_text(json.dumps({"contracts": list(entries)}))

    def lock(self, *entries, stable="1"):
        """Write and lock these contracts."""
        self.write(*entries)

        def how(lock):
            for one in read_contracts(self.folder / "contracts.json"):
                first = one.contract.version == stable
                lock = locking.add_version(lock, one.contract, "contracts.json", NOTE, stable=first)
            return lock

        self.step(how)

    def step(self, how):
        with exclusive_change(self.path) as change:
            change(how)

    def shadow(self, name="get", version="2"):
        self.step(lambda lock: locking.start_shadow(lock, name, version, NOTE))

    def canary(self, share=1.0, name="get", version="2"):
        self.step(lambda lock: locking.start_canary(lock, name, version, share, NOTE))

    def promote(self, name="get"):
        self.step(lambda lock: locking.promote_candidate(lock, name, NOTE))

    def back(self, name="get"):
        self.step(lambda lock: locking.roll_back(lock, name, NOTE))

    def guard(self, *tools, **options):
        return pokayoke.Guard(tools or (get,), contracts=self.path, **options)


@pytest.fixture
def shop(tmp_path):
    """A shop with two versions of one tool, the first one stable."""
    made = Shop(tmp_path)
    made.lock(entry(), entry("2", **TEXTS))
    return made


def get(key: str):
    """Look something up."""
    return {"key": key, "total": 9.5 if key != "text" else "9.5"}


def ask(ident="a", name="get"):
    """A call."""
    return ToolCall("c1", name, {"key": ident})


def used(run, ident="a"):
    """Version and status of a call."""
    outcome = run.call(ask(ident))
    return outcome.contract, outcome.status


# -- what a run sees -------------------------------------------------------------------------------


def test_two_versions_side_by_side(shop):
    """Runs that are open at the same time use different versions, each for its whole life."""
    guard = shop.guard()
    old = guard.run("old")
    shop.canary()
    new = guard.run("new")
    for _ in range(2):
        assert used(old) == ("get@1", "ok")
        assert used(new) == ("get@2", "degraded")
        assert used(new, "text") == ("get@2", "ok")
    shop.promote()
    assert used(old) == ("get@1", "ok")
    assert used(guard.run("old")) == ("get@1", "ok")
    assert used(guard.run("newer"), "text") == ("get@2", "ok")
    assert [contract.id for contract in guard.tools] == ["get@2"]


def test_a_withdrawn_version_is_refused_at_once(shop, driver):
    """After a roll-back an open run is refused its next call, is offered the tool no more, and is never switched."""
    shop.canary()
    guard = shop.guard()
    run = guard.run("r")
    assert driver.call(run, ask("text")).status == "ok"
    shop.back()
    outcome = driver.call(run, ask("text"))
    assert (outcome.status, outcome.findings[0].code) == ("refused", "version_withdrawn")
    assert outcome.stop_reason == "permission_denied"
    assert run.tools() == []
    assert run.check(ask()).findings[0].code == "version_withdrawn"
    shop.canary()
    assert driver.call(run, ask("text")).contract == "get@2"


def test_a_dropped_version_does_not_come_back_as_another(shop):
    """A run that began with a dropped version never meets another promise under its number, nor is let go on with it."""
    shop.canary()
    run = shop.guard().run("r")
    assert used(run, "text") == ("get@2", "ok")
    shop.back()
    shop.step(lambda lock: locking.drop_version(lock, "get", "2", NOTE))
    assert run.call(ask("text")).findings[0].code == "version_withdrawn"
    with pytest.raises(ContractError, match="is not what was locked"):
        shop.lock(entry(), entry("2"))
    shop.lock(entry(), entry("2", **TEXTS))
    assert run.call(ask("text")).findings[0].code == "version_withdrawn"


def test_monitor_mode_does_not_revive_a_withdrawn_version(shop):
    """Monitor lets through what would be refused, but no version that was taken back."""
    shop.canary()
    guard = shop.guard(config={"mode": "monitor"})
    run = guard.run("r")
    shop.back()
    assert run.call(ask()).status == "refused"


def test_a_restart_keeps_the_version(shop, tmp_path):
    """A run reopened by another guard over the same store has the version it began with, though all is changed."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    pokayoke.open_store(url, create=True).close()
    guard = shop.guard(store=url)
    guard.run("r")
    guard.close()
    shop.canary()
    shop.promote()
    again = shop.guard(store=url)
    assert again.run("r").state.versions == (("get", "1"),)
    assert used(again.run("r")) == ("get@1", "ok")
    again.close()


def test_a_version_whose_definition_is_gone_is_refused(shop):
    """A run pinned to a version that no file holds any more is told so; new runs are not concerned."""
    guard = shop.guard()
    run = guard.run("r")
    shop.canary()
    shop.promote()
    shop.write(entry("2", **TEXTS))
    shop.step(lambda lock: locking.start_canary(locking.roll_back(lock, "get", NOTE), "get", "2", 0.5, NOTE))
    with pytest.raises(ContractError, match=r"get@1 is in force, and contracts\.json does not hold it"):
        shop.guard()
    assert used(run) == ("get@1", "ok")  # what cannot be used is not taken over
    shop.step(lambda lock: locking.promote_candidate(lock, "get", NOTE))
    assert run.call(ask()).findings[0].code == "version_withdrawn"
    assert used(guard.run("new"), "text") == ("get@2", "ok")


def test_a_new_tool_for_a_share(shop):
    """A tool without a stable version is there for its runs and unknown to all others, for good."""
    shop.lock(entry(), entry("2", **TEXTS), entry("1", "fresh"), stable="none")
    shop.step(lambda lock: locking.start_canary(lock, "fresh", "1", 0.5, NOTE))

    def fresh(key: str):
        return {"key": key, "total": 1}

    guard = shop.guard(get, fresh)
    runs = [guard.run(f"r{number}") for number in range(20)]
    found = {run.id: run.call(ask(name="fresh")).status for run in runs}
    assert set(found.values()) == {"ok", "refused"}
    assert {run.id: len(run.tools(names=["fresh", "get"])) for run in runs} == {
        ident: 2 if status == "ok" else 1 for ident, status in found.items()
    }
    shop.step(lambda lock: locking.promote_candidate(lock, "fresh", NOTE))
    assert {run.id: run.call(ask(name="fresh")).status for run in runs} == found
    assert guard.run("later").call(ask(name="fresh")).status == "ok"


def test_a_run_that_cannot_be_pinned_is_not_opened(shop):
    """Without its pin another process might choose otherwise, so a named run is refused; an unnamed one is nobody's."""
    store = FailingStore(pokayoke.open_store("memory://"), "change_run")
    guard = shop.guard(store=store)
    with pytest.raises(StoreError, match="run 'r' cannot be opened"):
        guard.run("r")
    assert used(guard.run()) == ("get@1", "ok")


def test_a_selection_sees_the_runs_versions(shop):
    """A run that selects from its tools selects from its own versions, and a withdrawn one is not offered."""
    shop.canary()
    guard = shop.guard()
    run = guard.run("r")
    run.select("look something up", 3)
    assert run.call(ask("text")).contract == "get@2"
    shop.back()
    assert run.call(ask("text")).findings[0].code == "version_withdrawn"
    assert [tool["function"]["name"] for tool in run.tools()] == ["find_tools"]


def test_many_threads_agree(shop):
    """Threads that open the same new runs while the lock changes give each of them one version."""
    guard, seen, problems = shop.guard(), {}, []

    def work():
        for number in range(60):
            with guard.run(f"r{number}") as run:
                version = run.call(ask("text")).contract
            if seen.setdefault(f"r{number}", version) != version:
                problems.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    shop.canary(0.5)
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(seen) == 60


# -- one effect ------------------------------------------------------------------------------------


def test_a_retry_in_another_version_is_one_effect(tmp_path):
    """The same write in two runs of a session, on two versions, happens once; what does not fit is not handed on."""
    shop = Shop(tmp_path)
    fields = {"effect": "write", "scope": "session", "identity": ["key"]}
    shop.lock(entry(name="pay", **fields), entry("2", "pay", **fields, **TEXTS))
    paid = []

    def pay(key: str):
        paid.append(key)
        return {"key": key, "total": 9.5}

    guard = pokayoke.Guard([pay], contracts=shop.path)
    first = guard.run("one", session="s").call(ask(name="pay"))
    shop.canary(name="pay")
    second = guard.run("two", session="s").call(ask(name="pay"))
    assert (first.status, first.contract) == ("ok", "pay@1")
    assert (second.status, second.contract, second.key) == ("replayed", "pay@1", first.key)
    assert second.value is None
    assert "does not fit pay@2" in second.message
    third = guard.run("one", session="s").call(ask(name="pay"))
    assert third.value == {"key": "a", "total": 9.5}
    assert paid == ["a"]


# -- what is given ---------------------------------------------------------------------------------


def test_what_a_file_does_not_mention_stays(tmp_path):
    """A version from a file keeps the tool's code and protections; only what the file says is changed."""
    shop = Shop(tmp_path)
    mild = {key: value for key, value in entry("2").items() if key not in ("effect", "timeout")}
    shop.write(mild)

    def tidy(value):
        return str(value)

    @pokayoke.tool(
        name="get", effect="write", approval=True, redact=("key",), output=obj(["key", "total"], key=S, total=N),
        correctors={"key": tidy, "gone": tidy}, invariants=(lambda output, arguments: True,), scope="global",
    )  # fmt: skip
    def coded(key: str, gone: str = ""):
        """Look it up, as code says."""
        return {"key": key, "total": 1}

    (written,) = read_contracts(tmp_path / "contracts.json")
    shop.step(lambda lock: locking.add_version(lock, coded, "shop:coded", NOTE, stable=True))
    shop.step(lambda lock: locking.add_version(lock, written.contract, "contracts.json", NOTE, stable=False))
    shop.canary()
    found = shop.guard(coded).rollout.edition.contracts["get@2"]
    assert (found.effect, found.approval, found.redact, found.scope) == ("write", True, ("key",), "global")
    assert (found.description, found.handler) == ("Look it up, as code says.", coded.handler)
    assert list(found.correctors) == ["key"]
    assert len(found.invariants) == 1
    assert found.input_schema["required"] == ["key"]


def test_a_version_may_have_code_of_its_own(tmp_path):
    """Two contracts of one name, each with its function: the run's version decides which one runs."""
    shop = Shop(tmp_path)

    def made(version, total):
        schema = {"type": "number"} if version == "1" else {"type": "string"}
        return pokayoke.Contract.from_schema(
            "get", obj(["key"], key=S), version=version, effect="read", output_schema=schema,
            handler=lambda key: total, defined_in_code=True,
        )  # fmt: skip

    one, two = made("1", 9.5), made("2", "9.50 EUR")
    shop.step(lambda lock: locking.add_version(lock, one, "shop:tools", NOTE, stable=True))
    shop.step(lambda lock: locking.add_version(lock, two, "shop:tools", NOTE, stable=False))
    guard = shop.guard(one, two)
    assert guard.run("a").call(ask()).value == 9.5
    shop.canary()
    assert guard.run("b").call(ask()).value == "9.50 EUR"
    shop.promote()
    shop.back()
    only = pokayoke.Contract.from_schema("get", obj(["key"], key=S), effect="read", defined_in_code=True)
    with pytest.raises(ContractError, match=r"get@1 in the code is not what .* has under that version"):
        shop.guard(only)


def test_each_version_from_a_schema_runs_its_own_handler(tmp_path):
    """A canary runs the new code, and an open run keeps the old code after the promotion; nothing is mixed up."""
    shop = Shop(tmp_path)
    free = {"output_schema": {}}
    shop.lock(entry(**free), entry("2", **free), entry("3", **free))

    def made(version):
        return pokayoke.Contract.from_schema(
            "get", obj(["key"], key=S), version=version, effect="read", handler=lambda key: {"code of": version}
        )

    def ran(run, ident):
        outcome = run.call(ask(ident))
        return outcome.contract, outcome.value["code of"]

    guard = shop.guard(made("2"), made("1"))
    old = guard.run("old")
    assert ran(old, "a") == ("get@1", "1")
    shop.canary()
    new = guard.run("new")
    assert ran(new, "a") == ("get@2", "2")
    shop.promote()
    assert ran(old, "b") == ("get@1", "1")
    assert ran(guard.run("newer"), "b") == ("get@2", "2")
    assert guard.rollout.edition.contracts["get@3"].handler("k") == {"code of": "2"}  # none of its own: the stable one
    with pytest.raises(ContractError, match=r"get@4 is defined in code, and .* does not know that version"):
        shop.guard(made("1"), made("4"))


def other(key: str):
    """A tool that the lock does not know."""
    return {"key": key, "total": 1}


def needy(key: str, more: str):
    """A function that needs more than its contract says."""


needy.__name__ = "get"


def narrow():
    """A function that takes less than its contract lets through."""


narrow.__name__ = "get"


@dataclass
class Stranger:
    """Something that is no tool."""


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([other], "has no tool of its name: decorate"),
        ([Stranger()], "is not a contract"),
        ([needy], "get@1 in contracts.json: get: the handler needs 'more'|may come without 'more'"),
        ([narrow], "the argument 'key'.*, which the handler does not take"),
        ([pokayoke.tool(effect="read", version="7", name="get", output="text")(other)], "get@7 is defined in code"),
        ([pokayoke.tool(effect="read", version=v, name="new", output="text")(other) for v in "12"], "several versions"),
    ],
)
def test_what_does_not_fit_is_an_error_when_the_guard_is_built(shop, tools, words):
    """A tool that cannot do what its lock says is found while building, with words that say what to change."""
    with pytest.raises(ConfigurationError, match=words):
        shop.guard(*tools)


def test_functions_that_say_nothing_of_themselves_are_believed(tmp_path):
    """A callable without a signature, or one that takes any name, is not asked what it takes."""
    shop = Shop(tmp_path)
    shop.lock(entry(name="max"), entry(name="loose"))

    def loose(**anything):
        return {"key": anything["key"], "total": 1}

    guard = shop.guard(max, loose)
    assert guard.run("r").call(ask(name="loose")).status == "ok"
    assert pokayoke.Contract.from_schema("loose", obj(["key"], key=S)).handler is None


def test_tools_the_lock_does_not_know_are_in_force_as_they_are(shop):
    """A tool beside the lock works, and a run keeps the version it had of it, too."""
    free = pokayoke.tool(effect="read", output=obj(key=S, total=N))(other)
    guard = shop.guard(get, free)
    run = guard.run("r")
    assert run.call(ask(name="other")).contract == "other@1"
    assert run.state.versions == (("get", "1"), ("other", "1"))
    guard.replace([get, pokayoke.tool(effect="read", version="2", output=obj(key=S, total=N))(other)])
    assert run.call(ask(name="other")).findings[0].code == "version_withdrawn"
    assert guard.run("new").call(ask(name="other")).contract == "other@2"


def test_a_contract_of_an_adapter_takes_what_the_file_says(shop):
    """A definition that is not the operator's own code promises what is locked under its version."""
    listed = pokayoke.Contract.from_mcp({"name": "get", "description": "Listed.", "inputSchema": obj(["key"], key=S)})
    guard = shop.guard(listed)
    (found,) = guard.tools
    assert (found.id, found.effect, found.unchecked, found.description) == ("get@1", "read", False, "Listed.")
    outcome = guard.run("r").call(ask(), invoke=lambda arguments: {"key": "a", "total": "x"})
    assert outcome.status == "degraded"


# -- drift and reload ------------------------------------------------------------------------------


def test_a_changed_contract_under_its_version_is_refused(shop):
    """A guard is not opened with a file that says something else than the lock; the message names the way out."""
    shop.write(entry(max_chars=7), entry("2", **TEXTS))
    with pytest.raises(ContractError, match=r"get@1 in contracts\.json is not what .* a new version and lock it"):
        shop.guard()


def test_a_lock_that_cannot_be_used_changes_nothing(shop, tmp_path):
    """A broken lock is told once in the trace, and what was in force stays in force until it is whole again."""
    trace = tmp_path / "t.jsonl"
    guard = shop.guard(config={"trace": {"path": str(trace)}})
    run, good = guard.run("r"), shop.path.read_bytes()
    shop.path.write_bytes(good[: len(good) // 2])
    assert [used(run) for _ in range(3)] == [("get@1", "ok")] * 3
    shop.path.unlink()
    assert used(run) == ("get@1", "ok")
    shop.path.write_bytes(good)
    assert used(run) == ("get@1", "ok")
    guard.close()
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    told = [(one["ok"], one["reason"]) for one in events if one["event"] == "contracts"]
    assert [ok for ok, _ in told] == [False, False, True]
    assert "not JSON at or after line" in told[0][1]
    assert "no such file" in told[1][1]


def test_a_step_is_taken_over_when_its_files_are_put_right(shop, tmp_path):
    """A roll-back that a damaged file of contracts held up is in force once the file is whole, and told once each."""
    trace = tmp_path / "t.jsonl"
    shop.canary()
    guard = shop.guard(config={"trace": {"path": str(trace)}})
    text = [entry(), entry("2", **TEXTS)]
    shop.write(entry(max_chars=7), text[1])
    shop.back()
    assert [used(guard.run(f"r{number}"), "text") for number in range(3)] == [("get@2", "ok")] * 3
    shop.write(*text)
    assert [used(guard.run(f"s{number}")) for number in range(3)] == [("get@1", "ok")] * 3
    guard.close()
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [one["ok"] for one in events if one["event"] == "contracts"] == [False, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "no lock of contracts"),
        ('{"pokayoke": "pokayoke contracts.lock", "format": 2}', "of format 2; this version reads 1"),
        ('{"pokayoke": "pokayoke contracts.lock", "tools": {"a": {}}}', "changed by hand"),
        ('{"pokayoke": "pokayoke contracts.lock", "more": 1}', "changed by hand"),
        (
            '{"pokayoke": "pokayoke contracts.lock", "tools": {"a": {"stable": "1", "versions": {}}}}',
            "a@1 is named and no version of it is locked",
        ),
        ("<<<<<<< ours", "merged by hand"),
    ],
)
def test_a_file_that_is_no_lock_says_what_is_wrong(tmp_path, text, words):
    """A lock is read strictly, and a guard is not opened with half of one."""
    (tmp_path / "contracts.lock").write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        pokayoke.Guard([], contracts=tmp_path / "contracts.lock")


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ('"share": 0.25', '"share": 25', "get@2 is a canary with the share 25; it has to be above 0 and at most 1"),
        ('"share": 0.25', '"share": 0', "with the share 0; it has to be above 0"),
        ('"share": 0.25', '"share": -3.0', "with the share -3; it has to be above 0"),
        ('"share": 0.25', '"share": "0.25"', "float"),
        ('"stage": "canary"', '"stage": "shadow"', "get@2 is a shadow with the share 0.25; it has to be 0"),
        ('"withdrawn": []', '"withdrawn": ["1"]', "get@1 is in force and withdrawn, .* take it out of one"),
        ('"withdrawn": []', '"withdrawn": ["2"]', "get@2 is in force and withdrawn"),
        ('"stable": "1"', '"stable": "2"', "get@2 is stable and a candidate; take it out of one"),
        ('"previous": []', '"previous": ["7"]', "get@7 is named and no version of it is locked"),
        ('"revision": 3', '"revision": -3', "revision"),
        ('"format": 1', '"format": 0', "format"),
    ],
)
def test_a_lock_that_no_step_leads_to_is_refused(shop, right, wrong, words):
    """What was edited into something that cannot be is no lock: neither more runs than all, nor a version withdrawn."""
    shop.canary(0.25)
    text = shop.path.read_text()
    assert text.count(right) >= 1
    shop.path.write_text(text.replace(right, wrong, 1))
    with pytest.raises(ConfigurationError, match=f"{words}.*changed by hand"):
        shop.guard()
    shop.path.write_text(text)
    assert shop.guard() is not None


def test_the_lock_is_written_the_same_way_every_time(shop):
    """Reading and writing a lock gives the same bytes, sorted, with a line per step."""
    text = shop.path.read_text()
    assert lock_text(read_lock(shop.path)) == text
    assert text.count('"step":"lock"') == len([line for line in text.splitlines() if '"step":"lock"' in line]) == 2
    assert lock_text(locking.ContractLock()).endswith('"history": []\n}\n')
    assert '"dropped"' not in text
    shop.step(lambda lock: locking.drop_version(lock, "get", "2", NOTE))
    assert lock_text(read_lock(shop.path)) == shop.path.read_text()
    assert read_lock(shop.path).dropped.keys() == {"get@2"}


def test_steps_of_several_operators_are_all_kept(shop):
    """Steps that are done at the same moment are all in the history, one after the other."""

    def work(number):
        shop.step(lambda lock: locking.add_version(lock, _named(f"t{number}"), "x.json", NOTE, stable=True))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_lock(shop.path)
    assert found.revision == len(found.history) == 10
    assert [path.name for path in shop.folder.iterdir() if path.name.startswith(".")] == []


def _named(name):
    return pokayoke.Contract.from_schema(name, {"type": "object"})


def test_a_step_that_raises_writes_nothing(shop):
    """An exception in a step leaves the lock and its folder as they were."""
    before = shop.path.read_bytes()
    with pytest.raises(ConfigurationError):
        shop.step(lambda lock: locking.promote_candidate(lock, "get", NOTE))
    assert shop.path.read_bytes() == before


def test_the_webhook_knows_the_marks_of_every_version(tmp_path, monkeypatch):
    """A question about a canary's call is announced without the fields that only the canary's contract marks."""
    shop = Shop(tmp_path)
    shop.lock(entry(effect="write"), entry("2", effect="write", approval=True, redact=["key"]))
    shop.canary()
    guard, told = shop.guard(), []

    class Announcer:
        def enqueue_approval(self, approval):
            told.append((approval.contract, approval.marks))

        def close(self):
            pass

    guard.announcer = Announcer()
    assert guard.run("r").call(ask()).status == "pending"
    assert told == [("get@2", ("key",))]


# -- shadows ---------------------------------------------------------------------------------------


def shadows(guard, path):
    """The shadow events of a trace, after the guard was closed."""
    guard.close()
    return [one for one in map(json.loads, path.read_text().splitlines()) if one["event"] == "shadow"]


def test_a_shadow_judges_and_decides_nothing(shop, tmp_path, driver):
    """The stable version decides alone; what the candidate says differently stands in the trace and nowhere else."""
    shop.shadow()
    path = tmp_path / "t.jsonl"
    guard = shop.guard(config={"trace": {"path": str(path)}})
    plain = pokayoke.Guard(guard.tools)
    for ident in ("a", "text"):
        seen, alone = (driver.call(one.run("r"), ask(ident)) for one in (guard, plain))
        assert (seen.status, seen.text, seen.findings) == (alone.status, alone.text, alone.findings)
    assert driver.call(guard.run("r"), ToolCall("c", "get", '{"idd": 1}')).status == "refused"
    run = guard.run("t")
    ticket = driver.begin(run, ask())
    assert driver.finish(run, ticket, result={"key": "a", "total": 1}).status == "ok"
    ticket = driver.begin(run, ask())
    assert driver.finish(run, ticket, error="no").status == "failed"
    assert driver.begin(run, ToolCall("c", "get", '{"idd": 1}')).outcome.status == "refused"
    assert driver.call(run, ToolCall("c", "nobody", "{}")).status == "refused"
    found = shadows(guard, path)
    assert [(one["ok"], one.get("differs")) for one in found] == [
        (False, ["output"]), (False, ["output"]), (True, None), (False, ["output"]), (True, None), (True, None),
    ]  # fmt: skip
    assert {(one["contract"], one["candidate"]) for one in found} == {("get@1", "get@2")}


def test_a_shadow_is_not_disturbed_by_who_uses_the_answer(shop, tmp_path):
    """What the tool returned is kept as it was, though the host changes it while the shadow waits."""
    shop.shadow()
    kept = {"key": "a", "total": 9.5}
    path = tmp_path / "t.jsonl"

    def get(key: str):
        return kept

    guard = shop.guard(get, config={"trace": {"path": str(path)}})
    gate = threading.Event()
    guard.beside._waiting._consume, look = (lambda seen: (gate.wait(10), look(seen))), guard.beside._process_call
    asked = {"key": "a"}
    guard.run("r").call(ToolCall("c", "get", asked))
    kept["total"] = asked["key"] = "changed"
    gate.set()
    (found,) = shadows(guard, path)
    assert found["reason"] == "output: valid -> wrong_type at /total"


@pytest.mark.parametrize("fault", ["raises", "hangs"])
def test_a_broken_shadow_harms_no_call(tmp_path, fault, monkeypatch):
    """A candidate whose code raises or hangs costs its own comparison; calls, also hundreds of them, are as before."""
    shop = Shop(tmp_path)
    gate = threading.Event()

    def made(version, check):
        return pokayoke.Contract.from_schema(
            "get", obj(["key"], key=S), version=version, effect="read", output_schema=obj(key=S, total=N), handler=get,
            defined_in_code=True, invariants=(check,),
        )  # fmt: skip

    def broken(output, arguments):
        if fault == "hangs":
            gate.wait(30)
        raise SystemExit

    one, two = made("1", lambda output, arguments: True), made("2", broken)
    shop.step(lambda lock: locking.add_version(lock, one, "shop:tools", NOTE, stable=True))
    shop.step(lambda lock: locking.add_version(lock, two, "shop:tools", NOTE, stable=False))
    shop.shadow()
    monkeypatch.setattr("pokayoke.runtime.trace.background._MOST_WAITING", 50)
    guard = shop.guard(one, two)
    run = guard.run("r")
    for _ in range(100):
        assert run.call(ask()).status == "ok"
    assert guard.beside.dropped_count > 0 if fault == "hangs" else guard.beside.flush()
    gate.set()
    assert guard.beside.flush(30)
    guard.close()


def test_answers_of_every_kind_are_kept_or_left_out(shop, tmp_path):
    """Wire responses are judged as such, decimals and what has no JSON form are left out, and nothing raises."""
    shop.shadow()
    path = tmp_path / "t.jsonl"
    body = '{"key": "a", "total": "1"}'

    class Response:
        status_code, headers, content = 200, {"content-type": "application/json"}, body.encode()

        @property
        def text(self):
            return body

    class Sly:
        @property
        def __dict__(self):
            raise RuntimeError

    answers = [
        body, body.encode(), pokayoke.Raw(body, "application/json"), {"body": body, "content_type": "application/json"},
        type("R", (Response,), {})(), {"key": "a", "total": Decimal("1.5")}, {"key": "a", "total": object()}, Sly(),
    ]  # fmt: skip
    guard = shop.guard(lambda_named(answers), config={"trace": {"path": str(path)}})
    run = guard.run("r")
    for number in range(len(answers)):
        run.call(ask(str(number)))
    found = [one.get("reason", "") for one in shadows(guard, path)]
    assert found[:5] == ["output: wrong_type at /total -> valid"] * 5
    assert found[5:] == [""] * 3


def lambda_named(answers):
    """A function of the right name that answers by number."""

    def get(key: str):
        return answers[int(key)]

    return get


async def test_shadows_of_an_asynchronous_program(shop, tmp_path):
    """Asynchronous calls side by side are all looked at."""
    shop.shadow()
    path = tmp_path / "t.jsonl"
    guard = shop.guard(config={"trace": {"path": str(path)}})
    run = guard.run("r")
    await asyncio.gather(*(run.acall(ask("text")) for _ in range(5)))
    assert len(shadows(guard, path)) == 5


def test_a_comparison_that_breaks_is_told_and_the_next_one_made(shop, tmp_path, monkeypatch):
    """Whatever ends a comparison is an event of its own; the thread goes on."""
    shop.shadow()
    path = tmp_path / "t.jsonl"
    guard = shop.guard(config={"trace": {"path": str(path)}})
    run = guard.run("r")
    with monkeypatch.context() as patched:

        def broken(*_):
            raise SystemExit

        patched.setattr("pokayoke.runtime.trace.background.shadow_event", broken)
        run.call(ask())
        assert guard.beside.flush(30)
    run.call(ask("text"))
    first, second = shadows(guard, path)
    assert (first["differs"], first["reason"]) == (["broken"], "the shadow raised SystemExit")
    assert second["differs"] == ["output"]


def test_a_version_that_contradicts_the_tool_is_found_while_building(tmp_path):
    """What a file says and what stays of the tool have to fit together; the message names the version and the file."""
    shop = Shop(tmp_path)
    shop.lock(entry(name="get", input_schema=obj(["key"], key=S)))
    tool = pokayoke.Contract.from_schema("get", obj(["path"], path=S), paths={"path": (str(tmp_path),)}, effect="read")
    with pytest.raises(ContractError, match=r"get@1 in contracts\.json: "):
        shop.guard(tool)


def test_the_folder_of_a_program_may_change(shop, tmp_path, monkeypatch):
    """A lock that was named relative to the folder of then is followed where it is."""
    monkeypatch.chdir(tmp_path)
    guard = pokayoke.Guard([get], contracts="contracts.lock")
    monkeypatch.chdir("/")
    shop.canary()
    assert used(guard.run("r"), "text") == ("get@2", "ok")
