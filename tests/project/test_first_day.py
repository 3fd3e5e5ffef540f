"""A newcomer's first day: what he, his operator, his users and his model read, beside a reviewed text.

`first_day.txt` holds the day. `POKAYOKE_WRITE=1 pytest tests/project/test_first_day.py` writes it again: read each
changed line aloud as the person whom it is for, before it is committed.
"""

import json
import os
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from clishell import Shell

import pokayoke
from pokayoke import Guard, ToolCall
from pokayoke.testing import ScriptedModel, ask

ROOT = Path(__file__).parents[2]
DAY = Path(__file__).with_name("first_day.txt")
STORE = ("--store", "sqlite:///ledger.db")
ANN = ("--by", "ann", "--reason", "checked")
VARYING = [  # what differs from day to day, or from machine to machine, and what stands for it
    (r"\b(ap|run)[-_][0-9a-f]{12,}", r"\1-ID"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b", "KEY"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d| UTC)?", "TIME"),
    (r"\b\d+s  ", "0s  "),
    (r"us=\d+", "us=N"),
    (r"claimed  TIME by .*", "claimed  TIME by PROCESS"),
    (r"Python [\d.]+, SQLite [\d.]+", "Python X, SQLite Y"),
    (r"(Usage: |Try ').*?pokayoke", r"\1pokayoke"),  # a process of pytest is called otherwise
    (r"(?m)^fired .*\n", ""),  # one for each fault
]


class Diary:
    """What was read, and by whom."""

    def __init__(self, folder):
        self.folder, self.lines, self.shell = folder, [], Shell(folder)

    def begin(self, title):
        """Begin a part of the day."""
        self.lines += ["", f"## {title}", ""]

    def note(self, reader, text):
        """Write down what somebody reads."""
        for pattern, word in [(re.escape(str(self.folder)), "."), *VARYING]:
            text = re.sub(pattern, word, text)
        first, *rest = text.splitlines()
        self.lines += [f"{reader} {first}", *(f"    {line}" for line in rest if line)]

    def type(self, *words, code=0):
        """Type one command; the operator reads what it prints."""
        self.note("$ pokayoke", " ".join(word for word in words if word not in STORE))
        done = self.shell(*words)
        self.note("operator:", done.stdout + done.stderr)
        assert done.returncode == code, self.lines[-9:]

    def misuse(self, use):
        """Make a mistake in code; the developer reads the exception."""
        with pytest.raises((pokayoke.PokayokeError, ImportError)) as raised:
            use()
        self.note("developer:", f"{type(raised.value).__name__}: {raised.value}")

    def call(self, run, name, arguments, number=1, **fields):
        """Send one call as the model; it reads what comes back."""
        self.note(">", f"{name} {arguments if isinstance(arguments, str) else json.dumps(arguments)}")
        outcome = run.call(ToolCall(f"call_{number}", name, arguments, **fields))
        self.tell_model(outcome.text, outcome.status)
        return outcome

    def tell_model(self, text, status):
        """Write down what the model reads, on one line."""
        self.note(f"model ({status}):", text.replace("\n", " ⏎ "))

    def answer(self, run, text):
        """Answer as the model; the user reads it."""
        self.note("user:", run.answer(text).text)


SHOP = '''"""A small shop with a bank behind it."""

import pokayoke
from pydantic import BaseModel

class Profile(BaseModel):
    id: str
    email: str

class Receipt(BaseModel):
    receipt: str

page = {"profile": None}
bank = {"is_down": False}

@pokayoke.tool(effect="read")
def find_customer(name: str) -> Profile:
    """Find a customer by name."""
    if name == "Bob":
        raise pokayoke.ToolError("There is no customer with this name.")
    return page["profile"] or Profile(id="C-1", email="ada@example.org")

@pokayoke.tool(effect="write", timeout=10)
def refund(customer_id: str, cents: int, invoice: str = "") -> Receipt:
    """Refund a customer."""
    if bank["is_down"]:
        raise TimeoutError("no answer from the bank")
    return Receipt(receipt=f"R-{cents}") if cents < 1000 else {"receipt": None}

@pokayoke.tool(effect="write", output="text", sources=(), timeout=10)
def send_note(to: str, text: str) -> str:
    """Send a note to a customer."""
    if to == "closed":
        raise pokayoke.ToolError("This mailbox is closed.")
    return "sent"

@pokayoke.tool(effect="write", output=dict, sources=(), timeout=10)
def book_room(room: str) -> dict:
    """Book a room."""
    return {"success": False, "error": "the calendar answered with an error"}

@pokayoke.tool(effect="destructive", output="text", sources=(), approval=True, timeout=10)
def delete_customer(customer_id: str) -> str:
    """Delete a customer."""
    return f"deleted {customer_id}"

TOOLS = [find_customer, refund, send_note, book_room, delete_customer]
'''


