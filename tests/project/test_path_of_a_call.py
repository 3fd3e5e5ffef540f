"""The lists in docs/concepts/path-of-a-call.md name the files that a clean call enters."""

import gc
import re
import sys

import pytest
from source import ROOT

import pokayoke

PAGE = ROOT / "docs" / "concepts" / "path-of-a-call.md"


@pokayoke.tool(effect="read", output={"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}})
def fetch(id: str):  # noqa: A002 - an ordinary name of an argument
    """Read."""
    return pokayoke.Raw('{"id": "u1"}', "application/json", 200)


@pokayoke.tool(effect="write")
def store(id: str, plan: str) -> str:  # noqa: A002 - as above
    """Write."""
    return "ok"


def files_entered(call: pokayoke.ToolCall, run: pokayoke.Run) -> list[str]:
    """The files of the package in which a function was entered during a call, each once, in order."""
    entered: dict[str, None] = {"core/call.py": None}  # the call itself was built before

    def profile(frame, event, _):
        if event == "call" and "/pokayoke/" in frame.f_code.co_filename:
            entered[frame.f_code.co_filename.rpartition("/pokayoke/")[2]] = None

    gc.disable()  # else what other tests have left may end in between
    sys.setprofile(profile)
    try:
        run.call(call)
    finally:
        sys.setprofile(None)
        gc.enable()
    return list(entered)


@pytest.mark.parametrize(
    ("kind", "tool", "arguments"),
    [("read", "fetch", '{"id": "u1"}'), ("write", "store", '{"id": "u9", "plan": "y"}')],
)
def test_the_page_lists_the_files_of_a_clean_call(kind, tool, arguments):
    """The list of a clean read and of a clean write are complete and in order."""
    section = PAGE.read_text(encoding="utf-8").split(f"### A clean {kind}, file by file\n")[1].split("\n#")[0]
    listed = re.findall(r"^\d+\. `([\w/]+\.py)` \w.*\.$", section, re.MULTILINE)
    with pokayoke.Guard([fetch, store]) as guard:
        run = guard.run("r")
        for number in range(6):  # the first calls also fill caches
            run.call(pokayoke.ToolCall(f"a{number}", "fetch", f'{{"id": "u{number}"}}'))
            run.call(pokayoke.ToolCall(f"b{number}", "store", f'{{"id": "u{number}", "plan": "x"}}'))
        assert files_entered(pokayoke.ToolCall("c", tool, arguments), run) == listed
