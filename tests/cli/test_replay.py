"""`pokayoke replay`: recordings and contracts in, a score out; as text, JSON and a page."""

import json

import pytest

CONTRACTS = """
contracts:
  - name: create_order
    effect: write
    timeout: 5
    input_schema:
      type: object
      properties:
        sku: {type: string}
        amount: {type: integer, minimum: 1}
      required: [sku, amount]
      additionalProperties: false
    output_schema:
      type: object
      properties: {id: {type: string}}
      required: [id]
"""
GOOD = {"tool": "create_order", "arguments": '{"sku": "S1", "amount": 2}', "output": '{"id": "1"}', "run": "a"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "v1.yaml").write_text(CONTRACTS)
    (tmp_path / "v2.yaml").write_text(
        CONTRACTS.replace("minimum: 1", "minimum: 3").replace("id: {type: string}", "id: {type: integer}")
    )
    return tmp_path


def write(folder, rows, name="calls.jsonl"):
    (folder / name).write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return name


def test_a_clean_recording(shell, folder):
    """All read, all accepted, all answers valid: exit code 0, and what needs a truth says so."""
    done = shell("replay", write(folder, [GOOD] * 3), "--contracts", "v1.yaml")
    assert done.returncode == 0
    assert "parse success       100.0 %  3 of 3" in done.stdout
    assert "wrong-call rate     -        needs a truth: --map truth=FIELD" in done.stdout
    assert "coverage: 1 of 1 tools, 2 of 2 argument fields, 0 finding codes" in done.stdout


def test_what_there_is_to_look_at(shell, folder):
    """Refusals, invalid answers and tool errors are counted and shown with file and line; the exit code is 1."""
    rows = [
        GOOD,
        {**GOOD, "arguments": {"sku": "S1"}},
        {**GOOD, "output": '{"id": 1}'},
        {**GOOD, "output": "Error: gone"},
    ]
    done = shell("replay", write(folder, rows), "--contracts", "v1.yaml")
    assert done.returncode == 1
    assert "calls.jsonl:2  create_order@1  refused: missing_field" in done.stdout
    assert "calls.jsonl:3  create_order@1  invalid: wrong_type" in done.stdout
    assert "tool errors         25.0 %   1 of 4 answers" in done.stdout
    assert "perhaps too strict  1" in done.stdout


def test_the_rates_with_a_truth(shell, folder):
    """With --map truth= the three rates that need it are numbers."""
    rows = [
        {"t": "create_order", "a": '{"sku": "S1", "amount": "2"}', "right": {"sku": "S1", "amount": 2}},
        {"t": "create_order", "a": {"sku": "S1", "amount": 0}, "right": None},
    ]
    done = shell(
        "replay", write(folder, rows), "--contracts", "v1.yaml", "--map", "tool=t,arguments=a,truth=right", "--json"
    )
    rates = json.loads(done.stdout)["contracts"][0]["rates"]
    assert {name: rate["rate"] for name, rate in rates.items() if rate["needs_truth"]} == {
        "correction success": 1.0,
        "refusal accuracy": 1.0,
        "refusal recall": 1.0,
        "wrong-call rate": 0.0,
    }


def test_two_sets_are_compared(shell, folder):
    """--compare names what the other contracts judge differently; equal ones have no differences."""
    write(folder, [GOOD, {**GOOD, "arguments": {"sku": "S1", "amount": 5}}])
    done = shell("replay", "calls.jsonl", "--contracts", "v1.yaml", "--compare", "v2.yaml")
    assert done.returncode == 1
    assert "1  now refused              create_order" in done.stdout
    assert "2  answer valid -> invalid  create_order" in done.stdout
    same = shell("replay", "calls.jsonl", "--contracts", "v1.yaml", "--compare", "v1.yaml")
    assert same.returncode == 0
    assert "no differences" in same.stdout


def test_cut_lines_are_named_and_the_rest_is_scored(shell, folder):
    """A recording that ends in the middle of a line is scored up to there, and the line is named."""
    done = shell("replay", write(folder, [GOOD, json.dumps(GOOD)[:30]]), "--contracts", "v1.yaml")
    assert done.returncode == 1
    assert "v1.yaml: 1 call" in done.stdout
    assert "calls.jsonl:2: not JSON" in done.stderr


