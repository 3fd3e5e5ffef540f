"""The page: everything escaped, nothing fetched, readable without script; looked at in a real browser where there is one."""

import html.parser
import json
import os
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.contract.contract import Contract
from pokayoke.replay.recording import Recording, UnreadRecord
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.html_report import draw_bar, draw_gauge, format_percent, html_report
from pokayoke.replay.score.scorer import Scorer
from pokayoke.replay.score.summary import ContractSet, build_summary

EVIL = [
    "<script>document.title='executed'</script>",
    "</pre></main><h1 id=executed>x</h1>",
    "<img src=http://127.0.0.1:9/x onerror=\"document.title='executed'\">",
    "'\"><svg/onload=document.title='executed'>",
    "</style><style>body{display:none}</style>",
    "<link rel=stylesheet href=//127.0.0.1:9/x>",
    "\x1b]0;t\x07\u202egnp.exe\u2028\x00\U000e0041",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "&lt;b&gt; & &amp;",
    "<!--",
    "]]>",
]


def page_of(texts, compare=True):
    """A page in which every place that shows something recorded shows each of the texts."""
    schema = {
        "type": "object",
        "properties": {"q": {"type": "integer"}, **{text: {"type": "string"} for text in texts}},
    }
    tools = [Contract.from_schema("t", schema, output_schema={"type": "object"}, description=texts[0])]
    judges = [Judge(tools), Judge([Contract.from_schema("t", {}, output_schema="text")])][: 1 + compare]
    calls = [UnreadRecord(1, texts[0])]
    for line, text in enumerate(texts, 1):
        calls += [
            Recording("t", text, text, line=line),
            Recording("t", {"q": text, text: text}, {"error": text}, line=line),
            Recording(text, {text: text}, f"Error: {text}", line=line),
            Recording("t", {}, f"{text} error", truth={"q": text}, line=line),
        ]
    score = Scorer(judges).score_recordings(calls)
    sets = [ContractSet(text, judge) for text, judge in zip(texts * 2, judges, strict=False)]
    return html_report(build_summary(score, [texts[0]], sets))


TAGS = {"html", "head", "meta", "link", "title", "style", "body", "main", "h1", "h2", "h3", "p", "code", "div", "span", "b", "svg", "circle",
        "rect", "table", "thead", "tbody", "tr", "td", "th", "ul", "li", "i", "details", "summary", "pre"}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "rel", "href", "class", "role", "aria-label", "aria-hidden", "viewbox",
              "preserveaspectratio", "height", "width", "x", "y", "cx", "cy", "r", "transform", "stroke-dasharray", "data-name", "title"}  # fmt: skip


