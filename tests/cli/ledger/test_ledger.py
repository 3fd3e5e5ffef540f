"""`pokayoke ledger`: what it shows, settles and forgets, and that it names what it cannot do."""

import base64
import time
from contextlib import closing

import apsw
import pytest
from clishell import json_lines

from pokayoke import Contract, Guard, ToolCall
from pokayoke.cli.ledger import _find_record
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.key import compensation_key
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.core.state.run_state import RunState
from pokayoke.errors import StoreError
from pokayoke.stores import open_store
from pokayoke.stores.sql import migrations as schema

ARGUMENTS = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
DAY = 86_400.0

pytestmark = pytest.mark.usefixtures("named_store")


def wrote(ledger, key, state="completed", *, tool="pay", at=None, lease=40.0, run="r1", **settled):
    """Claim an effect and settle it, as a guard does."""
    at = time.time() if at is None else at
    store = ledger()
    store.admit(
        AdmissionRequest(
            run, tool, "write", (), at, Claim(key, "h" * 64, f"c-{key}", tool, f"{tool}@1", run, at, lease)
        )
    )
    if state != "executing":
        store.settle(Settlement(key, f"c-{key}", state, at, **settled))
    store.close()
    return key


# -- init and migrate --------------------------------------------------------------------------------


def test_a_ledger_is_made_once(shell, tmp_path):
    """Init makes a file and says its id; a second init and a migrate leave it as it is."""
    first = shell("ledger", "init", "--json")
    assert first.returncode == 0
    (told,) = json_lines(first)
    assert len(told["ledger_id"]) >= 32
    before = (tmp_path / "ledger.db").read_bytes()
    assert json_lines(shell("ledger", "init", "--json")) == [told]
    assert json_lines(shell("ledger", "migrate", "--json")) == [told]
    assert (tmp_path / "ledger.db").read_bytes() == before
    assert "POKAYOKE_STORE_KEY" in shell("ledger", "init").stderr


def test_a_newer_ledger_is_not_called_up_to_date(shell, tmp_path):
    """Nothing can be written to it from here: migrate says so, and that an upgrade of the program helps."""
    shell("ledger", "init")
    with closing(apsw.Connection(str(tmp_path / "ledger.db"))) as conn:
        conn.execute("UPDATE pokayoke_meta SET value = '99' WHERE name = 'schema_version'")
    done = shell("ledger", "migrate")
    assert (done.returncode, done.stdout, "upgrade pokayoke" in done.stderr) == (2, "", True)


@pytest.mark.parametrize("words", [("list",), ("migrate",), ("show", "ab"), ("prune", "--older-than", "90d")])
def test_no_command_but_init_makes_a_ledger(shell, tmp_path, words):
    """A missing file is an error that names init, and stays missing."""
    done = shell("ledger", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pokayoke ledger init" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "word"),
    [("", "--store"), ("memory://", "memory"), ("redis://x", "redis"), ("sqlite:///no/folder/x.db", "folder")],
)
def test_a_store_that_cannot_be_used_is_said(shell, monkeypatch, url, word):
    """None, one in memory, one of another kind, one without its folder: exit code 2 and a sentence."""
    monkeypatch.setenv("POKAYOKE_STORE", url)
    done = shell("ledger", "list")
    assert done.returncode == 2
    assert word in done.stderr


# -- list and show -----------------------------------------------------------------------------------


def test_effects_are_listed_and_filtered(shell, ledger):
    """The latest first; tool, run, state, age and number narrow down; --limit 0 gives all by key."""
    now = time.time()
    for number in range(5):
        wrote(
            ledger,
            f"{number}" * 64,
            at=now - number * 3_600,
            tool="pay" if number < 3 else "mail",
            run=f"r{number % 2}",
        )
    wrote(ledger, "a" * 64, "in_doubt", at=now - 9 * DAY, failure="timeout")
    wrote(ledger, "b" * 64, "executing", at=now - 9 * DAY)
    wrote(ledger, "c" * 64, "executing", at=now)

    def keys(*words):
        return "".join(one["key"][0] for one in json_lines(shell("ledger", "list", "--json", *words)))

    assert keys() in ("c01234ab", "c01234ba", "0c1234ab", "0c1234ba")
    assert keys("--limit", "0") == "01234abc"
    assert keys("--limit", "2", "--state", "completed") == "01"
    assert keys("--tool", "mail") == "34"
    assert keys("--run", "r1", "--state", "completed") == "13"
    assert keys("--since", "90m", "--state", "completed") == "01"
    assert keys("--since", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - DAY))) in ("c01234", "0c1234")
    doubtful = shell("ledger", "list", "--in-doubt", "--json")
    assert doubtful.returncode == 1
    assert sorted(one["key"][0] for one in json_lines(doubtful)) == ["a", "b"]
    text = shell("ledger", "list", "--in-doubt").stdout
    assert "executing (lapsed)" in text
    assert "timeout" in text


