"""`pokayoke verify`: doctor over one's own set-up, as a step of continuous integration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from xml.etree import ElementTree as ET

import typer

from pokayoke.cli.doctor import Examination, examine_setup
from pokayoke.cli.options import JsonOption, StoreOption
from pokayoke.cli.output import as_json, escape_text, format_count, print_data, print_message
from pokayoke.runtime.files.atomic_file import atomic_write

if TYPE_CHECKING:
    from pokayoke.cli.doctor.servers import ServerCheck


def verify(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|MODULE:ATTRIBUTE", help="Configuration, tools, saved tool lists, as for check."),
    ] = None,
    config: Annotated[str | None, typer.Option(help="Configuration file; pokayoke.yaml if it is there.")] = None,
    store: StoreOption = None,
    servers: Annotated[
        list[str] | None,
        typer.Option("--servers", metavar="CONFIG", help="Start the servers of this client, or of its file, and try."),
    ] = None,
    server_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for each of those servers.")] = 30.0,
    lock: Annotated[str | None, typer.Option(help="Lock of contracts; contracts.lock if it is there.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit report to this file.")] = None,
    json: JsonOption = False,
) -> None:
    """Verify your own set-up in CI.

    pokayoke verify shop.tools:ALL --junit report.xml

    pokayoke verify --config pokayoke.yaml contracts.yaml approved.json

    pokayoke verify --servers ~/.cursor/mcp.json --server-timeout 60

    Every guard is fired once under your configuration, and your tools, store, lock and trace are examined; a tool is
    never run. With --servers, each server is started as the client starts it, lists its tools, and is sent calls that
    its guard has to refuse. Each guard, check and problem is a test case of the report. Exit code 0 if every guard
    fired and nothing has to be changed, 1 if not, 2 if no tool was named or found: then nothing of yours was exercised.
    """
    found = examine_setup(sources or [], config=config, store=store, lock=lock)
    checks = _check_servers(servers or [], server_timeout)
    if junit is not None:
        with atomic_write(junit) as file:
            file.write(build_junit(found, checks))
    if json:
        facts = {"probes": found.probes, "problems": found.problems, "notes": found.notes, "tools": found.tools}
        print_data(as_json({**facts, "servers": checks}))
    else:
        for one in found.probes:
            if not one.fired:
                print_data(f"DID NOT FIRE  {escape_text(one.name)}: {escape_text(one.instead or '')}")
        for problem in found.problems:
            print_data(f"{problem.code}  {escape_text(problem.where)}: {escape_text(problem.message)}")
        for check in checks:
            if check.problem is not None:
                mark = "skipped" if check.is_skipped else "FAILED"
                print_data(f"{mark}  {escape_text(check.server)}, {check.check}: {escape_text(check.problem)}")
    fired = sum(one.fired for one in found.probes)
    tools = _count_tools(found, checks)
    print_message(
        f"{fired} of {format_count(len(found.probes), 'guard')} fired; {format_count(tools, 'tool')} looked at; "
        f"{format_count(len(found.problems), 'thing')} to change"
    )
    if not tools:
        print_message("no tool was looked at: name contracts, a saved tool list, module:attribute, or --servers")
        raise typer.Exit(2)
    if not found.is_clean or any(one.problem is not None and not one.is_skipped for one in checks):
        raise typer.Exit(1)


def _check_servers(names: list[str], seconds: float) -> list[ServerCheck]:
    if not names:
        return []
    from pokayoke.cli.doctor.servers import check_servers  # noqa: PLC0415 - for who names servers

    return [one for name in names for one in check_servers(name, seconds)]


def _count_tools(found: Examination, checks: Sequence[ServerCheck]) -> int:
    return len(found.tools) + sum(one.tools for one in checks)


def build_junit(found: Examination, checks: Sequence[ServerCheck] = ()) -> bytes:
    """Return an examination as a JUnit report: a case for each guard, each check, each problem, and the tools."""
    silent = [one for one in found.probes if not one.fired]
    skipped = sum(one.is_skipped for one in checks)
    failures = len(silent) + len(found.problems) + sum(one.problem is not None for one in checks) - skipped
    total, tools = len(found.probes) + len(checks) + len(found.problems) + 1, _count_tools(found, checks)
    counts = {"tests": total, "failures": failures, "errors": int(not tools), "skipped": skipped}
    suite = ET.Element("testsuite", {"name": "pokayoke verify", **{key: str(count) for key, count in counts.items()}})
    for one in found.probes:
        case = ET.SubElement(suite, "testcase", {"classname": "guards", "name": _clean(one.name)})
        if not one.fired:
            failure = ET.SubElement(case, "failure", {"message": _clean(f"did not fire against {one.against}")})
            failure.text = _clean(one.instead or "")
    for check in checks:
        name = {"classname": _clean(f"servers.{check.server}"), "name": _clean(check.check)}
        case = ET.SubElement(suite, "testcase", name)
        if check.problem is not None:
            kind = "skipped" if check.is_skipped else "failure"
            ET.SubElement(case, kind, {"message": _clean(check.problem)})
    for problem in found.problems:
        name = {"classname": _clean(problem.code), "name": _clean(problem.where)}
        case = ET.SubElement(suite, "testcase", name)
        ET.SubElement(case, "failure", {"message": _clean(problem.message)})
    case = ET.SubElement(suite, "testcase", {"classname": "tools", "name": "a tool was looked at"})
    if not tools:
        ET.SubElement(case, "error", {"message": "no tool was named, so nothing of this set-up was exercised"})
    ET.indent(suite)
    written: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _clean(text: str) -> str:
    """Return a text without the characters that XML 1.0 cannot hold."""
    return "".join(one if one.isprintable() or one in "\n\t" else f"\\u{ord(one):04x}" for one in text)
