"""A long trial: 100,000 effects and 5,000 SIGKILLs over real processes, once, with its table: `make soak`.

The keys are divided among both stores and the ways in which a contract settles doubts. PostgreSQL runs as a
server of its own, which is restarted in immediate mode, twice in each part. Finished parts are kept in the state
file: an interrupted soak goes on with the next part, unless the code has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SUPPORT = ROOT / "tests" / "support"
CONFIGURATIONS = ("human", "own_transaction", "downstream_key", "lookup_executor_dead", "lookup_settled")
RESTARTS = 2
DISTURBED = {
    "workers": 6,
    "wanted_by": 2,
    "block": 16,
    "timeout": 0.25,
    "margin": 0.25,
    "pace": 0.002,
    "hang": 0.04,
    "every": 0.04,
    "limit": 7_200.0,
}


def parts(keys: int, kills: int, stores: list[str]) -> list[dict[str, Any]]:
    """Return the trials of a soak: every store with every configuration, equal shares of keys and kills."""
    count = len(stores) * len(CONFIGURATIONS)
    return [
        {
            **DISTURBED,
            "store": store,
            "configuration": configuration,
            "keys": -(-keys // count),
            "kills": -(-kills // count),
            "restarts": RESTARTS if store == "cluster" else 0,
        }
        for store in stores
        for configuration in CONFIGURATIONS
    ]


def digest_of_code() -> str:
    """Return a digest of the package: results of other code say nothing about this one."""
    files = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "src").rglob("*.sql"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class Talk:
    """Prints the progress of a part to stderr, every few seconds."""

    def __init__(self, name: str, part: dict[str, Any]) -> None:
        """Start with a part."""
        self._name, self._part = name, part
        self._begun = self._told = time.monotonic()

    def __call__(self, race: Any, share: float) -> None:
        """Print it, if the last message is old enough."""
        now = time.monotonic()
        if now - self._told < 5.0:  # noqa: PLR2004 - seconds
            return
        self._told = now
        rate = share * self._part["keys"] / (now - self._begun)
        print(
            f"{self._name}  {share:4.0%}  {race.kills} kills  {race.restarts} restarts  {rate:.0f} keys/s",
            file=sys.stderr,
            flush=True,
        )


def main() -> int:
    """Run the remaining parts and print the table. Returns 0, or 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000, help="different effects in all")
    parser.add_argument("--kills", type=int, default=5_000, help="SIGKILLs in all")
    parser.add_argument("--stores", nargs="+", default=["sqlite", "cluster"], help="of sqlite, postgres, cluster")
    parser.add_argument(
        "--state", type=Path, default=Path(".soak.jsonl"), help="where finished parts are kept meanwhile"
    )
    given = parser.parse_args()
    sys.path.insert(0, str(SUPPORT))
    import effects_race  # noqa: PLC0415 - a module of the tests

    code = digest_of_code()
    kept = given.state.read_text().splitlines() if given.state.exists() else []
    done = [one for one in map(json.loads, kept) if one["code"] == code]
    wanted = parts(given.keys, given.kills, given.stores)
    for number, part in enumerate(wanted, 1):
        if any(one["part"] == part for one in done):
            continue
        talk = Talk(f"[{number}/{len(wanted)}] {part['store']} {part['configuration']}", part)
        found = effects_race.run(talk, **part)
        done.append({"code": code, "part": part, **found})
        with given.state.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    chosen = [one for one in done if one["part"] in wanted]
    figures = [one["figures"] for one in chosen]
    total = {"configuration": "all"}
    total |= {
        name: round(sum(row[name] for row in figures), 1)
        for name in effects_race.COLUMNS
        if _is_summable(figures, name)
    }
    print(effects_race.table([*figures, total]))
    for one in chosen:
        print(*one["violations"], sep="\n", file=sys.stderr, end="")
    given.state.unlink(missing_ok=True)  # the next soak starts anew
    return 1 if total["violations"] else 0


def _is_summable(figures: list[dict[str, Any]], name: str) -> bool:
    return name != "workers" and all(isinstance(row[name], int | float) for row in figures)


if __name__ == "__main__":
    sys.exit(main())
