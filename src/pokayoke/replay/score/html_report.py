"""A score as one HTML page.

The page brings its own content security policy, so that even a mistake here could fetch and run nothing.

In: a summary.
Out: one self-contained page.
Never: a script, a request, or a recorded text that is not escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from pokayoke.code_pages import find_code_page
from pokayoke.core.text.neutralise import INVISIBLE
from pokayoke.core.text.neutralise import escape_character as visible

_STYLE: Final = Path(__file__).with_name("report.css")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MISSING: Final = "needs a truth: --map truth=FIELD"
_UNSAFE: Final = re.compile(f"[{INVISIBLE}]")
_MOST_TOOLS: Final = 300
_GOOD, _FAIR = 0.99, 0.9
_LOW_IS_GOOD: Final = ("wrong-call rate",)
_MEANING: Final = {
    "parse success": "calls whose arguments could be read",
    "correction success": "corrected calls that became the right ones",
    "refusal accuracy": "refused calls that were wrong",
    "refusal recall": "wrong calls that were refused",
    "wrong-call rate": "calls that would have run with wrong arguments",
    "output validity": "answers that keep their contract; tool errors aside",
}
_CALL_LEGEND: Final = (
    ("runs", "good"),
    ("runs corrected", "warn"),
    ("refused", "bad"),
    ("hidden by redaction", "none"),
)
_ANSWER_LEGEND: Final = (("valid", "good"), ("tool error", "warn"), ("invalid", "bad"), ("unchecked", "none"))
_BAR_WIDTH: Final = 1000
_GAUGE_RADIUS: Final = 44.0

Part = tuple[str, int, str]
"""Name, size and CSS class of a part of a bar."""


def html_report(shown: dict[str, Any]) -> str:
    """Return the page for a summary.

    Args:
        shown: the result of `build_summary`.
    """
    body: list[str] = [_render_head(shown)]
    for index, one in enumerate(shown["contracts"]):
        body += _render_set(one, alone=len(shown["contracts"]) == 1, first=index == 0)
    if len(shown["contracts"]) > 1:
        body.append(_render_changes(shown))
    if shown["unread"]:
        body.append(_render_unread(shown))
    style = _STYLE.read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">\n'
        f"<title>Replay of {shown['calls']:,} calls</title>\n<style>\n{style}</style></head>\n"
        f"<body><main>\n{''.join(body)}</main></body></html>\n"
    )


def _escape_text(value: Any) -> str:
    r"""Return anything as text of the page: markup escaped, invisible and reordering characters made visible."""
    return escape(_UNSAFE.sub(lambda found: visible(found[0]), str(value)))


def _render_code(code: str) -> str:
    """Return a finding code with what it means; a link to its page where its address is known."""
    page = find_code_page(code)
    if page is None:
        return f"<code>{_escape_text(code)}</code>"
    if page.is_address:
        return f'<a href="{_escape_text(page.place)}" title="{_escape_text(page.meaning)}"><code>{code}</code></a>'
    return f'<code title="{_escape_text(f"{page.meaning}: {page.place}")}">{code}</code>'


def _render_head(shown: dict[str, Any]) -> str:
    files = ", ".join(map(_escape_text, shown["recordings"]))
    labels = " and ".join(f"<code>{_escape_text(one['label'])}</code>" for one in shown["contracts"])
    unread = f" {_pluralise(shown['unread'], 'record')} could not be read." if shown["unread"] else ""
    return f"<h1>Replay of {shown['calls']:,} calls</h1><p>{files}, judged by {labels}.{unread}</p>"


def _render_set(one: dict[str, Any], *, alone: bool, first: bool) -> Iterable[str]:
    yield (
        ""
        if alone
        else f"<h2>{'Contracts' if first else 'Compared with'} <code>{_escape_text(one['label'])}</code></h2>"
    )
    cards = "".join(_render_card(name, rate, known=bool(one["truths"])) for name, rate in one["rates"].items())
    yield f'<div class="cards">{cards}</div>'
    yield _render_totals(one)
    yield _render_coverage(one["coverage"])
    yield "<h2>Tools</h2>" + _render_table(one["tools"][:_MOST_TOOLS])
    if len(one["tools"]) > _MOST_TOOLS:
        yield f'<p class="dim">The first {_MOST_TOOLS} of {len(one["tools"]):,}; --json has all of them.</p>'
    details = "".join(
        _render_details(tool) for tool in one["tools"][:_MOST_TOOLS] if tool["examples"] or tool["errors"]
    )
    yield f"<h2>Calls to look at</h2>{details}" if details else ""


def _pluralise(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _render_card(name: str, rate: dict[str, Any], *, known: bool) -> str:
    share = rate["rate"]
    if share is None:
        why = _MISSING if rate["needs_truth"] and not known else "nothing to measure"
        return (
            f'<div class="card">{draw_gauge(None, "none")}<span class="dim">{_escape_text(name)}</span>'
            f'<b>&ndash;</b><span class="dim">{why}</span></div>'
        )
    worth = 1 - share if name in _LOW_IS_GOOD else share
    kind = "good" if worth >= _GOOD else "warn" if worth >= _FAIR else "bad"
    return (
        f'<div class="card">{draw_gauge(share, kind)}<span class="dim">{_escape_text(name)}</span>'
        f'<b class="{kind}-text">{format_percent(share)}</b>'
        f'<span class="dim">{rate["hits"]:,} of {rate["of"]:,}: {_escape_text(_MEANING.get(name, ""))}</span></div>'
    )


def format_percent(share: float) -> str:
    """Return a share in per cent; less than all is never rounded up to 100 %, nor more than nothing down to 0 %."""
    shown = f"{share * 100:.1f}"
    if share < 1 and shown == "100.0":
        return "99.9 %"
    return "0.1 %" if share > 0 and shown == "0.0" else f"{shown} %"


def _bar_parts(tally: dict[str, Any]) -> tuple[list[tuple[str, int, str]], list[tuple[str, int, str]]]:
    calls = (tally["allowed"] - tally["corrected"], tally["corrected"], tally["refused"], tally["masked"])
    answers = (tally["valid"], tally["failed"], tally["invalid"], tally["unchecked"])
    return (
        [(name, size, kind) for (name, kind), size in zip(_CALL_LEGEND, calls, strict=True)],
        [(name, size, kind) for (name, kind), size in zip(_ANSWER_LEGEND, answers, strict=True)],
    )


def _render_legend(parts: list[tuple[str, int, str]]) -> str:
    items = (f'<li><i class="{kind}"></i>{_escape_text(name)} {size:,}</li>' for name, size, kind in parts if size)
    return f'<ul class="key">{"".join(items)}</ul>'


def _render_totals(one: dict[str, Any]) -> str:
    calls, answers = _bar_parts(one)
    found = (
        f"<h3>Calls</h3>{draw_bar(calls, height=22)}{_render_legend(calls)}"
        f"<h3>Answers</h3>{draw_bar(answers, height=22)}{_render_legend(answers)}"
    )
    notes: list[str] = []
    if one["refused_worked"]:
        notes.append(
            f"Answered in the recording, and refused here: {_pluralise(one['refused_worked'], 'call')}. "
            "Perhaps too strict."
        )
    if one["unseen"]:
        notes.append(
            f"Would pass as data: {_pluralise(one['unseen'], 'tool error')}. Declare an envelope, or a schema."
        )
    if one["mentions"]:
        notes.append(
            f"Speak of errors in their data: {_pluralise(one['mentions'], 'good answer')}. Look at the examples."
        )
    return found + "".join(f'<p class="warn-text">{_escape_text(note)}</p>' for note in notes)


def _render_coverage(coverage: dict[str, Any]) -> str:
    tools, fields = coverage["tools"], coverage["fields"]
    rows = [("tools", tools["seen"], tools["of"]), ("argument fields", fields["seen"], fields["of"])]
    cells = "".join(
        f'<tr><td>{name}</td><td class="n">{seen:,} of {of:,}</td>'
        f'<td class="wide">{draw_bar([("seen", seen, "plain")], whole=of)}</td></tr>'
        for name, seen, of in rows
    )
    codes = ", ".join(f"{_render_code(code)} {number:,}" for code, number in coverage["codes"].items())
    never = f'<p class="dim">Never called: {", ".join(map(_escape_text, tools["never"]))}</p>' if tools["never"] else ""
    return f'<h2>Coverage</h2><table>{cells}</table>{never}<p class="dim">Findings seen: {codes or "none"}</p>'


def _render_table(tools: list[dict[str, Any]]) -> str:
    names = ("calls", "refused", "corrected", "answers", "invalid", "errors")
    keys = ("calls", "refused", "corrected", "outputs", "invalid", "failed")
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    rows: list[str] = []
    for tool in tools:
        calls, answers = _bar_parts(tool)
        cells = "".join(
            f'<td class="n" data-name="{name}">{tool[key]:,}</td>' for name, key in zip(names, keys, strict=True)
        )
        kind = "" if tool["known"] else ' <span class="bad-text">no contract</span>'
        rows.append(
            f'<tr><td class="name"><code>{_escape_text(tool["tool"])}</code>{kind}</td>{cells}'
            f'<td class="wide">{draw_bar(calls, height=8)}{draw_bar(answers, height=8)}</td></tr>'
        )
    return (
        f'<table class="tools"><thead><tr><th>tool</th>{head}<th>calls, answers</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _render_details(tool: dict[str, Any]) -> str:
    counts = [
        f"{title} {', '.join(f'{_render_code(code)} {number:,}' for code, number in tool[key].items())}"
        for title, key in (("refused:", "refusals"), ("invalid:", "faults"))
        if tool[key]
    ]
    counts += [_pluralise(tool["failed"], "tool error")] if tool["failed"] else []
    errors = "".join(
        f'<tr><td>{_escape_text(words)}</td><td class="n">{number:,}</td></tr>'
        for words, number in tool["errors"].items()
    )
    table = f"<h3>What the tool said when it failed</h3><table>{errors}</table>" if errors else ""
    never = tool["fields"]["never"]
    unused = f'<p class="dim">Fields never sent: {", ".join(map(_escape_text, never))}</p>' if never else ""
    shown = "".join(_render_examples(kind, found) for kind, found in tool["examples"].items())
    summary = f"<code>{_escape_text(tool['tool'])}</code> {'; '.join(counts)}"
    return f"<details><summary>{summary}</summary>{table}{shown}{unused}</details>"


def _render_examples(kind: str, found: list[dict[str, str]]) -> str:
    items = "".join(
        f'<p class="dim">{_escape_text(one["where"])}: '
        f"{_escape_text(one['message'] if one['message'] != one['shown'] else '')}</p>"
        f"<pre>{_escape_text(one['shown'])}</pre>"
        for one in found
    )
    return f"<h3>{_escape_text(kind)}</h3>{items}"


def _render_changes(shown: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><td>{_escape_text(change["way"])}</td><td class="n">{change["count"]:,}</td><td>'
        f"{', '.join(f'{_escape_text(tool)} {number:,}' for tool, number in list(change['tools'].items())[:20])}"
        "</td></tr>"
        for change in shown["changes"]
    )
    details = "".join(_render_examples(change["way"], change["examples"]) for change in shown["changes"])
    if not rows:
        return "<h2>Differences</h2><p>None: both judge every call and every answer alike.</p>"
    return f"<h2>Differences</h2><table>{rows}</table><details><summary>Examples</summary>{details}</details>"


def _render_unread(shown: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{_escape_text(one['at'])}</td><td>{_escape_text(one['why'])}</td></tr>"
        for one in shown["first_unread"]
    )
    return f"<h2>Not read</h2><p>{_pluralise(shown['unread'], 'record')}; the first ones:</p><table>{rows}</table>"


def draw_bar(parts: Sequence[Part], *, whole: int | None = None, height: int = 14) -> str:
    """Return one bar of stacked parts, as wide as its container.

    Args:
        parts: its parts, from the left.
        whole: the value of the full width; None is the sum of the parts.
        height: in pixels.
    """
    total = max(whole or sum(size for _, size, _ in parts), 1)
    label = ", ".join(f"{name} {size:,}" for name, size, _ in parts if size)
    shapes: list[str] = []
    left = 0.0
    for name, size, kind in parts:
        if size <= 0:
            continue
        # Every part is visible, however small it is.
        width = max(_BAR_WIDTH * size / total, 3.0)
        shapes.append(
            f'<rect class="{escape(kind)}" x="{left:.2f}" y="0" width="{width:.2f}" height="{height}">'
            f"<title>{escape(name)}: {size:,}</title></rect>"
        )
        left += width
    return (
        f'<svg class="bar" role="img" aria-label="{escape(label)}" viewBox="0 0 {max(_BAR_WIDTH, left):.0f} {height}" '
        f'preserveAspectRatio="none" height="{height}">{"".join(shapes)}</svg>'
    )


def draw_gauge(share: float | None, kind: str) -> str:
    """Return a ring that is filled by a share; dashed if the share is None."""
    round_ = 2 * 3.14159265 * _GAUGE_RADIUS
    open_ = '<svg class="gauge" viewBox="0 0 100 100" aria-hidden="true">'
    if share is None:
        return f'{open_}<circle class="none" cx="50" cy="50" r="{_GAUGE_RADIUS}"/></svg>'
    filled = round_ * min(max(share, 0.0), 1.0)
    return (
        f'{open_}<circle class="track" cx="50" cy="50" r="{_GAUGE_RADIUS}"/>'
        f'<circle class="{escape(kind)}" cx="50" cy="50" r="{_GAUGE_RADIUS}" transform="rotate(-90 50 50)" '
        f'stroke-dasharray="{filled:.2f} {round_:.2f}"/></svg>'
    )
