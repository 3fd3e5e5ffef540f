"""Configuration is read strictly, explained well, and followed as a whole or not at all."""

import json
import os
import re
import threading
import time

import jsonschema_rs
import msgspec
import pytest

from pokayoke.core.policy import Policy, ToolOutputPolicy, TracePolicy, ValidationPolicy
from pokayoke.errors import PolicyError
from pokayoke.runtime.config import config as config_module
from pokayoke.runtime.config.config import SCHEMA_FILE, PolicyFile, load_policy
from pokayoke.runtime.config.yaml_reader import read_document

SAFE_DEFAULT = """\
validation:
  tool_output:
    max_chars: 200000
    require_content_type: "application/json"
    schema: "strict"
safe_mode:
  on_invalid_output: "skip_writes"
alerts:
  invalid_output_spike: true
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pokayoke.yaml"


class TestLoad:
    """A source to a policy."""

    def test_nothing_is_the_safe_default(self):
        """No configuration is the same as an empty one."""
        assert load_policy() == load_policy(None) == load_policy({}) == Policy()

    def test_the_safe_default_written_out_is_the_default(self, path):
        """The safe default, written out in a file, changes nothing but that it demands every output contract."""
        path.write_text(SAFE_DEFAULT)
        strict = ValidationPolicy(tool_output=ToolOutputPolicy(schema="strict"))
        assert load_policy(path) == load_policy(str(path)) == Policy(validation=strict)

    def test_a_mapping_and_a_file_say_the_same(self, path):
        """The same keys in a mapping and in a file give equal policies."""
        keys = {"mode": "monitor", "limits": [{"tool": "pay", "amount": 5, "field": "sum"}], "budgets": {"calls": 3}}
        path.write_text(json.dumps(keys))
        assert load_policy(keys) == load_policy(path)
        assert load_policy(keys).limits[0].amount == 5.0

    def test_a_key_of_a_mapping_is_a_text(self):
        """In Python a key may be anything; the error names the mapping it stands in."""
        with pytest.raises(PolicyError, match=re.escape("`access.roles` has a key that is no text.")):
            load_policy({"access": {"roles": {5: ["boss"]}}})

    def test_a_policy_is_checked_like_a_file(self):
        """A policy built in code says the same; what nobody would accept in a file is refused with the same words."""
        policy = Policy(mode="monitor", trace=TracePolicy(path="t.jsonl"))
        assert load_policy(policy) == policy
        for wrong, said in (
            (Policy(trace=TracePolicy(path="")), "`trace.path`"),
            (Policy(mode="enfroce"), "`mode` is 'enfroce'; expected one of"),
            (Policy(budgets={"cals": 1}), "unknown key `budgets.cals`"),
            (Policy(trace=object()), "no file could say"),
        ):
            with pytest.raises(PolicyError, match=re.escape(said)):
                load_policy(wrong)
        assert load_policy(Policy(budgets={"calls": 1})).budgets.calls == 1

    def test_a_trace_path_counts_from_the_file(self, path, monkeypatch):
        """Relative to the folder of the file, wherever the program runs; absolute and ~ stay what they are."""
        monkeypatch.setenv("HOME", "/home/somebody")
        for stated, expected in [
            ("t.jsonl", str(path.parent / "t.jsonl")),
            ("/x/t", "/x/t"),
            ("~/t", "/home/somebody/t"),
        ]:
            path.write_text(f"trace: {{path: {stated!r}}}")
            assert load_policy(path).trace.path == expected
        assert load_policy({"trace": {"path": "t.jsonl"}}).trace.path == "t.jsonl"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("validation:\n  tool_output:\n    max_char: 3",
             ":3: unknown key `validation.tool_output.max_char`. Did you mean `validation.tool_output.max_chars`?"),
            ("max_chars: 4", "Did you mean `validation.intake.max_chars` or `validation.tool_output.max_chars`?"),
            ("zzz: 1", "Keys here: mode, validation"),
            ("1: 2", ":1: unknown key `1`"),
            ("limits:\n  - tool: a\n    calls: 1\n  - toool: x", ":4: unknown key `limits[1].toool`"),
            ("validation:\n  tool_output:\n    max_chars: lots",
             ":3: `validation.tool_output.max_chars` is 'lots'; expected int."),
            ("mode: off", ":1: `mode` is 'off'; expected one of 'enforce', 'monitor'."),
            ("budgets:\n  rounds: 0", ":2: `budgets.rounds` is 0; expected int >= 1."),
            ("budgets:\n  rounds: 1.5", ":2: `budgets.rounds` is 1.5; expected int"),
            ("words: {doen: x}", ":1: `words.doen` is no sentence there is. Sentences: unfinished, done,"),
            ("words: {done: Erledigt}", "is 'Erledigt'; it holds {tools}, such as 'Done: {tools}.'"),
            ("words: {more: '{tools}'}", "is '{tools}'; it holds no {place}, such as 'and more'"),
            ("loop: {off: refusal}", ":1: `loop.off` is 'refusal'; expected a list, or '*'."),
            ("corrections: {read: [foo]}", "`corrections.read[0]` is 'foo'; expected one of 'equivalent'"),
            ("access:\n  roles: {pay: boss}", ":2: `access.roles.pay` is 'boss'; expected list"),
            ("access:\n  roles:\n    see: [a]\n    pay: [5]", ":4: `access.roles.pay[0]` is 5; expected text."),
            ("loop:\n  instructions: {refusal: 5}", ":2: `loop.instructions.refusal` is 5; expected text."),
            ("limits: 3", "`limits` is 3; expected list."),
            ("limits: [3]", "`limits[0]` is 3; expected mapping."),
            ("limits: [{tool: 3}]", "`limits[0].tool` is 3; expected text."),
            ("validation: 3", "`validation` is 3; expected mapping."),
            ("trace: {path: " + "x" * 99 + ", ring: []}", "`trace.ring` is a list; expected int"),
            ("mode: " + "x" * 99, "..."),
            ("- a", ":1: got a list, expected keys"),
            ("just text", "got 'just text', expected keys"),
            ("limits: [{tool: x}]", ":1: `limits[0]` limits nothing"),
            ("limits: [{amount: 3}]", "needs `amount` and `field` together"),
            ("limits: [{calls: 3, field: x}]", "needs `amount` and `field` together"),
            ("access: {allow: [a, b], deny: [b]}", "`access.deny` also names what `access.allow` names: b"),
            ("retry: {initial: 90}", "`retry.initial` (90.0) is above `retry.cap` (60.0)"),
            ("context: {preview_chars: 30000}", "`context.preview_chars` is above"),
            ("validation: {tool_output: {require_content_type: json}}", "is no media type"),
            ("trace: {path: ''}", "`trace.path` is empty"),
            ("trace:\n  redact_patterns: ['(a']", ":2: trace.redact_patterns: '(a' cannot be used"),
            ("a: &x 1", ":1: anchors"),
        ],
    )  # fmt: skip
    def test_errors_name_place_got_and_expected(self, path, text, expected):
        """Every mistake is a PolicyError that says where, what stands there, and what should."""
        path.write_text(text)
        with pytest.raises(PolicyError) as caught:
            load_policy(path)
        assert str(caught.value).startswith(str(path))
        assert expected in str(caught.value)

    def test_all_unknown_keys_are_named_at_once(self):
        """Nobody has to start the program once per typo."""
        with pytest.raises(PolicyError) as caught:
            load_policy({"moed": 1, "trace": {"pth": 2}})
        assert len(str(caught.value).splitlines()) == 2

    @pytest.mark.parametrize("name", ["missing.yaml", "."])
    def test_a_file_that_cannot_be_read_is_named(self, tmp_path, name):
        """A missing file and a folder are PolicyErrors with the path."""
        with pytest.raises(PolicyError, match="cannot be read"):
            load_policy(tmp_path / name)


class TestPolicyFile:
    """A file that changes while the program runs."""

    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch):
        monkeypatch.setattr(config_module, "_QUIET", 0.05)

    def settle(self):
        time.sleep(0.08)

    def test_a_changed_file_is_taken_over(self, path):
        """The next look after the file has settled sees the new policy; until then the same object."""
        path.write_text("mode: enforce")
        file = PolicyFile(path)
        assert file.current_policy() is file.current_policy()
        path.write_text("mode: monitor")
        self.settle()
        assert file.current_policy().mode == "monitor"
        assert file.take_problem() is None

    def test_a_file_touched_without_a_change_is_the_same_policy(self, path):
        """Only content counts: the policy stays the same object."""
        path.write_text("mode: enforce")
        file = PolicyFile(path)
        before = file.current_policy()
        os.utime(path, (1, 1))
        self.settle()
        assert file.current_policy() is before

    @pytest.mark.parametrize("bad", ["mode: enf", "", "mode: [", None])
    def test_a_bad_file_leaves_the_old_policy_and_says_why_once(self, path, bad):
        """Wrong, empty, half-written or deleted: the old policy stays; the reason is told one time."""
        path.write_text("mode: monitor")
        file = PolicyFile(path)
        if bad is None:
            path.unlink()
        else:
            path.write_text(bad)
        file.current_policy()
        self.settle()
        assert file.current_policy().mode == "monitor"
        assert str(path) in file.take_problem()
        assert file.current_policy().mode == "monitor"
        assert file.take_problem() is None
        path.write_text("mode: enforce")
        self.settle()
        assert file.current_policy().mode == "enforce"

    def test_a_fresh_change_waits(self, path, monkeypatch):
        """A file that changed a moment ago may be half-written, and is not read yet."""
        path.write_text("mode: enforce\nbudgets: {calls: 1}\n")
        file = PolicyFile(path)
        monkeypatch.setattr(config_module, "_QUIET", 30.0)
        path.write_text("mode: enforce\n")
        assert file.current_policy().budgets.calls == 1

    def test_a_clock_ahead_of_ours_only_delays(self, path):
        """With file times in the future, standing still for a while is enough."""
        path.write_text("mode: enforce")
        file = PolicyFile(path)
        path.write_text("mode: monitor")
        later = time.time() + 3_600
        os.utime(path, (later, later))
        assert file.current_policy().mode == "enforce"
        self.settle()
        assert file.current_policy().mode == "monitor"

    def test_a_change_while_reading_is_looked_at_again(self, path, monkeypatch):
        """What was read while the file changed is not used."""
        path.write_text("mode: enforce")
        file = PolicyFile(path)
        path.write_text("mode: monitor")
        self.settle()
        real = config_module._read_file

        def overtaken(*where):
            data = real(*where)
            path.write_text("mode: enforce # again")
            return data

        monkeypatch.setattr(config_module, "_read_file", overtaken)
        assert file.current_policy().mode == "enforce"
        monkeypatch.setattr(config_module, "_read_file", real)
        self.settle()
        assert file.current_policy().mode == "enforce"
        assert file.take_problem() is None

    def test_reload_does_not_wait_and_raises(self, path):
        """Who reloads on purpose gets the new policy or the reason at once."""
        path.write_text("mode: enforce")
        file = PolicyFile(path)
        path.write_text("mode: monitor")
        assert file.reload().mode == "monitor"
        path.write_text("mode: x")
        with pytest.raises(PolicyError):
            file.reload()
        assert file.current_policy().mode == "monitor"

    @pytest.mark.parametrize(
        ("whole", "torn"),
        [
            (
                "budgets: {calls: 5}\ncontext:\n  offload_chars: 20000\n",
                "budgets: {calls: 5}\ncontext:\n  offload_chars: 2000",
            ),
            ("mode: enforce\nbudgets: {calls: 5}\n...\n", "mode: enforce\n"),
        ],
    )
    def test_a_file_that_lost_its_end_is_not_taken_over(self, path, whole, torn):
        """A number cut short, and a file cut between two lines before its end marker, are seen as half."""
        path.write_text("mode: monitor\n" + ("...\n" if "..." in whole else ""))
        file = PolicyFile(path)
        path.write_text(torn)
        self.settle()
        assert file.current_policy().mode == "monitor"
        assert "half-written" in file.take_problem()
        path.write_text(whole)
        self.settle()
        assert file.current_policy().budgets.calls == 5

    def test_only_one_thread_reads(self, path):
        """While one thread reloads, the others go on with the old policy instead of waiting."""
        path.write_text("mode: enforce")
        file = PolicyFile(path)
        path.write_text("mode: monitor")
        self.settle()
        with file._lock:
            assert file.current_policy().mode == "enforce"
        assert file.current_policy().mode == "monitor"

    def test_a_wrong_file_at_the_start_is_an_error(self, path):
        """A program does not start with a configuration it cannot read."""
        path.write_text("mode: x")
        with pytest.raises(PolicyError):
            PolicyFile(path)


SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))


def keys_of(node, path=()):
    """Every key that the published schema declares, with what stands there."""
    defs = SCHEMA["$defs"]
    while "$ref" in node:
        node = defs[node["$ref"].rpartition("/")[2]]
    for key, option in node.get("properties", {}).items():
        yield (*path, key)
        yield from keys_of(option, (*path, key))
    if isinstance(node.get("items"), dict):
        yield from keys_of(node["items"], (*path, 0))


KEYS = list(keys_of(SCHEMA))
SECTIONS = {key[:length] for key in KEYS for length in range(len(key))}


def written(path, value):
    """A file that sets one key, each step on a line of its own; a limit is of a tool."""
    text = "# first\n"
    for depth, step in enumerate(path):
        text += "  " * depth + ("-\n" if step == 0 else f"{step}:{' ' if depth + 1 == len(path) else chr(10)}")
    return f"{text}{value}\n"


class TestSchema:
    """The schema editors use."""

    @pytest.mark.parametrize("key", KEYS, ids=lambda key: ".".join(map(str, key)))
    def test_every_key_is_checked_and_says_where(self, path, key):
        """A wrong kind of value, and a misspelling, are told with file, line and key, and what would be right."""
        place = "".join(f"[{step}]" if step == 0 else f".{step}" for step in key)[1:]
        path.write_text(
            written(
                key,
                "3"
                if key in SECTIONS or key[-1] in ("roles", "instructions", "words") or key == ("untrusted", "tools")
                else "{}",
            )
        )
        with pytest.raises(PolicyError) as wrong:
            load_policy(path)
        told = [line for line in str(wrong.value).splitlines() if f"`{place}`" in line]
        assert any(line.startswith(f"{path}:{1 + len(key)}: ") and "expected" in line for line in told), str(
            wrong.value
        )
        path.write_text(written((*key[:-1], f"{key[-1]}x"), "1"))
        with pytest.raises(PolicyError) as wrong:
            load_policy(path)
        assert f"{path}:{1 + len(key)}: unknown key `{place}x`. Did you mean `{place}`?" in str(wrong.value)

    def test_it_accepts_what_is_read_and_refuses_what_is_not(self):
        """The safe default passes; unknown keys and wrong values do not."""
        valid = jsonschema_rs.validator_for(SCHEMA).is_valid
        assert valid(read_document(SAFE_DEFAULT).value)
        assert valid(msgspec.to_builtins(Policy()))
        for wrong in ({"moed": 1}, {"mode": "x"}, {"budgets": {"calls": 0}}, {"trace": {"pth": 1}}, []):
            assert not valid(wrong)

    def test_every_option_is_described(self):
        """An editor shows a sentence for each key."""
        for name, struct in SCHEMA["$defs"].items():
            for key, option in struct["properties"].items():
                described = "description" in option or "$ref" in option
                assert described or "$ref" in option.get("anyOf", [{}])[0], f"{name}.{key}"
                if "$ref" in option:
                    assert "description" in SCHEMA["$defs"][option["$ref"].rpartition("/")[2]]


def test_reading_while_writing_sees_whole_versions_only(path, monkeypatch):
    """Under a loop of renames and partial writes every policy seen is one of the whole versions."""
    monkeypatch.setattr(config_module, "_QUIET", 0.02)
    versions = [f"budgets:\n  calls: {n}\n  rounds: {n}\n...\n" for n in range(1, 40)]
    path.write_text(versions[0])
    file = PolicyFile(path)
    done = threading.Event()

    def write():
        beside = path.with_suffix(".new")
        for number, text in enumerate(versions):
            beside.write_text(text)
            beside.rename(path)
            if number % 5 == 0:
                time.sleep(0.04)
            path.write_text(text[: len(text) // 2])
        path.write_text(versions[-1])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        budgets = file.current_policy().budgets
        seen.add((budgets.calls, budgets.rounds))
    writer.join()
    time.sleep(0.05)
    budgets = file.current_policy().budgets
    assert (budgets.calls, budgets.rounds) == (39, 39)
    assert all(calls == rounds for calls, rounds in seen)