def test_the_page_is_written(shell, folder):
    """--html writes the page and says so on stderr; stdout stays the score."""
    done = shell("replay", write(folder, [GOOD]), "--contracts", "v1.yaml", "--html", "r.html")
    assert (folder / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert "wrote r.html" in done.stderr


def test_a_sample_is_written(shell, folder):
    """--sample writes runs with pseudonyms, which replay like the originals."""
    rows = [{**GOOD, "arguments": {"sku": f"SKU{n}", "amount": 2_000}, "run": str(n)} for n in range(20)]
    done = shell("replay", write(folder, rows), "--contracts", "v1.yaml", "--sample", "s.jsonl", "--share", "1")
    assert "wrote s.jsonl: 20 of 20 calls, 0 withheld" in done.stderr
    assert "SKU1" not in (folder / "s.jsonl").read_text()
    assert shell("replay", "s.jsonl", "--contracts", "v1.yaml").returncode == 0
    assert (
        shell("replay", "-", "--contracts", "v1.yaml", "--sample", "s2.jsonl", stdin=json.dumps(GOOD) + "\n").returncode
        == 2
    )


@pytest.mark.parametrize("jobs", [0, 257, 10**8])
def test_more_processes_than_any_machine_needs_are_refused(shell, folder, jobs):
    """All processes are started at once, so a slip of the finger must not use up the machine."""
    done = shell("replay", write(folder, [GOOD]), "--contracts", "v1.yaml", "--jobs", jobs)
    assert (done.returncode, "'--jobs'" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--share", "0.5"), "name the FILE"), (("--sample", "s.jsonl", "--share", "half"), "such as 0.1, or 10%"),
        (("--sample", "s.jsonl", "--share", "101%"), "0% to 100%"),
    ],
)  # fmt: skip
def test_a_share_that_nothing_is_done_with_is_said_so(shell, folder, words, said):
    """Without a sample, or with a share that is none: exit code 2, and no sample."""
    done = shell("replay", write(folder, [GOOD]), "--contracts", "v1.yaml", *words)
    assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True)
    assert not (folder / "s.jsonl").exists()


def test_a_share_may_be_a_percentage(shell, folder):
    """As for `contracts canary`."""
    words = ("--contracts", "v1.yaml", "--sample", "s.jsonl", "--share", "100%")
    assert "wrote s.jsonl: 1 of 1 calls" in shell("replay", write(folder, [GOOD]), *words).stderr


def test_a_page_that_cannot_be_written_is_named(shell, folder):
    """The file comes first and no error number."""
    done = shell("replay", write(folder, [GOOD]), "--contracts", "v1.yaml", "--html", "no/r.html")
    assert (done.returncode, "error: no/r.html: No such file or directory" in done.stderr) == (2, True)


@pytest.mark.parametrize("option", ["--sample", "--html"])
@pytest.mark.parametrize("name", ["calls.jsonl", "./calls.jsonl", "v1.yaml"])
def test_nothing_that_is_read_is_written_over(shell, folder, option, name):
    """A recording cannot be made again, so neither a sample nor a page may take its place."""
    write(folder, [GOOD])
    before = (folder / name).read_bytes()
    done = shell("replay", "calls.jsonl", "--contracts", "v1.yaml", option, name)
    assert done.returncode == 2
    assert option in done.stderr
    assert (folder / name).read_bytes() == before


