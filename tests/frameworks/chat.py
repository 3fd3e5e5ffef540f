"""A conversation of several turns with a framework's agent; each step may be a process of its own.

What one process shares with the next is a folder: the ledger, a log of effects, switches of the tools, and what the
framework itself stores. `chats/<name>.py` holds what a framework does with a step; as a program this file runs the
steps that it reads, each in a fork of its own, so that the framework is imported once.
"""

import contextlib
import importlib.util
import json
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pokayoke
from pokayoke.testing import crash_at

HERE = Path(__file__).resolve().parent
FIELDS = {
    "add": {"repeats": "each"},
    "pay": {"identity": ("order",), "envelope": pokayoke.Envelope(ok="/ok")},
    "settle": {"identity": ("order",)},
    "capture": {"identity": ("order",), "envelope": pokayoke.Envelope(ok="/ok", no_effect=True)},
}
"""What is declared beside the reads: `switch`, `test` and `charge` are plain writes, `pay` and the rest payments."""


@dataclass(frozen=True)
class Step:
    """One step of a conversation.

    Args:
        do: name of a method of the chat: `say` something new, `go_on` after a crash, `decide` a question, `redeliver`
            the first calls of the latest turn, or `travel` back before it.
        turns: what the model says meanwhile: texts, or lists of a call's id, name and arguments.
        text: what the user says.
        yes: what a person decides.
        dies: the step of the guard, such as `after_settle`, at which the process is killed.
    """

    do: str
    turns: list[Any]
    text: str = ""
    yes: bool = True
    dies: str = ""


class Tools:
    """The tools of a shop over a folder, where they also find whether they are to fail.

    Args:
        folder: with the log `effects`, and `fails` and `broken`: effects that the tools decline, or lose the answer of.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def _named(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    @property
    def done(self) -> list[str]:
        """All effects, in order."""
        return self._named("effects")

    def act(self, *words: str) -> dict:
        """Have an effect."""
        what = " ".join(words)
        if what in self._named("fails"):
            if words[0] == "settle":
                raise pokayoke.ToolError("declined")
            return {"ok": False, "error": "declined"}
        with (self.folder / "effects").open("a") as log:
            log.write(what + "\n")
        if what in self._named("broken"):
            raise OSError("the connection broke")
        return {"ok": True, "n": len(self.done)}

    def functions(self) -> list:
        """The tools."""
        act = self.act

        def switch(to: str) -> dict:
            """Switch the lamp."""
            return act("switch", to)

        def test() -> dict:
            """Run the tests."""
            return act("test")

        def charge(of: str) -> dict:
            """Charge something."""
            return act("charge", of)

        def add(of: str) -> dict:
            """Put something into the cart."""
            return act("add", of)

        def pay(order: str) -> dict:
            """Pay an order."""
            return act("pay", order)

        def settle(order: str) -> dict:
            """Settle an order."""
            return act("settle", order)

        def capture(order: str) -> dict:
            """Capture the payment of an order."""
            return act("capture", order)

        def find(of: str) -> dict:
            """Find something."""
            return act("find", of)

        return [switch, test, charge, add, pay, settle, capture, find]


def load_chat() -> type:
    """Return the class `Chat` of the framework in this environment."""
    path = HERE / "chats" / f"{os.environ['POKAYOKE_HOST'].replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(f"chat_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Chat


class Life:
    """A process of the host: a guard and an agent over it, from one start to the next.

    Args:
        folder: what it shares with the next.
        store: the URL of the ledger; None for memory.
        dies: as in `Step`.
    """

    def __init__(self, folder: Path, store: str | None, dies: str = ""):
        chat = load_chat()
        tools = chat.tools(Tools(folder).functions())
        declared = chat.contracts(tools, reads=["find"], fields=FIELDS)
        self.guard = pokayoke.Guard(declared, store=store, on_step=crash_at(dies) if dies else None)
        self.chat = chat(folder, tools, self.guard)

    def play(self, step: Step) -> dict[str, Any]:
        """Play a step; returns what the user reads, and the tools that wait for a person."""
        given = {"text": step.text} if step.do in ("say", "travel", "go_on") else {}
        given |= {"yes": step.yes} if step.do == "decide" else {}
        text, waits = getattr(self.chat, step.do)(step.turns, **given)
        return {"text": text, "waits": waits}


def main() -> None:
    """Play the steps of the input, each in a fork; a line of the output is its exit code and result."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        folder, step = Path(order["folder"]), Step(**order["step"])
        left = folder / "result"
        if (child := os.fork()) == 0:
            result = {"wrong": ""}
            try:
                result = Life(folder, order["store"], step.dies).play(step)
            except BaseException:
                result = {"wrong": traceback.format_exc()}
            left.write_text(json.dumps(result))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        result = json.loads(left.read_text()) if left.exists() else None
        with contextlib.suppress(FileNotFoundError):
            left.unlink()
        out.write(json.dumps({"killed": code == -signal.SIGKILL, "result": result}) + "\n")


if __name__ == "__main__":
    for name in (HERE, HERE.parent / "support"):
        sys.path.insert(0, str(name))
    load_chat()
    main()
