"""Agents of others that wait for a person, and the person who answers in the page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_lines import ROOT, LineClient, gateway, status

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(180)]
LANGCHAIN = Path(os.environ.get("POKAYOKE_LANGCHAIN_PYTHON", ROOT / ".frameworks" / "langchain" / "bin" / "python"))
LANGGRAPH_AGENT = """
import sys, time
import pokayoke
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pokayoke.adapters.langchain import GuardMiddleware, contracts


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


@tool
def refund(order: str, cents: int) -> str:
    "Refund an order."
    print("refunding", order, flush=True)
    return "refunded " + order


call = {"name": "refund", "args": {"order": "A1", "cents": 1250}, "id": "call_1", "type": "tool_call"}
model = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("A1 is refunded.")]))
guard = pokayoke.Guard(contracts([refund]), store=sys.argv[1], config={"approvals": {"tools": ["refund"]}})
agent = create_agent(model, [refund], middleware=[GuardMiddleware(guard)], checkpointer=InMemorySaver())
thread = {"configurable": {"thread_id": "case-8"}}
waiting = agent.invoke({"messages": [("user", "Refund A1, 1250 cents.")]}, thread)
print("waits", len(waiting["__interrupt__"]), flush=True)
(question,) = guard.approvals.list()
guard.approvals.wait(question.id, 120.0)
print(agent.invoke(Command(resume="answered in the store"), thread)["messages"][-1].text, flush=True)
"""


def approve(person, reason):
    """Answer the one question that waits, in the page."""
    person.page.wait_for_selector("[data-card]", timeout=120_000)
    person.page.fill("[data-card] input[name=reason]", reason)
    person.page.click("button[value=approve]")
    person.page.wait_for_selector(".done")


def test_a_client_behind_the_gateway_goes_on_after_a_yes_in_the_page(visit, store, store_url, tmp_path):
    """The call is pending; a person says yes in the page; the same call then runs, and the audit has the name."""
    config = tmp_path / "pokayoke.yaml"
    config.write_text("approvals:\n  tools: [refund]\n", encoding="utf-8")
    server = [sys.executable, str(ROOT / "tests" / "support" / "refund_mcp_server.py")]
    ann = visit()
    ann.goto("/questions")
    ann.wait_live()
    with LineClient(*gateway("--store", store_url, "--config", str(config), server=server)) as client:
        client.initialize()
        client.request("tools/list")
        call = {"order": "A1", "cents": 1250}
        assert status(client.call("refund", call)) == "pending"
        approve(ann, "checked with the customer")
        result = client.call("refund", call)
    assert (status(result), result["structuredContent"]) == ("ok", {"refunded": "A1"})
    assert [(line.kind, line.by) for line in store.audit()] == [("approved", "Ann")]


def test_an_agent_in_langgraph_goes_on_after_a_yes_in_the_page(visit, store, store_url):
    """Its graph is interrupted; a person says yes in the page; the tool runs once and the model has its answer."""
    if not LANGCHAIN.exists():
        pytest.skip("LangGraph has an environment of its own: make frameworks ARGS=langchain")
    if store_url.startswith("postgresql"):
        pytest.skip("the environment of LangGraph has no driver for PostgreSQL; the agent behind the gateway has")
    ann = visit()
    ann.goto("/questions")
    ann.wait_live()
    command = [str(LANGCHAIN), "-c", LANGGRAPH_AGENT, store_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as agent:
        try:
            approve(ann, "checked with the customer")
            told, _ = agent.communicate(timeout=120)
        finally:
            agent.kill()
    assert told.splitlines()[-3:] == ["waits 1", "refunding A1", "A1 is refunded."], told
    assert [(line.kind, line.by) for line in store.audit()] == [("approved", "Ann")]
