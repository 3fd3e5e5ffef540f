"""Nothing reaches a terminal unescaped, and no half of a file stays behind."""

import json
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.cli.output import (
    as_json,
    choose_painter,
    escape_lines,
    escape_text,
    format_table,
    print_data,
    print_message,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b]8;;http://x\x07", "\\x1b]8;;http://x\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u200bb\u2028c\ufeff", "a\\u200bb\\u2028c\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\x7f\x00", "\\x7f\\x00"),
        ("Grüße 客户 🙂", "Grüße 客户 🙂"),
    ],
)
def test_what_acts_is_shown_as_its_escape(text, expected):
    """Escapes, reordering marks, invisible characters and line ends become visible; text stays text."""
    assert escape_text(text) == expected


def test_a_name_that_is_no_unicode_is_json_too():
    """The name of a file may be any bytes: what is none is escaped, and the rest is as it was."""
    assert as_json({"at": "J\udcf6", "b": [1, None]}) == '{"at":"J\\udcf6","b":[1,null]}'


def test_a_long_text_is_cut():
    """A limit cuts before the escapes are made, so no escape is torn."""
    assert escape_text("abc\x1b", limit=3) == "abc..."
    assert escape_text("abc", limit=3) == "abc"
    assert escape_lines("a\x1b\nb") == "a\\x1b\nb"


@given(
    st.text()
    | st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",))), st.text(st.characters(exclude_categories=("Cs",)))
    )
)
def test_json_and_text_are_one_quiet_line(value):
    """Whatever the value: one line, no control character, nothing that steers a terminal."""
    lines = [escape_text(value)]
    if isinstance(value, dict):
        lines.append(as_json(value))
    for line in lines:
        assert len(line.splitlines()) <= 1
        assert not any(ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F for c in line)


def test_data_goes_to_stdout_and_talk_to_stderr(capsys):
    """Two streams, one purpose each."""
    print_data("data")
    print_message("talk\x1b")
    assert capsys.readouterr() == ("data\n", "talk\\x1b\n")


def test_colours_only_on_a_terminal(monkeypatch):
    """A pipe and NO_COLOR get plain text; a terminal gets colours."""
    assert choose_painter()("x", "bad") == "x"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert choose_painter()("x", "bad") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert choose_painter()("x", "bad") == "x"


def test_a_table_is_aligned_and_escaped():
    """Columns line up; no row makes none."""
    assert format_table([("a", 1), ("long\x1b", 22)]) == ["a         1", "long\\x1b  22"]
    assert format_table([]) == []


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("learn", "calls.jsonl", "--force", "-o"), "out.yaml"),
        (("replay", "calls.jsonl", "--contracts", "contracts.yaml", "--html"), "page.html"),
        (("replay", "calls.jsonl", "--contracts", "contracts.yaml", "--share", "1", "--sample"), "sample.jsonl"),
    ],
)
def test_no_half_of_a_file_is_left(shell, tmp_path, words, name, there):
    """Where a file cannot be written to its end all is as it was, the old file too, and the exit code says so."""
    call = {"tool": "find", "arguments": {"q": "a"}, "output": {"hits": 1}}
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps({**call, "run": n}) + "\n" for n in range(200)))
    assert shell("learn", "calls.jsonl", "-o", "contracts.yaml").returncode == 0
    if there:
        (tmp_path / name).write_text("old")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        done = shell(*words, name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.returncode == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert "File too large" in done.stderr


def test_a_file_is_replaced_in_its_place(shell, tmp_path):
    """What it is a link to is written, its rights stay, and a place that does not exist is named as it was given."""
    (tmp_path / "calls.jsonl").write_text('{"tool": "find", "arguments": {"q": "a"}, "output": {"hits": 1}}\n')
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to("real.yaml")
    assert shell("learn", "calls.jsonl", "--force", "-o", "link.yaml").returncode == 0
    assert link.is_symlink()
    assert (b"find" in real.read_bytes(), real.stat().st_mode & 0o777) == (True, 0o600)
    done = shell("learn", "calls.jsonl", "-o", "nowhere/c.yaml")
    assert (done.returncode, "error: nowhere/c.yaml: No such file or directory" in done.stderr) == (2, True)


def test_what_is_no_file_is_written_to_and_stays(shell, tmp_path):
    """A full device refuses the words and is not removed; a folder is no place for them."""
    (tmp_path / "calls.jsonl").write_text('{"tool": "find", "arguments": {"q": "a"}, "output": {"hits": 1}}\n')
    (tmp_path / "full").symlink_to("/dev/full")
    (tmp_path / "folder").mkdir()
    for name in ("full", "folder"):
        assert shell("learn", "calls.jsonl", "--force", "-o", name).returncode == 2
        assert (tmp_path / name).exists()
