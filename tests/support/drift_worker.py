"""A program with a guard, as a process of its own: it opens runs, calls a tool in each, and says what it saw.

    python drift_worker.py LOCK STORE PREFIX RUNS ANSWER

For each line on stdin it opens that many new runs, and reopens all older ones, so that a run's life crosses
changes of the lock. Every run makes one call each time.
"""

import json
import sys

import pokayoke


def main(lock, store, prefix, runs, answer):
    """Print one JSON line per call: the run, the version that decided, and how the call ended."""

    def get_order(order_id: str):
        """Look an order up."""
        return {"order_id": order_id, "total": json.loads(answer)}

    guard = pokayoke.Guard([get_order], contracts=lock, store=store)
    print("ready", flush=True)
    lines = []
    for turn, _ in enumerate(sys.stdin, 1):
        for number in range(int(runs) * turn):
            with guard.run(f"{prefix}-{number}") as run:
                outcome = run.call(pokayoke.ToolCall(f"c{turn}", "get_order", {"order_id": "A1"}))
                codes = [finding.code for finding in outcome.findings]
                pin = dict(run.state.versions).get("get_order")
                shown = outcome.contract or (outcome.findings[0].data.get("contract") if codes else None)
                lines.append([run.id, pin, shown, outcome.status, codes[:1]])
        print("done", flush=True)
    print("\n".join(json.dumps(line) for line in lines), flush=True)
    guard.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
