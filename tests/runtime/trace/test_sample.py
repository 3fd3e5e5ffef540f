"""The sample a program writes while it runs: whole runs, with pseudonyms, and no call that waits for it."""

import json
import os
import stat

import pytest

import pokayoke
from pokayoke import ToolCall
from pokayoke.errors import ConfigurationError, PolicyError
from pokayoke.replay.recording import Recording
from pokayoke.replay.score.evaluate import Judge
from pokayoke.runtime.files.key_file import load_key

ORDER = {"type": "string", "pattern": "^#W[0-9]{7}$"}
CONTRACT = {
    "name": "get_order",
    "effect": "read",
    "input_schema": {"type": "object", "properties": {"order": ORDER}, "required": ["order"]},
    "output_schema": {
        "type": "object",
        "properties": {"order": ORDER, "total": {"type": "number"}},
        "required": ["total"],
    },
}


def get_order(order):
    """Answers otherwise for one order, and not at all for another."""
    if order == "#W0000001":
        raise RuntimeError("password")
    return {"order": order, "total": "9.50 EUR" if order == "#W0000002" else 9.5}


def guarded(folder, *more, **trace):
    """A guard that samples every run."""
    contract = pokayoke.Contract.from_mapping(CONTRACT, handler=get_order)
    options = {"sample_path": str(folder / "s.jsonl"), "sample_share": 1.0, **trace}
    return pokayoke.Guard([contract, *more], config={"trace": options, "retry": {"retries": 0}})


def sampled(guard, folder):
    """The lines of the sample, after the guard was closed."""
    guard.close()
    return [json.loads(line) for line in (folder / "s.jsonl").read_text().splitlines()]


def ask(order, ident="c", name="get_order"):
    """A call as a model writes it."""
    return ToolCall(ident, name, json.dumps({"order": order}))


def test_what_was_asked_and_answered_is_there(tmp_path, driver):
    """A call, a refused one, one that raised and one whose answer broke its contract are written, and judged alike."""
    guard = guarded(tmp_path)
    run = guard.run("customer-4711")
    calls = [ask("#W1234567"), ToolCall("c", "get_order", '{"amount": 5}'), ask("#W0000001"), ask("#W0000002")]
    for call in calls:
        driver.call(run, call)
    good, refused, raised, drifted = lines = sampled(guard, tmp_path)
    assert json.loads(good["arguments"])["order"] == good["output"]["order"] != "#W1234567"
    assert "output" not in refused
    assert (raised["is_error"], "output" in raised) == (True, False)
    assert (len(drifted["output"]["total"]), drifted["output"]["total"][1]) == (8, ".")
    assert {line["contract"] for line in lines} == {"get_order@1"}
    assert "4711" not in json.dumps(lines)
    assert "password" not in json.dumps(lines)
    judge = Judge(guard.tools)
    found = [
        judge.judge_call(Recording(tool=x["tool"], arguments=x["arguments"], output=x.get("output"))) for x in lines
    ]
    assert [one.refusal is None for one in found] == [True, False, True, True]
    assert found[3].fault.code == "wrong_type"


def test_the_default_is_one_run_in_a_hundred(tmp_path):
    """Whole runs are drawn: all calls of a run are in the sample or none, and about a hundredth of the runs are."""
    guard = guarded(tmp_path, sample_share=0.05)
    for number in range(400):
        run = guard.run(f"r{number}")
        for _ in range(3):
            run.call(ask("#W1234567"))
        if number % 50 == 0:
            guard.beside.flush()
    lines = sampled(guard, tmp_path)
    counts = {line["run"]: 0 for line in lines}
    for line in lines:
        counts[line["run"]] += 1
    assert set(counts.values()) == {3}
    assert 3 <= len(counts) <= 45
    assert pokayoke.Policy().trace.sample_share == 0.01