def test_what_a_list_leaves_out_is_said_and_is_never_the_oldest_doubt(shell, ledger):
    """All doubts are listed, the oldest first; whatever a limit leaves out is counted on stderr, also with --json."""
    now = time.time()
    for number in range(101):
        wrote(ledger, f"{number:03}" + "d" * 61, "in_doubt", at=now - number)
    for words in ((), ("--json",)):
        done = shell("ledger", "list", *words)
        assert "1 more effect not shown: --limit 0 lists all" in done.stderr
        done = shell("ledger", "list", "--in-doubt", "--limit", "3", *words)
        assert "98 more effects not shown" in done.stderr
        done = shell("ledger", "list", "--limit", "0", *words)
        assert "not shown" not in done.stderr
    done = shell("ledger", "list", "--in-doubt", "--json")
    assert [one["key"][:3] for one in json_lines(done)] == [f"{number:03}" for number in range(100, -1, -1)]
    assert "not shown" not in done.stderr
    first = json_lines(shell("ledger", "list", "--in-doubt", "--json", "--limit", "1"))
    assert [one["key"][:3] for one in first] == ["100"]


def test_nothing_in_doubt_is_exit_code_0(shell, ledger):
    """A clean ledger is clean, and stdout stays empty."""
    wrote(ledger, "0" * 64)
    done = shell("ledger", "list", "--in-doubt")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is in doubt" in done.stderr


def test_an_effect_is_shown_with_its_audit_and_what_to_do(shell, ledger):
    """Show takes a prefix and tells record, audit and the next step; the output itself is not shown."""
    key = wrote(ledger, "ab" + "0" * 62, "in_doubt", failure="timeout")
    text = shell("ledger", "show", "ab").stdout
    assert f"pokayoke ledger resolve {key[:12]}" in text
    shell("ledger", "resolve", key[:6], "--happened", "PO-7", "--by", "ann", "--reason", "seen")
    (told,) = json_lines(shell("ledger", "show", key, "--json"))
    assert told["record"]["state"] == "completed"
    assert "output" not in told["record"]
    assert [(entry["kind"], entry["by"], entry["reason"]) for entry in told["audit"]] == [("decided", "ann", "seen")]
    assert told["next"].startswith("nothing")


@pytest.mark.parametrize(
    ("settled", "word"),
    [
        (("completed", {}), "never runs again"), (("completed", {"output_ok": False}), "broke the contract"),
        (("failed_retriable", {}), "may run again"), (("failed_retriable", {"attempts": 3}), "--not-happened"), (("failed_final", {}), "reconcile"), (("executing", {}), "at work"),
    ],
)  # fmt: skip
def test_every_state_has_a_next_step(shell, ledger, settled, word):
    """What is to be done next fits the state."""
    for _ in range(settled[1].pop("attempts", 1)):
        wrote(ledger, "a" * 64, settled[0], **settled[1])
    assert word in shell("ledger", "show", "a").stdout


@pytest.mark.parametrize("start", ["", "zz", "b", "a" * 64 + "0", "A0", "%", "a"])
def test_a_prefix_has_to_fit_one_key(shell, ledger, start):
    """Nothing, no hex, no such key, too long, two that fit: exit code 2; nothing is guessed."""
    wrote(ledger, "a1" + "0" * 62)
    wrote(ledger, "a2" + "0" * 62)
    done = shell("ledger", "show", start)
    assert (done.returncode, done.stdout) == (2, "")


# -- resolve -----------------------------------------------------------------------------------------


def contract(effects):
    def pay(to):
        effects.append(to)
        if len(effects) == 1:
            raise TimeoutError
        return {}

    return Contract.from_schema("pay", ARGUMENTS, output_schema={}, handler=pay)