def read_pages(diary):
    """Run the first block of the README, and the tutorial."""
    call = pokayoke.Run.call
    for page, count in (("README.md", 1), ("docs/tutorial.md", None)):
        diary.begin(f"The blocks of {page}")
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[:count]
        (diary.folder / "page.py").write_text("\n".join(blocks), encoding="utf-8")

        def listen(run, one):
            outcome = call(run, one)
            if outcome.status != "ok":  # what a tool returned
                diary.tell_model(outcome.text, outcome.status)
            return outcome

        with mock.patch.object(pokayoke.Run, "call", listen):
            runpy.run_path(str(diary.folder / "page.py"))


def misuse_the_library(diary, shop):
    """Make the mistakes of a first day."""

    def look(name: str):
        """Look."""

    def import_unknown():
        from pokayoke.adapters import haystack  # noqa: F401, PLC0415 - the mistake

    def import_absent():
        with mock.patch.dict("sys.modules", {"crewai": None}):
            from pokayoke.adapters import crewai  # noqa: F401, PLC0415 - an extra that is not installed

    diary.begin("Mistakes in code")
    guard = Guard(shop.TOOLS)
    for use in (
        lambda: Guard([look]),
        lambda: Guard([pokayoke.tool(effect="read")(look)]),
        lambda: Guard(shop.TOOLS, config={"aprovals": {"tools": ["refund"]}}),
        lambda: Guard(shop.TOOLS, config={"approvals": {"tools": ["refnd"]}}),
        lambda: Guard(shop.TOOLS, config={"safe_mode": {"on_invalid_output": "closed"}}),
        lambda: Guard(shop.TOOLS, config="pokayoke.yml"),
        lambda: Guard(shop.TOOLS, store=STORE[1]),
        lambda: Guard(shop.TOOLS, store="ledger.db"),
        lambda: guard.run().call({"name": "refund"}),
        lambda: guard.approvals.approve("ap-1", by="ann"),
        import_unknown,
        import_absent,
    ):
        diary.misuse(use)


def try_the_commands(diary):
    """Check the shop and create the store."""
    diary.begin("Commands")
    diary.type("check", "shop:TOOLS", code=1)
    diary.type("check", "shop:TOOLS", "--call", '{"name": "refund", "arguments": {"cents": "5"}}', code=1)
    diary.type("check", "nope.yaml", code=2)
    (diary.folder / "wrong.yaml").write_text("aprovals:\n  tools: [refund]\n", encoding="utf-8")
    diary.type("check", "wrong.yaml", code=1)
    diary.type("doctor", "shop:TOOLS", code=1)
    diary.type("tarce", "trace.jsonl", code=2)
    diary.type("ledger", "list", code=2)
    diary.type("ledger", "list", *STORE, code=2)
    diary.type("ledger", "init", *STORE)
    diary.type("ledger", "list", *STORE)
    diary.type("ledger", "list", "--in-doubt", *STORE)
    diary.type("approvals", "list", *STORE)
    diary.type("safe-mode", "status", *STORE)


def send_bad_calls(diary, shop):
    """Let calls fail in every way, without a store."""
    diary.begin("Calls that go wrong, in a plain loop")
    refund = {"customer_id": "C-1", "cents": 500}
    with Guard(shop.TOOLS) as guard, guard.run("plain", prompt="Refund Ada.") as run:
        diary.call(run, "refnd", refund)
        diary.call(run, "refund", {**refund, "cents": "five"})
        diary.call(run, "refund", {"customer_id": "C-1"})
        diary.call(run, "refund", {"customer_id": "C-1", "cent": 500})
        diary.call(run, "refund", {**refund, "customer_id": "<customer_id>"})
        diary.call(run, "refund", '{"customer_id": "C-1", "cents": 50')
        diary.call(run, "refund", json.dumps(refund), stop_reason="length")
        diary.call(run, "find_customer", {"name": "Bob"})
        diary.call(run, "send_note", {"to": "closed", "text": "Hi."})
        diary.call(run, "book_room", {"room": "A"})
        shop.page["profile"] = pokayoke.Raw("<!doctype html><html><body>Log in</body></html>", "text/html", 200)
        diary.call(run, "find_customer", {"name": "Ada"})
        diary.call(run, "refund", refund)
        shop.page["profile"] = None
        diary.call(run, "find_customer", {"name": "Ada"})
        diary.call(run, "refund", refund)
        diary.call(run, "refund", refund, number=2)
        diary.call(run, "delete_customer", {"customer_id": "C-1"})
        shop.bank["is_down"] = True
        diary.call(run, "refund", {**refund, "cents": 700})
        diary.call(run, "refund", {**refund, "cents": 700}, number=2)
        shop.bank["is_down"] = False
        diary.call(run, "refund", {**refund, "cents": 1000})
        diary.call(run, "refund", refund, number=3)
        diary.answer(run, "Everything is refunded.")
        diary.answer(run, "")


