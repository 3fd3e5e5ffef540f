"""`pokayoke check`: checks a configuration, tool definitions, or one call."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from pokayoke.cli.output import as_json, choose_painter, escape_text, print_code_pages, print_data, print_message
from pokayoke.cli.sources import LoadedSources, SourceProblem, read_sources, unknown_name_problems
from pokayoke.core.call import ToolCall, Verdict
from pokayoke.core.catalogue.unknown_names import unknown_names
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.correctors import hidden_validator_text
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.config.config import SCHEMA_FILE


def check(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|MODULE:ATTRIBUTE", help="Configuration, tool definitions, or tools in a module."),
    ] = None,
    config: Annotated[str | None, typer.Option(help="Configuration file; pokayoke.yaml if it is there.")] = None,
    call: Annotated[
        str | None, typer.Option(help='A call as JSON, {"name": ..., "arguments": ...}; - reads stdin.')
    ] = None,
    trust_hints: Annotated[
        bool, typer.Option("--trust-hints", help="Believe the annotations of MCP listings.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of pokayoke.yaml, for editors; check nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check a configuration, tool definitions, or one call.

    With --call it reports what would happen to the call, and runs no tool.

    pokayoke check pokayoke.yaml

    pokayoke check tools.json shop.tools:ALL

    pokayoke check shop.tools:ALL --call '{"name": "create_order", "arguments": {"sku": "S1"}}'

    Definitions are read in the formats of OpenAI, Anthropic and MCP, and as contracts. MODULE:ATTRIBUTE
    imports the module, so its code runs. Exit code 0 if there is nothing to fix (with --call: the call would
    run), 1 if there is, 2 if a source cannot be read.
    """
    if schema:
        print_data(SCHEMA_FILE.read_text(encoding="utf-8").rstrip("\n"))
        return
    material = read_sources(sources or [], config=config, trust_hints=trust_hints)
    if not material.contracts and not material.problems and material.config is None:
        raise ConfigurationError("nothing to check: name a configuration file, tool definitions or MODULE:ATTRIBUTE")
    problems = [*material.problems, *_find_conflicts(material)]
    verdict = None
    if call is None:
        problems += [problem for contract in material.contracts for problem in contract_weaknesses(contract)]
        problems += unknown_name_problems(material)
    elif not problems:
        verdict = _check_call(material, sys.stdin.buffer.read() if call == "-" else os.fsencode(call))
    if json:
        print_data(as_json({"config": material.config, "tools": [c.id for c in material.contracts],
                     "problems": problems, "verdict": _verdict_data(verdict)}))  # fmt: skip
    else:
        _print_result(material, problems, verdict, asked=call is not None)
    if problems or (verdict is not None and not verdict.ok):
        raise typer.Exit(1)


def contract_weaknesses(contract: Contract) -> Iterator[SourceProblem]:
    """Yield what a contract leaves open: nothing is wrong, but something can go wrong unnoticed."""
    if contract.unchecked:
        yield SourceProblem(
            "no_output_contract", contract.id,
            "promises nothing about its output, so drift and error pages pass unseen. Declare a schema, or text.",
        )  # fmt: skip
    elif contract.output is None and contract.content_type is None and contract.takes_url:
        yield SourceProblem(
            "page_or_text", contract.id,
            "takes a URL, so a page passes as its text, an error page too. Declare content_type: text/html if it "
            "returns pages, text/plain if it does not, or a schema.",
        )  # fmt: skip
    for name in contract.hidden_validators:
        yield SourceProblem("hidden_validator", contract.id, hidden_validator_text(name))
    if contract.timeout is None and contract.thread is None and not contract.is_async:
        yield SourceProblem(
            "no_deadline", contract.id,
            "has no deadline in a synchronous run: a call that hangs holds up the run. Declare timeout in seconds.",
        )  # fmt: skip


def _find_conflicts(material: LoadedSources) -> Iterator[SourceProblem]:
    """Yield what is wrong between tools: names that cannot be told apart, missing output contracts."""
    from pokayoke.runtime.guard.guard import Guard  # noqa: PLC0415 - the rooms are loaded on use
    from pokayoke.runtime.tools.view import unknown_names_report  # noqa: PLC0415 - as above

    policy, told = _policy_without_files(material), set[str]()
    for contracts in _split_by_version(material.contracts):
        told.add(unknown_names_report(contracts, policy))  # `unknown_name_problems` says where each stands
        try:
            Guard(contracts, config=policy).close()
        except ConfigurationError as error:
            if str(error) not in told:
                yield SourceProblem("tools", "the tools together", str(error))
            told.add(str(error))