@pytest.mark.parametrize(("words", "after", "times"), [
    (("--happened", "PO-7"), "replayed", 1), (("--not-happened",), "ok", 2),
])  # fmt: skip
def test_a_person_settles_a_doubt(shell, ledger, words, after, times):
    """After "it happened" the call is answered from the ledger; after "it did not" it runs once more."""
    effects = []
    guard = Guard([contract(effects)], store=ledger())
    call = ToolCall("c1", "pay", {"to": "ann"})
    with guard.run("r1") as run:
        doubt = run.call(call)
        assert (doubt.status, run.call(call).status) == ("in_doubt", "in_doubt")
        done = shell("ledger", "resolve", doubt.key[:8], *words, "--by", "ann", "--reason", "looked")
        assert done.returncode == 0, done.stderr
        assert run.call(call).status == after
    guard.close()
    assert len(effects) == times
    assert shell("ledger", "resolve", doubt.key, *words, "--by", "bob", "--reason", "too").returncode == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--by", "a", "--reason", "b"), ("--happened", "x", "--not-happened", "--by", "a", "--reason", "b"),
        ("--happened", "--by", "a", "--reason", "b", "--by", "a"), ("--happened", "--json", "--by", "a", "--reason", "b"),
        ("--happened", " ", "--by", "a", "--reason", "b"), ("--not-happened", "--by", " ", "--reason", "b"),
        ("--not-happened", "--by", "a", "--reason", ""), ("--not-happened", "--by", "a"), ("--not-happened", "--reason", "a"),
    ],
)  # fmt: skip
def test_a_decision_says_what_who_and_why(shell, ledger, words):
    """Neither or both answers, no name, no reason: exit code 2, and the doubt stays."""
    key = wrote(ledger, "a" * 64, "in_doubt")
    assert shell("ledger", "resolve", key, *words).returncode == 2
    store = ledger()
    assert store.record(key).state == "in_doubt"
    store.close()


def test_a_call_whose_attempts_are_used_up_may_be_allowed_once_more(shell, ledger):
    """A person's word opens what three harmless failures have closed; the audit says what it was."""
    for _ in range(3):
        wrote(ledger, "a" * 64, "failed_retriable")
    shell("ledger", "resolve", "a" * 6, "--not-happened", "--by", "ann", "--reason", "the shop is up again")
    assert "the same call may run again" in shell("ledger", "show", "a").stdout
    store = ledger()
    wish = Claim("a" * 64, "h" * 64, "c4", "pay", "pay@1", "r1", time.time(), 40.0)
    assert store.admit(AdmissionRequest("r1", "pay", "write", (), time.time(), wish)).kind == "execute"
    store.close()


@pytest.mark.parametrize("state", ["completed", "failed_final", "executing"])
def test_only_a_doubt_can_be_settled(shell, ledger, state):
    """What is settled, or at work, is nobody's to decide."""
    wrote(ledger, "a" * 64, state)
    done = shell("ledger", "resolve", "a" * 6, "--not-happened", "--by", "ann", "--reason", "x")
    assert done.returncode == 2
    assert "not in doubt" in done.stderr