def test_a_key_file_keeps_pseudonyms_equal(tmp_path):
    """With a key of its own, made for its owner alone, equal values have equal pseudonyms in every process."""
    key = tmp_path / "key"
    seen = []
    for _ in range(2):
        guard = guarded(tmp_path, sample_key_path=str(key))
        guard.run("r").call(ask("#W1234567"))
        seen.append(sampled(guard, tmp_path)[-1])
    assert seen[0] == seen[1]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    without = guarded(tmp_path)
    without.run("r").call(ask("#W1234567"))
    assert sampled(without, tmp_path)[-1] != seen[0]


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"00" * 32, 0o644, "can be read by others.*chmod 600"),
        (b"00" * 8, 0o600, "holds no key: expected 64 hexadecimal digits"),
        (b"\xff" * 64, 0o600, "holds no key"),
    ],
)
def test_a_key_that_protects_nothing_is_refused(tmp_path, content, mode, words):
    """A key that others can read, or that is none, is an error when the guard is built."""
    key = tmp_path / "key"
    key.write_bytes(content)
    key.chmod(mode)
    with pytest.raises(ConfigurationError, match=words):
        guarded(tmp_path, sample_key_path=str(key))


def test_a_key_that_cannot_be_made_or_read_is_refused(tmp_path):
    """Neither a folder that is not there nor one in the key's place is taken for a key."""
    with pytest.raises(ConfigurationError, match="cannot be made"):
        guarded(tmp_path, sample_key_path=str(tmp_path / "no" / "key"))
    (tmp_path / "key").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        guarded(tmp_path, sample_key_path=str(tmp_path / "key"))


def test_a_sample_that_cannot_be_written_is_called_by_its_own_option(tmp_path):
    """Whoever reads the error finds the line to change: it is not `trace.path`."""
    with pytest.raises(ConfigurationError, match=r"^trace\.sample_path '"):
        guarded(tmp_path, sample_path=str(tmp_path / "no" / "s.jsonl"))


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ({"sample_path": ""}, "`trace.sample_path` is empty"),
        ({"sample_path": "t", "path": "t"}, "is also `trace.path`"),
        ({"sample_key_path": "k"}, "is of no use without `trace.sample_path`"),
        ({"sample_share": 0.5}, "is of no use without `trace.sample_path`"),
        ({"sample_path": "s", "sample_share": 2}, "trace.sample_share"),
    ],
)
def test_options_that_contradict_each_other_are_refused(trace, words):
    """A sample that cannot be meant is an error of the configuration."""
    with pytest.raises(PolicyError, match=words):
        pokayoke.Guard([], config={"trace": trace})


def test_paths_count_from_the_configuration(tmp_path, monkeypatch):
    """In a file, the sample and its key stand relative to it, and a reload begins, moves and ends the sample."""
    config = tmp_path / "pokayoke.yaml"
    config.write_text("trace:\n  sample_path: s.jsonl\n  sample_share: 1.0\n  sample_key_path: key\n")
    contract = pokayoke.Contract.from_mapping(CONTRACT, handler=get_order)
    guard = pokayoke.Guard([contract], config=config)
    guard.run("r").call(ask("#W1234567"))
    guard.beside.flush()
    assert (tmp_path / "key").is_file()
    monkeypatch.setattr("pokayoke.runtime.config.config._QUIET", 0.0)
    config.write_text("trace:\n  sample_path: other.jsonl\n  sample_share: 1.0\n  sample_key_path: key\n")
    guard.run("r").call(ask("#W1234567"))
    guard.beside.flush()
    config.write_text("trace:\n  sample_path: no/where.jsonl\n  sample_share: 1.0\n")
    guard.run("r").call(ask("#W1234567"))
    config.write_text("{}\n")
    guard.run("r").call(ask("#W1234567"))
    guard.close()
    assert [(tmp_path / name).read_text().count("\n") for name in ("s.jsonl", "other.jsonl")] == [1, 2]


