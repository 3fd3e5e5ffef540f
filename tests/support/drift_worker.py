"""A program with a guard, as a process of its own: it opens runs, calls a tool in each, and says what it saw.

    python drift_worker.py LOCK STORE PREFIX RUNS ANSWER [CONFIG]

For each line on stdin it opens that many new runs, and reopens all older ones, so that a run's life crosses
changes of the lock. Every run makes one call each time. ANSWER is the total, CONFIG a configuration, both as
JSON. With `-` as LOCK there is none yet, and the tool promises nothing.
"""

import hashlib
import json
import sys

import pokayoke


def hash_of(text):
    """A number below a million, the same in every process."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % 1_000_000


def main(lock, store, prefix, runs, answer, config="{}"):
    """Print one JSON line per call: the run, the version that decided, and how the call ended."""

    def get_order(order_id: str):
        """Look an order up."""
        return {"order_id": order_id, "total": json.loads(answer)}

    tool = get_order
    if lock == "-":
        tool = pokayoke.Contract.from_schema("get_order", {"type": "object"}, effect="read", handler=get_order)
    guard = pokayoke.Guard(
        [tool],
        contracts=None if lock == "-" else lock,
        store=None if store == "-" else store,
        config=json.loads(config),
    )
    print("ready", flush=True)
    lines = []
    for turn, _ in enumerate(sys.stdin, 1):
        for number in range(int(runs) * turn):
            with guard.run(f"{prefix}-{number}") as run:
                outcome = run.call(
                    pokayoke.ToolCall(f"c{turn}", "get_order", {"order_id": f"#W{1_000_000 + hash_of(run.id):07d}"})
                )
                codes = [finding.code for finding in outcome.findings]
                pin = dict(run.state.versions).get("get_order")
                shown = outcome.contract or (outcome.findings[0].data.get("contract") if codes else None)
                lines.append([run.id, pin, shown, outcome.status, codes[:1]])
        print("done", flush=True)
    print("\n".join(json.dumps(line) for line in lines), flush=True)
    guard.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
