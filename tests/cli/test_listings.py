"""`pokayoke listings`: what waits, its whole difference, an approval and its history."""

import json

import pytest
from clishell import json_lines

from pokayoke.runtime.versions.approved_listings import ApprovedFile, read_approved

PAY = {"name": "pay", "description": "Pay.", "inputSchema": {"type": "object"}}
NEW = {**PAY, "description": "Pay \u202e\x1b[2J all.\nSecond line."}
FILE = ("--approved", "approved.json")


@pytest.fixture
def file(tmp_path):
    """One tool is approved, and listed otherwise."""
    path = tmp_path / "approved.json"
    path.write_text(json.dumps({"tools": [PAY]}))
    ApprovedFile(path).note_listed({"pay": NEW}, 1.0)
    return path


def test_what_waits_is_listed_shown_and_approved(shell, file):
    """List and show end with 1 while something waits; the hash that is shown approves it, and the history has it."""
    listed = shell("listings", "list", *FILE)
    assert (listed.returncode, "changed" in listed.stdout) == (1, True)
    shown = shell("listings", "show", "pay", *FILE)
    assert shown.returncode == 1
    assert shown.stdout.startswith("description:\n  - Pay.\n  + Pay \\u202e\\x1b[2J all.\n  + Second line.\nhash: ")
    seen = shown.stdout.split()[-1]
    done = shell("listings", "approve", "pay", *FILE, "--hash", seen, "--by", "ann", "--reason", "ours", "--json")
    assert (done.returncode, json_lines(done)[0]["after"]) == (0, seen)
    assert read_approved(file).tools == {"pay": NEW}
    assert shell("listings", "list", *FILE).returncode == 0
    assert shell("listings", "show", "pay", *FILE).returncode == 0
    (step,) = json_lines(shell("listings", "history", *FILE, "--json"))
    assert (step["by"], step["reason"], step["tool"]) == ("ann", "ours", "pay")
    assert "ann" in shell("listings", "history", *FILE).stdout


def test_programs_get_the_entries_whole(shell, file):
    """With --json, list and show print the approved and the new entry and each difference."""
    del file
    (line,) = json_lines(shell("listings", "list", *FILE, "--json"))
    assert (line["entry"], line["approved"]) == (NEW, PAY)
    assert [line] == json_lines(shell("listings", "show", "pay", *FILE, "--json"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("approve", "pay", *FILE, "--hash", "0" * 64, "--by", "a", "--reason", "r"), "Look at it once more"),
        (("approve", "no", *FILE, "--hash", "0" * 64, "--by", "a", "--reason", "r"), "nothing waits for 'no'"),
        (("approve", "pay", *FILE, "--hash", "0" * 64, "--by", "", "--reason", "r"), "--by"),
        (("show", "no", *FILE), "no tool 'no'"),
        (("list", "--approved", "none.json"), "--save-listing"),
    ],
)
def test_what_cannot_be_done_says_what_to_do(shell, file, words, said):
    """Exit code 2, one line, and the file as it was."""
    before = file.read_bytes()
    done = shell("listings", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert file.read_bytes() == before