def let_the_guard_loop(diary, shop):
    """Give the loop models that are stuck, honest, impatient, silent."""
    diary.begin("guard.loop")
    for replies, answer in (
        ([ask("find_bill", name="Ada"), ask("get_bill", name="Ada"), ask("refund", customer_id="C-1", cents=1)], None),
        ([ask("refund", customer_id="C-1", cents=1), "Refunded."], None),
        ([ask("delete_customer", customer_id="C-1"), "Deleted."], None),
        ([ask("delete_customer", customer_id="C-1"), "Deleted."], False),
        ([ask("delete_customer", customer_id="C-1"), "Deleted."], "yes"),
        (["", ""], None),
    ):
        on_ask = None if answer is None else lambda question, answer=answer: answer
        with Guard(shop.TOOLS, on_ask=on_ask) as guard:
            model = ScriptedModel(replies)
            ended = guard.loop(model, "Please.")
        diary.note(">", " / ".join(one if isinstance(one, str) else f"{one.name}" for one in replies))
        heard = [one["content"] for one in ended.messages if one["role"] == "tool"]
        last = model.seen[-1][-1]["content"]
        for text in heard if last in heard else [*heard, last]:
            diary.tell_model(text, "loop")
        diary.note(f"user (verified {ended.verified}, {ended.stop_reason}):", ended.text)


def work_on_a_store(diary, shop):
    """Leave a doubt and a question, and let people settle both."""
    diary.begin("The same on a durable store")
    refund, deletion = {"customer_id": "C-2", "cents": 700}, {"customer_id": "C-3"}
    guard = Guard(shop.TOOLS, store=STORE[1], config={"trace": {"path": "trace.jsonl"}})
    with pytest.warns(UserWarning, match="needs a run") as warned, guard.run() as run:
        diary.call(run, "refund", refund)
    diary.note("developer:", f"UserWarning: {warned[0].message}")
    shop.bank["is_down"] = True
    with guard.run("order-7", prompt="Refund C-2 and delete C-3.") as run:
        doubt = diary.call(run, "refund", refund)
        asked = diary.call(run, "delete_customer", deletion)
        diary.answer(run, "C-2 is refunded and C-3 is deleted.")
    shop.bank["is_down"] = False
    key = doubt.key[:12]
    diary.type("ledger", "list", "--in-doubt", *STORE, code=1)
    diary.type("ledger", "show", key, *STORE)
    diary.type("ledger", "resolve", key, *ANN, *STORE, code=2)
    diary.type("ledger", "resolve", key, "--not-happened", *ANN, *STORE)
    diary.type("ledger", "resolve", key, "--happened", "R-9", "--by", "bob", "--reason", "the bank shows it", *STORE)
    diary.type("approvals", "list", *STORE)
    diary.type("approvals", "approve", "ap-zz", *ANN, *STORE, code=2)
    diary.type("approvals", "approve", asked.approval, *ANN, *STORE)
    diary.type("approvals", "deny", asked.approval, "--by", "bob", *STORE, code=2)
    diary.type("safe-mode", "on", "--scope", "*", *ANN, *STORE)
    diary.type("safe-mode", "status", *STORE, code=1)
    with guard.run("order-7") as run:
        diary.call(run, "delete_customer", deletion)
        diary.answer(run, "C-3 is deleted.")
    diary.type("safe-mode", "off", "--scope", "*", *ANN, *STORE)
    diary.type("safe-mode", "off", "--scope", "refnd", *ANN, *STORE)
    with guard.run("order-7") as run:
        diary.call(run, "delete_customer", deletion)
        diary.call(run, "refund", refund)
        diary.answer(run, "")
        run.user("Delete it again.")
        diary.call(run, "delete_customer", deletion, number=9)
    guard.close()


def look_back(diary):
    """Read the trace."""
    diary.begin("The trace")
    diary.type("trace", "nope.jsonl", code=2)
    diary.type("trace", "trace.jsonl", "--run", "nobody")
    diary.type("trace", "trace.jsonl", "--run", "order-7")
    diary.type("trace", "report", "trace.jsonl")


def test_a_first_day_reads_as_reviewed(tmp_path, monkeypatch):
    """Every message of the day is the one that was reviewed, and no command ends with another exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POKAYOKE_STORE", raising=False)
    monkeypatch.delenv("POKAYOKE_STORE_KEY", raising=False)
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    diary = Diary(tmp_path)
    shop = SimpleNamespace(**runpy.run_path("shop.py"))
    read_pages(diary)
    misuse_the_library(diary, shop)
    try_the_commands(diary)
    send_bad_calls(diary, shop)
    let_the_guard_loop(diary, shop)
    work_on_a_store(diary, shop)
    look_back(diary)
    day = "\n".join(diary.lines[1:]) + "\n"
    if os.environ.get("POKAYOKE_WRITE"):
        DAY.write_text(day, encoding="utf-8")
    assert day == DAY.read_text(encoding="utf-8")
