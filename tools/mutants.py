"""Removes one condition after the other and checks that a test fails.

`python -m tools.mutants [TARGET...] [--every N] [--list]`: every condition of the pure rules (an `if` that
always or never holds, one operand less in an `and` or an `or`, a comparison one step off) and of the SQL (a
WHERE condition that always holds) makes one changed program. The tests of its target must fail.
Exit code 1 if a mutant survives that `EQUIVALENT` does not explain.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.util
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
_LONGEST = 120.0
"""Seconds after which a hanging mutant counts as noticed."""

_STORES = (
    "tests/stores/sql/test_statements.py",
    "tests/stores/test_store.py",
    "tests/stores/test_queries.py",
    "-k",
    "not postgres",
)
TARGETS: dict[str, tuple[str, ...]] = {
    "pokayoke.core.ledger.transitions": ("tests/core/ledger/test_transitions.py",),
    "pokayoke.core.ledger.admission": (
        "tests/core/ledger/test_admission.py",
        "tests/core/ledger/test_approval_answer.py",
        "tests/core/ledger/test_transitions.py",
    ),
    "pokayoke.core.state.kill_switch": ("tests/core/state/test_kill_switch.py", "-k", "not chance"),
    "pokayoke.core.flow.repetition": ("tests/core/flow/test_repetition.py",),
    "pokayoke.core.flow.resolve": ("tests/core/flow/test_resolve.py", "tests/runtime/driver/test_doubts.py"),
    "pokayoke.stores.operations": (
        "tests/stores/test_operations.py",
        "tests/stores/test_store.py",
        "tests/runtime/driver/test_doubts.py",
        "-k",
        "not postgres",
    ),
    "pokayoke.stores.sql.statements": _STORES,
    "pokayoke.stores.sql.queries": _STORES,
}
"""Modules with rules, and the tests that must fail when a rule is missing."""

_ADMISSION, _SWITCH = "pokayoke.core.ledger.admission", "pokayoke.core.state.kill_switch"
_STATEMENTS = "pokayoke.stores.sql.statements"
EQUIVALENT: dict[tuple[str, str], str] = {
    (_ADMISSION, "no 1. operand `wish is not None`"): "only a claim reads a record; the type checker wants it said",
    (
        _ADMISSION,
        "no 2. operand `record is not None`",
    ): "a first claim is decided again below; this saves the first time",
    (_ADMISSION, "no 2. operand `request.charges`"): "no charge exceeds nothing; this saves the counting",
    (_ADMISSION, "no 2. operand `held.switches`"): "no switch stops nothing; this saves the looking",
    (_ADMISSION, "True for `held.epoch`"): "epoch 0 is what a wish has anyway; this saves a copy",
    (_SWITCH, "False for `len(young) == len(rate.recent)`"): "the same entries again; this saves a copy",
    (
        _STATEMENTS,
        "True for `need.run is not None`",
    ): "a shared lock of a run that does not exist: nothing waits for it",
    (
        _STATEMENTS,
        "True for `need.board != 'none'`",
    ): "what is read and not needed is not looked at; this saves the reading",
    (_STATEMENTS, "True for `need.board == 'all'`"): "as above",
    (_STATEMENTS, "no 2. operand `''`"): "one of both is there where this is asked; the type checker wants it said",
    (_STATEMENTS, "no 1. filter `name != 'fingerprint'`"): "SQLite takes a column twice; with PostgreSQL nothing works",
    (_ADMISSION, "True for `limit.field`"): "no argument is called None; the type checker wants it said",
    (_ADMISSION, "no 1. operand `limit.field is None`"): "as above",
    (_ADMISSION, "one step off in `total > allowed`"): "a sum that is the limit is as close to it as can be",
}
"""Mutants without an observable difference: by target and description, with the reason."""

_STEP = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_WHERE = re.compile(r"(?:\b[a-z_.]+|COALESCE\([^)]*\)) (?:=|<>|<|>|<=|>=) (?:\?|'[a-z_]+')|NOT EXISTS \(.*\)")


class Mutant(NamedTuple):
    """One changed program: the change, and its source."""

    target: str
    what: str
    source: str

    @property
    def name(self) -> tuple[str, str]:
        """Target and description without the line, which changes with every edit."""
        return self.target, self.what.partition(": ")[2]


def mutants(target: str) -> Iterator[Mutant]:
    """Yield every program that lacks one condition of a module, in the order of its lines."""
    text = source_of(target)
    count = len(list(_changes(ast.parse(text))))
    for number in range(count):
        tree = ast.parse(text)
        changes = list(_changes(tree))
        what, change = changes[number]
        change()
        yield Mutant(target, what, ast.unparse(ast.fix_missing_locations(tree)))


def source_of(target: str) -> str:
    """Return the unchanged source of a module."""
    return _path(target).read_text(encoding="utf-8")


def is_surviving(mutant: Mutant, tests: Sequence[str]) -> bool:
    """Run tests against a mutant in a process of their own. Returns True if none of them fails."""
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = _run(mutant, tests)
        finally:
            os._exit(status)
    deadline = time.monotonic() + _LONGEST
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(done[1]) == 0


def surviving_mutants(target: str, *, every: int = 1) -> list[Mutant]:
    """Return the mutants of a target that survive and are not explained.

    Args:
        target: a key of `TARGETS`.
        every: 1 tries all of them, n every n-th.
    """
    chosen = list(mutants(target))[::every]
    tests = TARGETS[target]
    if not is_surviving(Mutant(target, "as it is", source_of(target)), tests):
        raise SystemExit(f"{target}: its tests fail as it is, so they cannot tell a mutant")
    return [m for m in chosen if m.name not in EQUIVALENT and is_surviving(m, tests)]


def _run(mutant: Mutant, tests: Sequence[str]) -> int:
    import pytest  # noqa: PLC0415 - in the child only

    class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002 - the finder's interface
            if name != mutant.target:
                return None
            return importlib.util.spec_from_loader(name, self, origin=str(_path(name)))

        def exec_module(self, module: ModuleType) -> None:
            exec(compile(mutant.source, str(_path(mutant.target)), "exec"), module.__dict__)  # noqa: S102 - our own source

    sys.meta_path.insert(0, Changed())
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *tests]))


def _path(target: str) -> Path:
    return SOURCES / Path(*target.split(".")).with_suffix(".py")


def _changes(tree: ast.Module) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the possible changes to a tree, each with the function that makes it."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            for value in (True, False):
                what = f"{node.lineno}: {value} for `{ast.unparse(node.test)}`"
                yield what, _setter(node, "test", ast.Constant(value))
        elif isinstance(node, ast.BoolOp):
            yield from _without_one(node, "values", node.values, "operand")
        elif isinstance(node, ast.comprehension):
            yield from _without_one(node, "ifs", node.ifs, "filter")
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _STEP:
            what = f"{node.lineno}: one step off in `{ast.unparse(node)}`"
            yield what, _setter(node, "ops", [_STEP[type(node.ops[0])]()])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_sql(node.value):
            for found in _WHERE.finditer(node.value):
                always = f"{node.value[: found.start()]}({found[0]} OR 1 = 1){node.value[found.end() :]}"
                yield f"{node.lineno}: SQL without `{found[0]}`", _setter(node, "value", always)


def _without_one(
    node: ast.AST, field: str, parts: list[ast.expr], name: str
) -> Iterator[tuple[str, Callable[[], None]]]:
    for place, part in enumerate(parts):
        rest = [other for other in parts if other is not part]
        yield f"{part.lineno}: no {place + 1}. {name} `{ast.unparse(part)}`", _setter(node, field, rest)


def _is_sql(text: str) -> bool:
    return "WHERE " in text or text.endswith((" = ?", " < ?", " > ?", " >= ?", "'"))


def _setter(node: ast.AST, field: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, field, value)


def main(argv: Sequence[str] | None = None) -> int:
    """Try the mutants of the named targets (all if none is) and print the survivors."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of: {', '.join(TARGETS)}")
    parser.add_argument("--every", type=int, default=1, help="try every n-th only")
    parser.add_argument("--list", action="store_true", help="tell what would be tried")
    options = parser.parse_args(argv)
    alive = 0
    for target in options.targets or TARGETS:
        chosen = list(mutants(target))[:: options.every]
        if options.list:
            print(*(f"{m.target}:{m.what}" for m in chosen), sep="\n")
            continue
        lives = surviving_mutants(target, every=options.every)
        alive += len(lives)
        print(
            f"{target}: {len(chosen)} mutants, {len(lives)} alive",
            *(f"  {m.what}" for m in lives),
            sep="\n",
            flush=True,
        )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