def test_a_doubt_is_not_settled_by_a_slip(shell, ledger):
    """Too little of a key shows an effect and decides nothing."""
    key = wrote(ledger, "a" * 64, "in_doubt")
    words = ("--not-happened", "--by", "ann", "--reason", "looked")
    assert shell("ledger", "show", "a").returncode == 0
    done = shell("ledger", "resolve", "aaaaa", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "at least 6 digits" in done.stderr
    assert shell("ledger", "resolve", key[:6], *words).returncode == 0


# -- prune -------------------------------------------------------------------------------------------


def test_pruning_counts_first_and_forgets_only_what_is_settled(shell, ledger):
    """Without --yes nothing goes; with it, what was settled before that time goes; doubts stay."""
    now = time.time()
    wrote(ledger, "1" * 64, at=now - 100 * DAY)
    wrote(ledger, "2" * 64, "failed_final", at=now - 100 * DAY, tool="mail")
    wrote(ledger, "3" * 64, at=now - 10 * DAY)
    wrote(ledger, "4" * 64, "in_doubt", at=now - 100 * DAY)
    wrote(ledger, "5" * 64, "executing", at=now - 100 * DAY)
    wrote(ledger, "6" * 64, "in_doubt", at=now - 100 * DAY)
    shell("ledger", "resolve", "6" * 6, "--happened", "PO-6", "--by", "ann", "--reason", "seen today")
    (dry,) = json_lines(shell("ledger", "prune", "--older-than", "90d", "--json"))
    assert (dry["old"], dry["by_tool"], dry["forgotten"]) == (2, {"pay": 1, "mail": 1}, 0)
    (wet,) = json_lines(shell("ledger", "prune", "--older-than", "90d", "--yes", "--by", "ann", "--json"))
    assert (wet["old"], wet["forgotten"]) == (2, 2)
    left = [one["key"][0] for one in json_lines(shell("ledger", "list", "--limit", "0", "--json"))]
    assert left == ["3", "4", "5", "6"]
    store = ledger()
    assert [(entry.kind, entry.by) for entry in store.audit()] == [("decided", "ann"), ("pruned", "ann")]
    store.close()


@pytest.mark.parametrize("age", ["29d", "0s", "1h", "4w"])
def test_what_may_still_be_repeated_is_not_forgotten(shell, ledger, age):
    """Below 30 days pruning is refused, unless forced."""
    wrote(ledger, "1" * 64, at=time.time() - 29.5 * DAY)
    assert shell("ledger", "prune", "--older-than", age, "--yes").returncode == 2
    assert len(json_lines(shell("ledger", "list", "--json"))) == 1
    assert shell("ledger", "prune", "--older-than", age, "--yes", "--force").returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--since", "yesterday"), ("list", "--since", "-1h"), ("list", "--state", "done"), ("list", "--limit", "-1"),
        ("list", "--state", "completed", "--in-doubt"), ("prune", "--older-than", "90"), ("prune", "--older-than", "nand"),
        ("prune",), ("frobnicate",),
    ],
)  # fmt: skip
def test_words_that_mean_nothing_are_refused(shell, ledger, words):
    """A wrong duration, date, state or command is exit code 2 with a sentence, and nothing on stdout."""
    done = shell("ledger", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_help_shows_examples(shell):
    """Every command's help has an example that begins with its own name."""
    for name in ("init", "migrate", "list", "show", "resolve", "prune", "reconcile"):
        assert f"pokayoke ledger {name}" in shell("ledger", name, "--help").stdout


def test_a_run_that_stopped_is_still_settled(shell, ledger):
    """A person's word counts whatever became of the run."""
    key = wrote(ledger, "a" * 64, "in_doubt")
    store = ledger()
    store.change_run("r1", lambda state: RunState("r1", mode="stopped", stop_reason="kill_switch"))
    store.close()
    assert shell("ledger", "resolve", key, "--not-happened", "--by", "ann", "--reason", "x").returncode == 0


@pytest.mark.parametrize("version", ["older", "newer"])
def test_an_older_ledger_is_migrated_and_a_newer_one_left_alone(shell, ledger, tmp_path, monkeypatch, version):
    """Only migrate brings an older ledger up to date; one that a newer pokayoke made is never touched."""
    other = schema.latest_version() + (1 if version == "older" else -1)
    monkeypatch.setattr(schema, "latest_version", lambda: other)
    step = (schema.Migration(other, ("CREATE TABLE pokayoke_next (x TEXT)",)),) if version == "older" else ()
    monkeypatch.setattr(schema, "load_migrations", lambda dialect: step)
    before = (tmp_path / "ledger.db").read_bytes()
    assert shell("ledger", "list").returncode == (2 if version == "older" else 0)
    done = shell("ledger", "migrate")
    if version == "older":
        assert "was migrated" in done.stdout
        assert shell("ledger", "list").returncode == 0
        assert "is up to date" in shell("ledger", "migrate").stdout
    else:
        assert (tmp_path / "ledger.db").read_bytes() == before


def test_an_effect_is_found_without_the_key_of_its_output(tmp_path, monkeypatch):
    """A whole key, or how it begins, finds an effect among its neighbours; its sealed output is not asked for."""
    url, key = f"sqlite:///{tmp_path}/sealed.db", "a" * 63 + "0"
    monkeypatch.setenv("POKAYOKE_STORE_KEY", base64.b64encode(b"k" * 32).decode())
    store = open_store(url, create=True)
    for one in (key, "a" * 64, "a" * 62 + "99", "9" * 64):
        store.admit(
            AdmissionRequest("r", "pay", "write", None, 1.0, Claim(one, "h", "c", "pay", "pay@1", "r", 1.0, 1.0))
        )
        store.settle(Settlement(one, "c", "completed", 2.0, output=b'"secret"'))
    store.close()
    monkeypatch.delenv("POKAYOKE_STORE_KEY")
    store = open_store(url)
    assert [_find_record(store, one).key for one in (key, "a" * 64, "9", "A" * 62 + "9")] == [
        key, "a" * 64, "9" * 64, "a" * 62 + "99",
    ]  # fmt: skip
    for one, said in (("aa", "several keys"), ("b", "no effect"), ("a" * 63 + "1", "no effect"), ("", "no effect")):
        with pytest.raises(StoreError, match=said):
            _find_record(store, one)
    store.close()


def test_a_doubt_after_an_undoing_is_not_called_undone(shell, ledger):
    """The undoing of an earlier attempt settles nothing of one that began later: somebody has to look."""
    key, at, store = "d" * 64, time.time() - 9_999, ledger()
    for name, begun, of in ((compensation_key(key), at, key), (key, at + 60, "")):
        claim = Claim(name, "h", name, "pay", "pay@1", "r", begun, 60, compensates=of)
        store.admit(AdmissionRequest("r", "pay", "write", (), begun, claim))
    store.settle(Settlement(compensation_key(key), compensation_key(key), "completed", at + 1))
    store.close()
    assert "next: look in the target" in shell("ledger", "show", key).stdout
