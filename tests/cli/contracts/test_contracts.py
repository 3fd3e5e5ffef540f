"""`pokayoke contracts`: lock, compare, bring out, roll back; every refusal changes nothing and says what to do."""

import json

import pytest

from pokayoke.runtime.versions.lock_file import read_lock

WHY = ("--by", "mo", "--reason", "test")
S, N = {"type": "string"}, {"type": "number"}


def entry(version="1", name="get", **fields):
    """One contract."""
    schema = {"type": "object", "properties": {"id": S}, "required": ["id"], "additionalProperties": False}
    output = {"type": "object", "properties": {"total": N}, "required": ["total"]}
    made = {"name": name, "version": version, "effect": "read", "timeout": 5}
    return {**made, "input_schema": schema, "output_schema": output, **fields}


TEXTS = {"output_schema": {"type": "object", "properties": {"total": S}, "required": ["total"]}}


@pytest.fixture
def write(tmp_path):
    """Writes a file of contracts and returns its name."""

    def written(*entries, name="contracts.json"):
        (tmp_path / name).write_text(json.dumps({"contracts": list(entries)}))
        return name

    return written


@pytest.fixture
def contracts(shell):
    """Runs a command of the group; with words of who and why where it needs them."""

    def command(*words):
        told = WHY if words[0] not in ("check", "diff", "status", "history") else ()
        return shell("contracts", *words, *told)

    return command


@pytest.fixture
def locked(contracts, write):
    """Two versions of one tool, the first one stable."""
    done = contracts("lock", write(entry(), entry("2", **TEXTS)), "--stable", "get@1")
    assert (done.returncode, done.stdout) == (0, "locked get@1  (1)\nlocked get@2  (1)\n")
    return contracts


def refused(done):
    """The words of a command that could not run."""
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


# -- lock ------------------------------------------------------------------------------------------


def test_who_did_it_is_unicode(shell, write, tmp_path):
    """A name typed in another encoding is refused with a sentence, and nothing is locked."""
    done = shell("contracts", "lock", write(entry()), "--by", "J\udcf6rg", "--reason", "r")
    assert "J\\udcf6rg' is no Unicode" in refused(done)
    assert not (tmp_path / "contracts.lock").exists()


def test_locking_again_changes_nothing(locked, tmp_path):
    """The same files again are no change; --json says what was locked."""
    before = (tmp_path / "contracts.lock").read_bytes()
    done = json.loads(locked("lock", "contracts.json", "--json").stdout)
    assert (done["ok"], done["revision"], done["locked"]) == (True, 2, [])
    assert (tmp_path / "contracts.lock").read_bytes() == before


