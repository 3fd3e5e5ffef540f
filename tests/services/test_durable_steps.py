"""The guide to durable steps: DBOS on SQLite, and Temporal's environment for activities."""

import pytest

from pokayoke.testing import died

PAGE = "durable-steps.md"
RUN = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
SHIP_AND_DIE = """
import os, signal
from dbos import DBOS

def start_and_die(*given, start=DBOS.start_workflow):
    handle = start(*given)
    if {ended}:
        handle.get_result()
    os.kill(os.getpid(), signal.SIGKILL)

DBOS.start_workflow = start_and_die
"""
COUNT = """
from dbos import DBOSClient
print(len(DBOSClient(system_database_url="sqlite:///steps.db").list_workflows(name="ship_order")))
"""
ATTEMPT = """
import dataclasses, sys
from temporalio.testing import ActivityEnvironment
from activities import call_tool
worker = ActivityEnvironment()
worker.info = dataclasses.replace(worker.info, workflow_id="order-O-8", attempt=int(sys.argv[1]))
print(worker.run(call_tool, "call_1", "charge", {"order_id": "O-8", "cents": 1250})["status"])
"""
SEND = """
import asyncio, os, signal
from temporalio.client import Client, Interceptor, OutboundInterceptor
import pokayoke
from temporal_shipping import shipping

class Wire(OutboundInterceptor):
    async def start_workflow(self, input):
        print(input.id, input.id_conflict_policy.name, input.id_reuse_policy.name, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # sent, and the answer is lost

class Wires(Interceptor):
    def intercept_client(self, next):
        return Wire(next)

async def main():
    client = await Client.connect("127.0.0.1:9", lazy=True, interceptors=[Wires()])
    async with pokayoke.Guard([shipping(client)], store="sqlite:///ledger.db").run("chat-7") as run:
        await run.acall(pokayoke.ToolCall("call_1", "ship", {"order_id": "O-7"}))

asyncio.run(main())
"""


def test_a_killed_step_of_dbos_is_replayed(programs):
    """A worker is killed between the charge and the record of its step: DBOS runs the step again, the card knows one."""
    guide = programs(PAGE)
    assert died(guide.run(RUN, "dbos_worker.py", "O-7", end="kill").returncode)
    assert guide.lines("card.txt") == ["O-7 1250"]
    again = guide.run(RUN, "dbos_worker.py", "O-7")
    assert again.stdout.split() == ["replayed"], again.stderr
    assert guide.lines("card.txt") == ["O-7 1250"]


def test_it_is_the_ledger_that_knows(programs):
    """With a ledger that has forgotten the effect, the recovered step charges the card a second time."""
    guide = programs(PAGE)
    assert died(guide.run(RUN, "dbos_worker.py", "O-7", end="kill").returncode)
    guide.forget()
    again = guide.run(RUN, "dbos_worker.py", "O-7")
    assert again.stdout.split() == ["ok"], again.stderr
    assert guide.lines("card.txt") == ["O-7 1250"] * 2


@pytest.mark.parametrize("ended", [False, True])
def test_a_workflow_that_a_tool_starts_is_one_workflow(programs, ended):
    """A tool is killed when it has started a workflow, or when that has ended: asked again, there is one of them."""
    guide = programs(PAGE)
    assert died(guide.run(SHIP_AND_DIE.format(ended=ended) + RUN, "dbos_shipping.py", "O-7").returncode)
    again = guide.run(RUN, "dbos_shipping.py", "O-7")
    assert again.stdout.split() == ["ok"], again.stderr
    assert guide.run(COUNT).stdout.split() == ["1"]
    if ended:  # a step that was killed with its workflow may have booked a parcel already
        assert guide.lines("parcels.txt") == ["O-7"]


@pytest.mark.parametrize("end", ["kill", "raise"])
def test_the_second_attempt_of_an_activity_is_replayed(programs, end):
    """An attempt charges, and dies or raises before Temporal has its result: the second is answered from the ledger."""
    guide = programs(PAGE)
    first = guide.run(ATTEMPT, "1", end=end)
    assert died(first.returncode) if end == "kill" else "crashed at after_settle" in first.stderr, first.stderr
    again = guide.run(ATTEMPT, "2")
    assert again.stdout.split() == ["replayed"], again.stderr
    assert guide.lines("card.txt") == ["O-8 1250"]


def test_temporal_is_sent_the_same_id_again(programs):
    """The client of Temporal sends a start whose answer was lost again, with the id and the policies of the first."""
    guide = programs(PAGE)
    first, again = guide.run(SEND), guide.run(SEND)
    assert died(first.returncode), first.stderr
    assert first.stdout.split()[1:] == ["USE_EXISTING", "REJECT_DUPLICATE"]
    assert again.stdout == first.stdout, again.stderr
