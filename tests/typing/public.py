"""The public signatures, as type checkers see them. Checked by mypy and pyright in strict mode; never run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, assert_type

import httpx2

import pokayoke
from pokayoke import (
    Contract,
    Finding,
    Guard,
    Outcome,
    Policy,
    Raw,
    ReadCall,
    Reading,
    Run,
    ToolCall,
    Verdict,
    urls,
)


@pokayoke.tool(effect="read")
def look_up(customer_id: str, limit: Annotated[int, "how many"] = 10) -> dict[str, Any]:
    """Look up a customer."""
    return {"id": customer_id, "limit": limit}


@pokayoke.tool(effect="write", identity=("customer_id",), timeout=5.0, paths={"target": ["/srv/reports"]})
async def save(customer_id: str, target: str) -> dict[str, Any]:
    """Save a report."""
    return {"id": customer_id, "target": target}


@pokayoke.tool(effect="read", urls={"url": pokayoke.UrlRule(hosts=("*.example.com",))})
def fetch(url: pokayoke.ConfinedUrl) -> str:
    """Fetch a page."""
    with url.open_client(limits=urls.HttpLimits(seconds=5)) as client:
        assert_type(client, httpx2.Client)
        return client.get(url).text


def unpack(archive: pokayoke.ConfinedPath, to: pokayoke.ConfinedPath) -> None:
    """Unpack an archive."""
    limits = pokayoke.ArchiveLimits(members=10)
    assert_type(pokayoke.extract_archive(archive, to, limits=limits), list[pokayoke.ConfinedPath])


assert_type(look_up("C-1", limit=3), dict[str, Any])
look_up(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the function's own parameters hold
look_up("C-1", other=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
a_contract: Contract = look_up


@pokayoke.tool
def ping(host: str) -> str:
    """Ping a host."""
    return host


assert_type(ping("a"), str)

declared = Contract.from_schema("ping", {"type": "object"}, output_schema="text", effect="read")
assert_type(declared, Contract)
assert_type(declared.id, str)

guard = Guard([look_up, save, declared], config=None, store=None)
Guard([look_up], config="pokayoke.yaml")
Guard([look_up], config={"mode": "monitor"})
assert_type(Policy(mode="monitor").mode, Literal["enforce", "monitor"])


def sync_loop() -> None:
    """The sync surface of a run."""
    with guard.run(run_id="r-1", session="s", tenant="t", prompt="hello") as run:
        assert_type(run, Run)
        run.user("hello")
        run.usage(120)
        call = ToolCall("call_1", "look_up", '{"customer_id": "C-1"}')
        assert_type(run.check(call), Verdict)
        outcome = run.call(call)
        assert_type(outcome, Outcome)
        assert_type(outcome.findings, tuple[Finding, ...])
        assert_type(outcome.text, str)
        assert_type(outcome.ok, bool)
        assert_type(run.call_batch([call], stop_reason="tool_calls"), list[Outcome])
        ticket = run.begin(call)
        assert_type(run.finish(ticket, result=Raw("{}", "application/json", 200)), Outcome)
        assert_type(run.mode, Literal["normal", "safe_mode", "final_answer", "stopped"])
        assert_type(run.tools(format="openai"), list[dict[str, Any]])
        assert_type(run.answer("done").text, str)


async def async_loop() -> None:
    """The async surface of a run."""
    assert_type(await save("C-1", target="a.txt"), dict[str, Any])
    async with guard.run() as run:
        call = ToolCall("call_1", "save", {"customer_id": "C-1", "target": "a.txt"}, confidence=0.9)
        assert_type(await run.acall(call), Outcome)
        assert_type(await run.acall_batch([call]), list[Outcome])


def reading() -> None:
    """What intake answers."""
    read = pokayoke.read_arguments("{}", schema={"type": "object"}, stop_reason="stop")
    assert_type(read, Reading)
    assert_type(read.grade, Literal["exact", "lossless", "edited", "ambiguous", "lossy"])
    calls = pokayoke.read_calls("look_up(customer_id='C-1')", tools=["look_up"])
    assert_type(calls.rest, str)
    for one in calls:
        assert_type(one, ReadCall)
        assert_type(one.reading, Reading)
        assert_type(one.to_tool_call("c1", stop_reason="stop"), ToolCall)


def histories() -> None:
    """What shortening answers."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    facts = pokayoke.Facts(effects=(pokayoke.OpenEffect("refund", "k", "in_doubt"),), ids=("ORD-1",))
    assert_type(pokayoke.compact(messages, 8_000, keep_last=5, pinned=(0,), format="openai"), list[Any])
    result = pokayoke.compacted(messages, 8_000, facts=facts, identity=lambda name, arguments: name)
    assert_type(result, pokayoke.Compacted)
    assert_type(result.finding, Finding | None)
    history = pokayoke.History(8_000, format="anthropic", facts=lambda: facts, summarise=lambda gone, room: "gone")
    history.add(messages[0], pin=True)
    history.report(120)
    assert_type(history.messages(), list[Any])
    assert_type(history.tokens, int)
