"""Imports point one way, nothing imports in a circle, and importing does nothing."""

import ast
import json
import subprocess
import sys

import pytest
from source import MODULES, imports, module_of, name, tree

# errors <- core <- system, code_pages <- stores, replay <- runtime <- adapters, gateway, dashboard, testing, dropin <- demo <- cli
RANK = {
    "errors": 0,
    "core": 1,
    "system": 2,
    "code_pages": 2,
    "stores": 3,
    "runtime": 4,
    "replay": 3,
    "replies": 3,
    "streams": 3,
    "adapters": 5,
    "gateway": 5,
    "dashboard": 5,
    "testing": 5,
    "dropin": 5,
    "urls": 5,
    "demo": 6,
    "cli": 7,
    "__main__": 8,
}
SIBLINGS_APART = (
    {"stores", "replay", "replies", "streams"},
    {"adapters", "gateway", "dashboard", "testing", "dropin", "urls"},
)


def layer(module: str) -> str:
    """The first component below the package; empty for the front door itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_no_module_imports_from_a_layer_above_it(path):
    """A module imports from its own layer and the layers below; a new top-level module has to take a place."""
    own = layer(module_of(path))
    if not own:
        return
    wrong = []
    for module, names, line in imports(tree(path)):
        if module.split(".")[0] != "pokayoke":
            continue
        for target in [layer(module)] if layer(module) else names:
            other = target if target in RANK else ""  # a public name: the front door
            apart = any({own, other} <= group and own != other for group in SIBLINGS_APART)
            if not other and RANK[own] < RANK["demo"] and own != "testing":
                wrong.append(f"line {line}: imports the front door")
            elif other and (RANK[other] > RANK[own] or apart):
                wrong.append(f"line {line}: {own} imports {other}")
    assert not wrong


def test_no_two_modules_import_each_other_in_a_circle():
    """The graph of imports made at module level has no cycle."""
    known = {module_of(path): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        top = ast.Module(
            body=[n for n in tree(path).body if isinstance(n, ast.Import | ast.ImportFrom)], type_ignores=[]
        )
        targets: set[str] = set()
        for target, names, _ in imports(top):
            below = {f"{target}.{one}" for one in names} & known.keys()
            # `from package import module` needs the module; the package itself may still be loading.
            targets |= below if names and len(below) == len(names) else {target, *below}
        graph[module] = {target for target in targets if target in known} - {module}
    order: dict[str, int] = {}

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in order:
            for target in sorted(graph[module]):
                visit(target, (*trail, module))
            order[module] = len(order)

    for module in sorted(graph):
        visit(module, ())


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Every module that a module needs, directly or through others."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for target in graph[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen


CIRCLES = [
    {"core.contract.contract", "core.contract.importers", "core.contract.limits", "core.contract.rules"},
]
"""The groups that know each other: the rules, the limits and the importers of a contract name its type."""


def test_no_two_modules_know_each_other():
    """There is no circle even if imports in functions and for type checkers count, but for the groups named above.

    A package's `__init__.py` hands names on, so it is no part of a circle.
    """
    known = {module_of(path): path for path in MODULES if path.name != "__init__.py"}
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        found: set[str] = set()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        graph[module] = found & known.keys() - {module}
    reach = {module: reachable(graph, module) for module in graph}
    circles = {frozenset({module, *(other for other in reach[module] if module in reach[other])}) for module in graph}
    found_circles = [{one.removeprefix("pokayoke.") for one in circle} for circle in circles if len(circle) > 1]
    assert found_circles == CIRCLES


PROBE = """
import json, logging, os, socket, sys, threading
touched = []
sys.addaudithook(lambda event, args: touched.append(event) if event.startswith(("socket.", "subprocess.")) else None)
handlers = len(logging.getLogger().handlers)
import pokayoke
for public in pokayoke.__all__:
    getattr(pokayoke, public)
print(json.dumps({
    "modules": sorted(sys.modules),
    "threads": threading.active_count(),
    "handlers": len(logging.getLogger().handlers) - handlers,
    "touched": touched,
}))
"""


@pytest.fixture(scope="module")
def imported() -> dict:
    """What a fresh interpreter holds after `import pokayoke` and a touch of every public name."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "heavy", ["typer", "rich", "ruamel", "pydantic", "apsw", "psycopg", "langchain_core", "mcp", "httpx"]
)
def test_importing_loads_nothing_heavy(imported, heavy):
    """`import pokayoke` does not import what only a command, a config file or an extra needs."""
    assert not [module for module in imported["modules"] if module.split(".")[0] == heavy]


def test_importing_does_nothing(imported):
    """`import pokayoke` starts no thread, opens no socket, starts no process and sets up no logging."""
    assert imported["threads"] == 1
    assert imported["handlers"] == 0
    assert imported["touched"] == []