def test_a_changed_contract_needs_a_new_version(locked, write, tmp_path):
    """A contract that was changed under its version is a finding, in lock and in check, and nothing is written."""
    before = (tmp_path / "contracts.lock").read_bytes()
    write(entry(max_chars=7), entry("2", **TEXTS), entry("3"))
    done = locked("lock", "contracts.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "get@1 in contracts.json is not what is locked under that version" in done.stderr
    assert json.loads(locked("lock", "contracts.json", "--json").stdout)["ok"] is False
    assert (tmp_path / "contracts.lock").read_bytes() == before
    checked = locked("check")
    assert checked.returncode == 1
    drift = "get@1 in contracts.json is not what is locked under that version. Undo the change, or give the changed"
    assert checked.stdout.splitlines() == [
        f"drift  {drift} contract a new version",
        "note   get@3 in contracts.json is not locked: no run gets it",
    ]


def test_check_tells_apart_what_matters(locked, write, tmp_path):
    """A missing version in force is a finding; one that no run gets is a note; --json has both."""
    assert locked("check").stdout == "clean: 1 tool as locked, revision 2\n"
    write(entry())
    done = locked("check")
    assert done.returncode == 0
    assert done.stdout.startswith("note   contracts.json does not hold get@2 any more")
    write(entry("2", **TEXTS))
    done = locked("check", "--json")
    assert done.returncode == 1
    (drift,) = json.loads(done.stdout)["drift"]
    assert (drift["contract"], drift["in_force"]) == ("get@1", True)
    (tmp_path / "contracts.json").unlink()
    assert locked("check").returncode == 1


def test_a_new_tool_in_several_versions_has_to_be_told(contracts, write):
    """Which of several versions of a new tool is in force is never guessed."""
    name = write(entry(), entry("2", **TEXTS))
    assert "Say which one is in force: --stable get@2" in refused(contracts("lock", name))
    assert "none of the sources holds it" in refused(contracts("lock", name, "--stable", "get@7"))
    assert contracts("lock", name, "--waiting").returncode == 0
    assert "--stable is for new tools" in refused(contracts("lock", name, "--stable", "get@1"))


def test_code_can_be_locked(contracts, tmp_path):
    """Tools of a module are locked by what they promise; the lock names the module."""
    (tmp_path / "shop.py").write_text(
        "import pokayoke\n\n@pokayoke.tool(effect='read', output='text')\ndef look(a: str):\n    return a\n\nALL = [look]\n"
    )
    assert contracts("lock", "shop:ALL").returncode == 0
    assert read_lock(tmp_path / "contracts.lock").tools["look"].versions["1"].source == "shop:ALL"
    assert contracts("check").returncode == 0


def test_the_lock_may_stand_elsewhere(contracts, write, tmp_path):
    """Sources are named relative to the lock, wherever it and the command are."""
    (tmp_path / "locks").mkdir()
    name = write(entry())
    assert contracts("lock", name, "--lock", "locks/my.lock").returncode == 0
    assert read_lock(tmp_path / "locks" / "my.lock").tools["get"].versions["1"].source == "../contracts.json"
    assert contracts("check", "--lock", "locks/my.lock").returncode == 0


def test_who_and_why_are_kept(contracts, shell, write):
    """An empty name or reason is refused; the history shows both, and the time."""
    name = write(entry())
    assert "--by is empty" in refused(shell("contracts", "lock", name, "--by", " ", "--reason", "x"))
    assert "--reason is empty" in refused(shell("contracts", "lock", name, "--by", "mo", "--reason", ""))
    contracts("lock", name)
    (step,) = json.loads(contracts("history", "get", "--json").stdout)
    assert (step["by"], step["reason"], step["step"]) == ("mo", "test", "lock")
    assert contracts("history").stdout.split() == [
        "1", step["at"], "mo", "lock", "get@1", "nothing", "->", "1", "test",
    ]  # fmt: skip
    assert contracts("history", "other").stdout == ""


# -- steps -----------------------------------------------------------------------------------------


def test_a_rollout_is_one_command_per_step(locked):
    """Every step says from where to where, and status shows where it led."""
    ways = [
        (("shadow", "get@2"), "get: 1 -> 1, and 2 as shadow\n"),
        (("canary", "get@2", "--share", "5%"), "get: 1, and 2 as shadow -> 1, and 2 as canary for 5 %\n"),
        (("widen", "get", "--share", "0.5"), "get: 1, and 2 as canary for 5 % -> 1, and 2 as canary for 50 %\n"),
        (("promote", "get"), "get: 1, and 2 as canary for 50 % -> 2\n"),
    ]
    for words, told in ways:
        done = locked(*words)
        assert (done.returncode, done.stdout) == (0, told)
    rows = [line.split()[:3] for line in locked("status").stdout.splitlines()]
    assert rows == [["tool", "version", "is"], ["get", "1", "retired"], ["get", "2", "stable"]]
    assert locked("rollback", "get").stdout == "get: 2 -> 1\n"
    shown = json.loads(locked("status", "--json").stdout)["tools"]["get"]
    assert (shown["stable"], shown["withdrawn"]) == ("1", ["2"])
    assert locked("drop", "get@2").returncode == 0
    assert "withdrawn" not in locked("status").stdout


def test_status_shows_a_candidate(locked):
    """A canary is shown with its share, a shadow without one."""
    locked("shadow", "get@2")
    assert "get   2        shadow  " in locked("status").stdout
    locked("canary", "get@2", "--share", "0.1")
    assert "canary for 10 %" in locked("status").stdout
    locked("rollback", "get")
    assert "withdrawn" in locked("status").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("canary", "get@9", "--share", "0.1"), "get@9 is not locked (versions: 1, 2)"),
        (("canary", "get", "--share", "0.1"), "expected TOOL@VERSION"),
        (("canary", "get@2", "--share", "ten"), "expected a part such as 0.1, or 10%"),
        (("canary", "get@2", "--share", "10"), "at most 1"),
        (("widen", "get", "--share", "0.1"), "has no canary to widen"),
        (("promote", "get"), "no candidate to promote"),
        (("promote", "other"), "no tool 'other' is locked"),
        (("rollback", "get"), "nothing to roll back"),
        (("drop", "get@1"), "is in force"),
    ],
)
def test_a_step_that_cannot_be_meant_is_refused(locked, tmp_path, words, told):
    """The refusal says why, the exit code is 2, and the lock is as it was."""
    before = (tmp_path / "contracts.lock").read_bytes()
    assert told in refused(locked(*words))
    assert (tmp_path / "contracts.lock").read_bytes() == before