def _split_by_version(contracts: list[Contract]) -> Iterator[list[Contract]]:
    """Yield the tools as a run may see them: several versions of one are never in force together."""
    versions: dict[str, list[Contract]] = {}
    for contract in contracts:
        known = versions.setdefault(contract.name, [])
        if any(one.id == contract.id for one in known):
            yield [*known, contract]  # the same version twice: the guard reports it
        known.append(contract)
    for number in range(max(map(len, versions.values()), default=0)):
        yield [known[min(number, len(known) - 1)] for known in versions.values()]


def _policy_without_files(material: LoadedSources) -> Any:
    """Return the policy without the trace and the sample: a check writes nothing.

    `unknown_name_problems` judges its kinds.
    """
    from msgspec.structs import replace  # noqa: PLC0415 - one use

    silent = replace(material.policy.trace, path=None, redact_key_path=None, sample_path=None, sample_key_path=None)
    return replace(material.policy, trace=silent, loop=replace(material.policy.loop, off=(), instructions={}))


def _check_call(material: LoadedSources, text: bytes) -> Verdict:
    from pokayoke.runtime.guard.guard import Guard  # noqa: PLC0415 - as above

    if not material.contracts:
        raise ConfigurationError("--call needs tools: name definitions or MODULE:ATTRIBUTE")
    try:
        given = parse(text)[0]
    except StrictError as error:
        raise ConfigurationError(f"--call is not JSON: {error}") from None
    if is_object(given) and is_object(given.get("function")):
        given = given["function"]
    if not is_object(given) or not isinstance(given.get("name"), str):
        raise ConfigurationError('--call needs an object with "name" and "arguments"')
    arguments = given.get("arguments", given.get("input", {}))
    if not is_object(arguments) and not isinstance(arguments, str):
        raise ConfigurationError('the "arguments" of --call are an object, or the text a model wrote')
    guard = Guard(material.contracts, config=_policy_without_files(material))
    try:
        return guard.run("check").check(ToolCall("call_1", given["name"], arguments))
    finally:
        guard.close()


def _verdict_data(verdict: Verdict | None) -> Any:
    return verdict if verdict is None else {"ok": verdict.ok, "verdict": verdict}


def _print_result(
    material: LoadedSources, problems: list[SourceProblem], verdict: Verdict | None, *, asked: bool
) -> None:
    paint = choose_painter()
    for problem in problems:
        place = "" if problem.message.startswith(f"{problem.where}:") else f"{problem.where}: "
        print_data(f"{paint(problem.code, 'bad')}  {escape_text(place + problem.message)}")
    if verdict is not None:
        _print_verdict(verdict)
    elif asked:
        print_message("the call was not judged: fix the problems above first")
    elif not problems:
        if not material.contracts and any(unknown_names(material.policy, ())):
            print_message("the tools that it names were not looked for: name them too, as FILE or MODULE:ATTRIBUTE")
        what = [escape_text(material.config)] if material.config else []
        what += [f"tools {', '.join(escape_text(c.id) for c in material.contracts)}"] if material.contracts else []
        print_data(f"{paint('clean', 'ok')}: {', '.join(what)}")


def _print_verdict(verdict: Verdict) -> None:
    paint = choose_painter()
    reason = f" ({verdict.stop_reason})" if verdict.stop_reason else ""
    print_data(
        f"{paint(verdict.decision, 'ok' if verdict.ok else 'bad')}  "
        f"{escape_text(verdict.contract or verdict.tool)}{reason}"
    )
    if verdict.arguments is not None:
        print_data(f"  arguments    {as_json(verdict.arguments)}")
    for repair in verdict.repairs:
        print_data(f"  repair       {escape_text(repair)}")
    for change in verdict.corrections:
        print_data(
            f"  correction   {escape_text(change.at)} {escape_text(change.rule)}: "
            f"{as_json(change.before)} -> {as_json(change.after)}"
        )
    for finding in verdict.findings:
        print_data(
            f"  finding      {escape_text(finding.code)} at {escape_text(finding.at) or 'the whole'}: "
            f"{escape_text(finding.message.removeprefix(f'{finding.at}: '))}"
        )
        if finding.hint:
            print_data(f"  to the model {escape_text(finding.hint)}")
    print_code_pages(finding.code for finding in verdict.findings)
