"""Where a finding code is explained, with and without an address in the metadata of the package."""

import json
import re
import sys

import pytest
from clishell import Shell
from source import ROOT

from pokayoke import code_pages
from pokayoke.code_pages import find_code_page, find_code_pages
from pokayoke.core.contract.contract import Contract
from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.replay.recording import Recording
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.html_report import html_report
from pokayoke.replay.score.scorer import Scorer
from pokayoke.replay.score.summary import ContractSet, build_summary

ADDRESS = "https://docs.example.com/pokayoke"
CALL = {"name": "order", "arguments": {"n": "many"}}
TOOLS = {
    "contracts": [{"name": "order", "effect": "write", "input_schema": {"properties": {"n": {"type": "integer"}}}}]
}


@pytest.fixture(params=[None, f"{ADDRESS}/"])
def address(request, tmp_path, monkeypatch):
    """A package that declares no address, or one; as an installer writes it."""
    urls = f"Project-URL: Documentation, {request.param}\n" if request.param else ""
    folder = tmp_path / "site" / "pokayoke-9.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: pokayoke\nVersion: 9\nProject-URL: Source, https://x.example\n{urls}"
    )
    monkeypatch.setattr(sys, "path", [str(folder.parent), *sys.path])
    code_pages.documentation_address.cache_clear()
    yield ADDRESS if request.param else None
    code_pages.documentation_address.cache_clear()


def test_the_place_of_a_code_exists(address):
    """Without an address, a code's place is a section of a page in docs/ that lists it; with one, its page there."""
    for code, row in FINDING_CODES.items():
        page = find_code_page(code)
        assert page is not None
        assert page.meaning == row.meaning
        assert page.is_address is (address is not None)
        if address is not None:
            assert page.place == f"{ADDRESS}/reference/findings/{code}.html"
        else:
            file, _, room = page.place.partition("#")
            section = re.search(rf"^## {room}$(.*?)(^## |\Z)", (ROOT / file).read_text(), re.MULTILINE | re.DOTALL)
            assert section is not None
            assert f"| `{code}` |" in section[1]


def test_a_word_that_is_no_code_has_no_page(address):
    """A stop reason of a host and a text of an enemy lead nowhere, and a code that comes twice is explained once."""
    del address
    assert find_code_pages(["<b>", "wrong_type", "", "wrong_type", "../x"]) == [find_code_page("wrong_type")]


def test_people_are_led_to_the_page_and_the_model_is_not(address, tmp_path):
    """`check` and the report of `replay` name the place of the code that they show; the hint does not."""
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    place = f"{ADDRESS}/reference/findings/wrong_type.html" if address else "docs/reference/findings.md#check"
    shell = Shell(tmp_path)
    shown = shell("check", "tools.json", "--call", json.dumps(CALL)).stdout
    assert shown.splitlines()[-1].split("  ")[-1] == place
    told = json.loads(shell("check", "tools.json", "--call", json.dumps(CALL), "--json").stdout)
    hints = [finding["hint"] for finding in told["verdict"]["verdict"]["findings"]]
    assert hints
    assert "docs" not in "".join(hints)

    judge = Judge([Contract.from_schema("order", {"properties": {"n": {"type": "integer"}}}, effect="write")])
    score = Scorer([judge]).score_recordings([Recording("order", CALL["arguments"])])
    report = html_report(build_summary(score, ["f"], [ContractSet("c", judge)]))
    assert (f'<a href="{place}"' in report) is (address is not None)
    assert place in report
