"""`pokayoke verify`: doctor over one's own set-up, as a step of continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree as ET

import typer

from pokayoke.cli.doctor import Examination, examine_setup
from pokayoke.cli.options import JsonOption, StoreOption
from pokayoke.cli.output import as_json, escape_text, format_count, print_data, print_message
from pokayoke.runtime.files.atomic_file import atomic_write


def verify(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|MODULE:ATTRIBUTE", help="Configuration, tools, saved tool lists, as for check."),
    ] = None,
    config: Annotated[str | None, typer.Option(help="Configuration file; pokayoke.yaml if it is there.")] = None,
    store: StoreOption = None,
    lock: Annotated[str | None, typer.Option(help="Lock of contracts; contracts.lock if it is there.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit report to this file.")] = None,
    json: JsonOption = False,
) -> None:
    """Verify your own set-up in CI.

    pokayoke verify shop.tools:ALL --junit report.xml

    pokayoke verify --config pokayoke.yaml contracts.yaml approved.json

    Every guard is fired once under your configuration, and your tools, store, lock and trace are examined; a tool is
    never run. Each guard and each problem is a test case of the report. Exit code 0 if every guard fired and nothing
    has to be changed, 1 if not, 2 if no tool was named or found: then nothing of yours was exercised.
    """
    found = examine_setup(sources or [], config=config, store=store, lock=lock)
    if junit is not None:
        with atomic_write(junit) as file:
            file.write(build_junit(found))
    if json:
        facts = {"probes": found.probes, "problems": found.problems, "notes": found.notes, "tools": found.tools}
        print_data(as_json(facts))
    else:
        for one in found.probes:
            if not one.fired:
                print_data(f"DID NOT FIRE  {escape_text(one.name)}: {escape_text(one.instead or '')}")
        for problem in found.problems:
            print_data(f"{problem.code}  {escape_text(problem.where)}: {escape_text(problem.message)}")
    fired = sum(one.fired for one in found.probes)
    print_message(
        f"{fired} of {format_count(len(found.probes), 'guard')} fired; {format_count(len(found.tools), 'tool')} "
        f"looked at; {format_count(len(found.problems), 'thing')} to change"
    )
    if not found.tools:
        print_message("no tool was looked at: name a file of contracts, a saved tool list, or module:attribute")
        raise typer.Exit(2)
    if not found.is_clean:
        raise typer.Exit(1)


def build_junit(found: Examination) -> bytes:
    """Return an examination as a JUnit report: a case for each guard, each problem, and the tools."""
    silent = [one for one in found.probes if not one.fired]
    failures = len(silent) + len(found.problems)
    total = len(found.probes) + len(found.problems) + 1
    counts = {"tests": str(total), "failures": str(failures), "errors": str(int(not found.tools)), "skipped": "0"}
    suite = ET.Element("testsuite", {"name": "pokayoke verify", **counts})
    for one in found.probes:
        case = ET.SubElement(suite, "testcase", {"classname": "guards", "name": _clean(one.name)})
        if not one.fired:
            failure = ET.SubElement(case, "failure", {"message": _clean(f"did not fire against {one.against}")})
            failure.text = _clean(one.instead or "")
    for problem in found.problems:
        name = {"classname": _clean(problem.code), "name": _clean(problem.where)}
        case = ET.SubElement(suite, "testcase", name)
        ET.SubElement(case, "failure", {"message": _clean(problem.message)})
    case = ET.SubElement(suite, "testcase", {"classname": "tools", "name": "a tool was looked at"})
    if not found.tools:
        ET.SubElement(case, "error", {"message": "no tool was named, so nothing of this set-up was exercised"})
    ET.indent(suite)
    written: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _clean(text: str) -> str:
    """Return a text without the characters that XML 1.0 cannot hold."""
    return "".join(one if one.isprintable() or one in "\n\t" else f"\\u{ord(one):04x}" for one in text)