def test_a_secret_tool_is_withheld_and_an_envelope_named_nobodys(tmp_path):
    """No call of a tool that is marked as secret is written; one with an envelope is not said to be out of it."""
    fields = {"input_schema": {"type": "object"}, "effect": "read"}
    tell = pokayoke.Contract.from_mapping({"name": "tell", "secret": True, **fields}, handler=lambda: "hush")
    wrapped = pokayoke.Contract.from_mapping(
        {"name": "wrapped", "envelope": {"ok": "/ok"}, "output_schema": {"type": "object"}, **fields},
        handler=lambda: {"ok": True},
    )
    raw = pokayoke.Contract.from_mapping({"name": "raw", **fields}, handler=lambda: pokayoke.Raw(b'{"a": 1}'))
    guard = guarded(tmp_path, tell, wrapped, raw)
    for name in ("tell", "wrapped", "raw", "nobody"):
        guard.run("r").call(ToolCall("c", name, b"{}"))
    lines = {line["tool"]: line for line in sampled(guard, tmp_path)}
    assert "contract" not in lines["wrapped"]
    assert lines["raw"]["output"] == '{"a":1}'
    assert "tell" not in lines
    assert guard.beside._sampler.withheld_count == 1


def test_a_call_that_is_missing_in_the_sample_is_told(tmp_path):
    """What no pseudonyms would be judged alike for leaves a trace event, and is counted across reloads."""
    numbered = {"type": "object", "properties": {"number": {"type": "integer", "multipleOf": 86_028_121}}}
    contract = pokayoke.Contract.from_mapping(
        {"name": "get_number", "effect": "read", "input_schema": {"type": "object"}, "output_schema": numbered},
        handler=lambda: {"number": 86_028_121},
    )
    guard = guarded(tmp_path, contract, path=str(tmp_path / "t.jsonl"))
    guard.run("r").call(ToolCall("c1", "get_number", {}))
    sampler = guard.beside._sampler
    guard.beside.flush()
    guard.replace([contract])
    guard.run("r").call(ToolCall("c2", "get_number", {}))
    assert sampled(guard, tmp_path) == []
    assert sampler.withheld_count == 2
    told = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [(one["run_id"], one["call_id"], one["tool"], one["ok"]) for one in told if one["event"] == "sample"] == [
        ("r", "c1", "get_number", False), ("r", "c2", "get_number", False),
    ]  # fmt: skip


def test_a_page_is_in_the_sample_and_judged_as_one(tmp_path):
    """A page of HTML where data was expected is written with pseudonyms, and still is one."""
    page = '<!-- ann --><html lang="de"><body>Dear Ann Meier</body></html>'
    for name, body in (("raw", pokayoke.Raw(page, "text/html")), ("said", page)):
        (tmp_path / name).mkdir()
        contract = pokayoke.Contract.from_mapping({**CONTRACT, "name": "get_page"}, handler=lambda order, it=body: it)
        guard = guarded(tmp_path / name, contract)
        guard.run("r").call(ask("#W1234567", name="get_page"))
        [line] = sampled(guard, tmp_path / name)
        assert "Ann" not in line["output"]
        judged = Judge([contract]).judge_call(
            Recording(tool="get_page", arguments=line["arguments"], output=line["output"])
        )
        assert judged.fault.code == "html_instead_of_data"


def test_whoever_starts_at_the_same_moment_takes_the_first_key(tmp_path, monkeypatch):
    """A key is there as a whole or not at all, and only one is, although two processes make one."""
    link, path, first = os.link, tmp_path / "key", []

    def linking(draft, place):
        monkeypatch.setattr(os, "link", link)
        first.append(load_key(path, "trace.sample_key_path"))  # another process is quicker
        link(draft, place)

    monkeypatch.setattr(os, "link", linking)
    assert [load_key(path, "trace.sample_key_path")] == first
    assert [one.name for one in tmp_path.iterdir()] == ["key"]