def test_without_a_lock_there_is_no_step(contracts, tmp_path):
    """A step does not make a lock; it says how to make one."""
    assert "contracts lock FILE" in refused(contracts("rollback", "get"))
    assert "contracts lock FILE" in refused(contracts("status"))
    assert not (tmp_path / "contracts.lock").exists()


def test_what_is_brought_out_is_what_was_locked(locked, write):
    """A candidate whose file was changed after it was locked is not brought out."""
    write(entry(), entry("2", max_chars=3, **TEXTS))
    assert "is not what is locked" in refused(locked("shadow", "get@2"))
    assert "is not what is locked" in refused(locked("canary", "get@2", "--share", "0.1"))


def test_a_step_that_programs_cannot_follow_says_so(locked, write):
    """It is taken, since what is in force may be worse; who cannot follow, and why, is told, and the exit code is 1."""
    locked("canary", "get@2", "--share", "0.1")
    write(entry(max_chars=3), entry("2", **TEXTS))
    done = locked("rollback", "get")
    assert (done.returncode, done.stdout) == (1, "get: 1, and 2 as canary for 10 % -> 1\n")
    assert "cannot take it over" in done.stderr
    assert "get@1 in contracts.json is not what is locked" in done.stderr
    write(entry(), entry("2", max_chars=3, **TEXTS))
    done = locked("drop", "get@2")
    assert (done.returncode, "Programs take it over" in done.stderr) == (0, True)
    locked("lock", write(entry(), entry("3", **TEXTS)))
    write(entry("3", **TEXTS))
    done = locked("shadow", "get@3", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], [one["contract"] for one in told["drift"]]) == (1, False, ["get@1"])


def test_a_write_keeps_its_keys(contracts, write):
    """A candidate that names its effects otherwise is refused, unless somebody accepts a second effect."""
    fields = {"name": "pay", "effect": "write"}
    name = write(entry(**fields, identity=["id"]), entry("2", **fields))
    contracts("lock", name, "--stable", "pay@1")
    told = refused(contracts("canary", "pay@2", "--share", "0.1"))
    assert "names its effects otherwise than pay@1 (identity)" in told
    contracts("shadow", "pay@2")
    assert "names its effects otherwise" in refused(contracts("promote", "pay", "--unseen"))
    assert contracts("promote", "pay", "--unseen", "--new-keys").returncode == 0


def test_json_of_a_step(locked):
    """--json has the step as the history keeps it, and how the tool stands."""
    done = json.loads(locked("canary", "get@2", "--share", "0.1", "--json").stdout)
    assert (done["ok"], done["step"]["step"], done["tool"]["candidate"]["share"]) == (True, "canary", 0.1)