def test_several_processes_and_files(shell, folder):
    """Two files and two processes give the sum, and examples name the right file."""
    write(folder, [GOOD] * 50, "a.jsonl")
    write(folder, [GOOD, {**GOOD, "tool": "nope"}], "b.jsonl")
    done = shell("replay", "a.jsonl", "b.jsonl", "--contracts", "v1.yaml", "--jobs", "2", "--json")
    shown = json.loads(done.stdout)
    assert shown["calls"] == 52
    (unknown,) = [tool for tool in shown["contracts"][0]["tools"] if not tool["known"]]
    assert unknown["examples"]["refused: unknown_tool"][0]["where"] == "b.jsonl:2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["calls.jsonl", "--contracts", "none.yaml"], "none.yaml"),
        (["calls.jsonl", "--contracts", "bad.yaml"], "cannot be used"),
        (["none.jsonl", "--contracts", "v1.yaml"], "none.jsonl"),
        (["calls.jsonl", "--contracts", "v1.yaml", "--format", "otel"], "no recording of the kind otel"),
        (["calls.jsonl", "--contracts", "v1.yaml", "--config", "policy.yaml"], "cannot be used"),
    ],
)
def test_what_cannot_run_is_exit_code_2(shell, folder, words, said):
    """Files that are not there, contracts that contradict themselves and wrong formats are errors in one line."""
    write(folder, [GOOD])
    (folder / "bad.yaml").write_text("contracts:\n- {name: x, input_schema: {type: objekt}}\n")
    (folder / "policy.yaml").write_text("moed: enforce\n")
    done = shell("replay", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_nothing_recorded_reaches_the_terminal_raw(shell, folder):
    """Escapes in names, arguments, answers and errors are shown, not obeyed, as text and as JSON."""
    evil = "\x1b]0;x\x07\u202e\u2028\x9b2J"
    rows = [
        {"tool": evil, "arguments": {evil: evil}, "output": f"Error: {evil}"},
        {**GOOD, "arguments": evil, "output": evil},
    ]
    for options in ((), ("--json",)):
        done = shell("replay", write(folder, rows), "--contracts", "v1.yaml", *options)
        assert done.returncode == 1
        assert not {"\x1b", "\x07", "\u202e", "\u2028", "\x9b"} & set(done.stdout + done.stderr)


def test_labels_give_the_rates_that_need_a_truth(shell, folder):
    """--label draws calls; filled in by a person and replayed, they give every rate, and before that none."""
    rows = [{**GOOD, "arguments": {"sku": "S1", "amount": n % 3}, "run": str(n)} for n in range(30)]
    rows[7]["arguments"] = '{"sku": "S1", "amount": "2",}'
    name = write(folder, [*rows, "{cut"])
    drawn = shell("replay", name, "--contracts", "v1.yaml", "--label", "labels.jsonl", "--labels", "12")
    assert "wrote labels.jsonl: 12 calls. Fill in each truth, then replay it" in drawn.stderr
    text = (folder / "labels.jsonl").read_text()
    labels = [json.loads(line) for line in text.splitlines()]
    assert len({one["at"] for one in labels}) == 12
    assert {one["truth"] for one in labels} == {"?"}
    assert {one["arguments"]["amount"] for one in labels if "refused" in one} == {0}
    unlabelled = json.loads(shell("replay", "labels.jsonl", "--contracts", "v1.yaml", "--json").stdout)
    assert unlabelled["contracts"][0]["rates"]["wrong-call rate"]["of"] == 0
    again = shell("replay", name, "--contracts", "v1.yaml", "--label", "labels.jsonl")
    assert (again.returncode, "a person may have filled it in" in again.stderr) == (2, True)
    for one in labels:
        one["truth"] = None if "refused" in one else one.get("becomes", True)
    labels[0] |= {"arguments": {"sku": "S1", "amount": 2}, "truth": {"sku": "S1", "amount": 1}}
    write(folder, labels, "labels.jsonl")
    rates = json.loads(shell("replay", "labels.jsonl", "--contracts", "v1.yaml", "--json").stdout)["contracts"][0][
        "rates"
    ]
    assert rates["wrong-call rate"]["hits"] == 1
    assert rates["wrong-call rate"]["of"] == 12
    assert rates["refusal accuracy"]["rate"] == 1.0


def test_a_corrected_call_is_labelled_with_what_it_becomes(shell, folder):
    """A person sees the arguments that a repair and a correction make of a text."""
    write(folder, [{**GOOD, "arguments": '{"sku": "S1", "amount": "2",}'}])
    shell("replay", "calls.jsonl", "--contracts", "v1.yaml", "--label", "labels.jsonl")
    row = json.loads((folder / "labels.jsonl").read_text())
    assert row["becomes"] == {"sku": "S1", "amount": 2}
    assert row["arguments"] == '{"sku": "S1", "amount": "2",}'
