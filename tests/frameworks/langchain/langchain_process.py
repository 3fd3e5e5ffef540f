"""Processes with a guarded agent of LangGraph: run, killed and run again by the tests.

Each line of the input is a JSON list FOLDER, TOOL, MODE, STEP, and makes one process, forked from this one after its
imports, which take seconds. TOOL is `human`, `lookup`, `downstream` or `approved`; MODE is `sync` or `async`; STEP is
`begin`, `go on`, or what the graph is resumed with, as JSON. Checkpoints, the ledger and the log of effects are files
in FOLDER. The process dies of SIGKILL after an effect, before anybody could write that down, if there is a file
`deadly`. Each line of the output says how one ended: its exit status, what it said, what went wrong.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from pathlib import Path

import aiosqlite
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

import pokayoke
from pokayoke.adapters.langchain import GuardMiddleware, contracts
from pokayoke.stores.base import RecordQuery

ARGUMENTS = {"order": "A1", "cents": 500}


class Asks(BaseChatModel):
    """A model that asks for one refund, and says what it reads. It remembers nothing but the history."""

    @property
    def _llm_type(self):
        return "asks"

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        if messages[-1].type == "tool":
            said = AIMessage(f"I read: {messages[-1].text}")
        else:
            said = AIMessage("", tool_calls=[{"name": "refund", "args": ARGUMENTS, "id": "call_1"}])
        return ChatResult(generations=[ChatGeneration(message=said)])


def effects(folder: Path) -> list[dict]:
    """The effects, in order; a service that drops repeats of a key keeps the first."""
    log = folder / "effects"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def tool_of(folder: Path, kind: str):
    """The tool, and what is declared of it."""

    def refund(order: str, cents: int) -> dict:
        """Refund an order."""
        key = pokayoke.this_effect().key
        if kind != "downstream" or key not in [one["key"] for one in effects(folder)]:
            with (folder / "effects").open("a") as log:
                log.write(json.dumps({"order": order, "cents": cents, "key": key}) + "\n")
        if (folder / "deadly").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return {"refunded": order}

    def find(key, arguments):
        done = [one for one in effects(folder) if one["key"] == key]
        return pokayoke.Found({"refunded": done[0]["order"]}) if done else pokayoke.NOT_FOUND

    declared = {
        "human": {},
        "approved": {"approval": True},
        "lookup": {"on_ambiguous": "lookup", "lookup": find, "lookup_safe": "executor_dead"},
        "downstream": {"on_ambiguous": "downstream_key", "forwards_key": True},
    }[kind]
    return refund, {"refund": {"output_schema": {"type": "object"}, "identity": ("order",), "timeout": 20, **declared}}


def play(folder: Path, kind: str, mode: str, step: str) -> dict:
    """What one process does."""
    refund, fields = tool_of(folder, kind)
    guard = pokayoke.Guard(contracts([refund], fields=fields), store=f"sqlite:///{folder}/ledger.db")
    given = {"begin": {"messages": [("user", "Refund A1.")]}, "go on": None}
    put = given[step] if step in given else Command(resume=json.loads(step))
    config = {"configurable": {"thread_id": "case-7"}}
    built = {"model": Asks(), "tools": [refund], "middleware": [GuardMiddleware(guard)]}
    path = str(folder / "checkpoints.db")
    if mode == "sync":
        with SqliteSaver.from_conn_string(path) as saver:
            ended = create_agent(**built, checkpointer=saver).invoke(put, config)
    else:

        async def run():
            async with aiosqlite.connect(path) as connection:
                agent = create_agent(**built, checkpointer=AsyncSqliteSaver(connection))
                return await agent.ainvoke(put, config)

        ended = asyncio.run(run())
    waits = [one.value for one in ended.get("__interrupt__", ())]
    said = [[one.type, str(one.text)] for one in ended["messages"]]
    ledger = [record.state for record in guard.store.records(RecordQuery(run_id="case-7"))]
    guard.close()
    return {"said": said, "waits": waits, "ledger": ledger}


def child(folder: str, *how: str) -> None:
    """Play, leave the result in a file, and end without what the parent would do at its end."""
    result = {"wrong": ""}
    try:
        result = play(Path(folder), *how)
    except BaseException:
        result = {"wrong": traceback.format_exc()}
    (Path(folder) / "result").write_text(json.dumps(result))
    os._exit(0)


if __name__ == "__main__":
    for line in sys.stdin:
        order = json.loads(line)
        if (pid := os.fork()) == 0:
            child(*order)
        _, status = os.waitpid(pid, 0)
        left = Path(order[0]) / "result"
        print(
            json.dumps(
                {"exit": os.waitstatus_to_exitcode(status), "result": left.exists() and json.loads(left.read_text())}
            )
        )
        left.unlink(missing_ok=True)
        sys.stdout.flush()