def test_the_history_of_an_unknown_tool_is_no_empty_one(locked):
    """A misspelt name is said so, with the names there are; nothing printed would look like nothing happened."""
    assert "'gett' is not locked in contracts.lock (tools: get)" in refused(locked("history", "gett"))
    assert locked("history", "get").stdout


# -- diff ------------------------------------------------------------------------------------------


def test_a_difference_says_whom_it_breaks(locked):
    """Breaking changes come first, each with its sides, and the exit code says that there are some."""
    done = locked("diff", "get@1", "get@2")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "get@1 -> get@2: 1 breaking",
        "  breaking:",
        "    output /total  type: number -> string  breaks readers, tool",
    ]
    assert "readers: answers may be other than they were" in done.stderr


def test_two_files_are_compared_tool_by_tool(contracts, write):
    """Tools that are gone break their callers, new ones nobody, equal ones do not change."""
    old = write(entry(), entry(name="gone"), entry(name="same"), name="old.json")
    new = write(entry(timeout=9), entry(name="new"), entry(name="same"), name="new.json")
    done = contracts("diff", old, new, "--json")
    found = {
        name: [(c["kind"], c["at"]) for c in changes] for name, changes in json.loads(done.stdout)["tools"].items()
    }
    assert found == {
        "get@1": [("safe", "timeout")],
        "gone": [("breaking", "tool")],
        "same@1": [],
        "new": [("safe", "tool")],
    }
    assert done.returncode == 1
    same = contracts("diff", old, old)
    assert (same.returncode, same.stdout.splitlines()[0]) == (0, "get@1: no change")


def test_a_side_that_is_none_is_refused(locked):
    """A version that is not locked, a file that is not there, and one with several versions cannot be compared."""
    assert "get@9 is not locked" in refused(locked("diff", "get@1", "get@9"))
    assert "cannot be read" in refused(locked("diff", "none.json", "get@1"))
    assert "several versions of get" in refused(locked("diff", "contracts.json", "get@1"))


def test_recorded_calls_are_counted(locked, tmp_path):
    """--against says how many recorded calls would break and how many would be mended."""
    answers = [{"total": 1}, {"total": 2}, {"total": "3"}]
    rows = [{"tool": "get", "arguments": {"id": "a"}, "output": json.dumps(answer)} for answer in answers]
    rows.append({"tool": "other", "arguments": {}})
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{cut")
    done = locked("diff", "get@1", "get@2", "--against", "r.jsonl")
    assert (
        "recorded calls: 2 of 3 would break, 1 would be mended\n  2  answer valid -> invalid  r.jsonl:1" in done.stdout
    )
    assert "1 record could not be read" in done.stderr
    found = json.loads(locked("diff", "get@1", "get@2", "--against", "r.jsonl", "--json").stdout)["against"]
    assert (found["calls"], found["broken"], found["mended"], found["unread"]) == (3, 2, 1, 1)


# -- beside it -------------------------------------------------------------------------------------


def test_check_reads_a_file_with_several_versions(shell, write):
    """`pokayoke check` looks at every version of a file, and does not take them for rivals."""
    done = shell("check", write(entry(), entry("2", **TEXTS)))
    assert (done.returncode, done.stdout) == (0, "clean: tools get@1, get@2\n")


def test_doctor_tells_of_a_rollout(locked, shell, write):
    """Doctor names what is being brought out, and a drift as something to change."""
    locked("canary", "get@2", "--share", "0.1")
    done = shell("doctor", "--json")
    assert "contracts.lock: get is 1, and 2 as canary for 10 %." in json.loads(done.stdout)["notes"]
    write(entry(), entry("2", max_chars=3, **TEXTS))
    done = shell("doctor", "--json")
    assert done.returncode == 1
    assert [one["code"] for one in json.loads(done.stdout)["problems"]] == ["contract_drift"]
    assert "rollout" in {probe["name"] for probe in json.loads(done.stdout)["probes"] if probe["fired"]}