class Page(html.parser.HTMLParser):
    """Collects what the browser would build."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.links, self.text, self.open = set(), set(), [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "link", "circle", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        if tag not in ("rect", "circle"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def check(text):
    page = Page(text)
    assert page.tags <= TAGS, page.tags - TAGS
    assert page.attributes <= ATTRIBUTES, page.attributes - ATTRIBUTES
    assert page.links == ["data:,"]
    assert page.open == []
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2066-\u2069\ud800-\udfff\U000e0000-\U000e0fff]", text
    )
    return page


@pytest.mark.parametrize("compare", [True, False])
def test_nothing_recorded_becomes_markup(compare):
    """With markup in every place that a recording fills, the page has only its own tags, attributes and one empty link."""
    page = check(page_of(EVIL, compare))
    shown = "".join(page.text)
    assert "document.title='executed'" in shown  # it is there to be read


@given(st.lists(st.text(max_size=12), min_size=1, max_size=3, unique=True))
def test_no_text_breaks_the_page(texts):
    """Any text in any place leaves the page whole."""
    check(page_of(texts))


def test_the_page_forbids_itself_everything():
    """Its own policy allows inline style and nothing else: no script, no image, no request."""
    assert "default-src 'none'; style-src 'unsafe-inline'" in page_of(["x"])
    assert not re.search(r"@import|url\(|https?://|<script", page_of(["x"]))


def test_the_page_says_what_the_score_says():
    """Rates, counts, coverage and the missing truth stand on the page."""
    tools = [
        Contract.from_schema("t", {"properties": {"q": {"type": "integer"}}}, output_schema="text"),
        Contract.from_schema("never", {}),
    ]
    judge = Judge(tools)
    score = Scorer([judge]).score_recordings(
        [Recording("t", {"q": 1}, "Error: gone 5"), Recording("t", {"q": "x"}, "fine"), UnreadRecord(7, "cut")]
    )
    text = "".join(check(html_report(build_summary(score, ["f.jsonl"], [ContractSet("c.yaml", judge)]))).text)
    for part in ("Replay of 2 calls", "f.jsonl", "c.yaml", "1 record could not be read", "100.0 %", "needs a truth", "1 of 2", "Never called: never@1",
                 "wrong_type 1", "Error: gone #", "f.jsonl:7", "cut", "t@1"):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize(
    ("share", "shown"), [(1, "100.0 %"), (0.99999, "99.9 %"), (0, "0.0 %"), (0.00001, "0.1 %"), (0.5, "50.0 %")]
)
def test_a_share_is_never_rounded_to_all_or_nothing(share, shown):
    """100 % means all and 0 % means none."""
    assert format_percent(share) == shown


def test_charts_show_what_is_little():
    """A part of one in a million is still drawn, an empty one is not, and a bar of nothing does not divide by zero."""
    drawn = draw_bar([("many", 1_000_000, "good"), ("one", 1, "bad"), ("none", 0, "warn")])
    assert drawn.count("<rect") == 2
    assert 'aria-label="many 1,000,000, one 1"' in drawn
    assert draw_bar([]).count("<rect") == 0
    assert 'class="none"' in draw_gauge(None, "good")
    assert "276.46" in draw_gauge(1.0, "good")


def test_long_reports_stay_readable():
    """Beyond 300 tools the page says how many there are and where the rest is."""
    judge = Judge([Contract.from_schema(f"t{n}", {}) for n in range(310)])
    score = Scorer([judge]).score_recordings([Recording(f"t{n}", {}, "x") for n in range(310)])
    assert "The first 300 of 310" in html_report(build_summary(score, ["f"], [ContractSet("c", judge)]))


@pytest.fixture(scope="module")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no browser here: install chromium to look at the page in one")
    return found


@pytest.mark.parametrize("width", [1_200, 400])
def test_a_real_browser_runs_and_fetches_nothing(width, chromium, tmp_path):
    """In a browser the page keeps its title, is no wider than the window, and its log holds no request but the file."""
    page = tmp_path / "report.html"
    probe = "<script>addEventListener('load', () => document.body.dataset.wide = document.documentElement.scrollWidth)</script>"
    page.write_text(page_of(EVIL).replace("<details>", "<details open>"))
    wide = tmp_path / "wide.html"
    wide.write_text(re.sub(r"<meta http-equiv=.Content[^>]*>", probe, page.read_text()))
    common = [chromium, "--headless=new", "--disable-gpu", "--no-first-run", f"--window-size={width},900", "--disable-component-update",
              f"--user-data-dir={tmp_path / 'profile'}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # fmt: skip
    log = tmp_path / "net.json"
    done = subprocess.run(
        [*common, f"--log-net-log={log}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    if "<h1>" not in done.stdout:
        pytest.skip(f"the browser does not start here: {done.stderr[-300:]}")
    assert "<title>Replay of" in done.stdout
    assert 'id="executed"' not in done.stdout
    assert "127.0.0.1:9" not in "".join(re.findall(r'"url":"([^"]*)"', log.read_text()))
    shown = subprocess.run(
        [*common, "--dump-dom", wide.as_uri()], capture_output=True, text=True, check=False, timeout=50
    ).stdout
    assert int(re.search(r'data-wide="(\d+)"', shown)[1]) <= max(width, 500)  # no browser window is narrower than 500
    json.loads(log.read_text())
