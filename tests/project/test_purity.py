"""The core decides; it does not open, wait, log, draw lots or read a clock."""

import ast

import pytest
from source import CORE, imports, name, tree

# Modules of values and of pure functions. A new entry needs the same property.
ALLOWED = set(
    """
    __future__ abc array base64 bisect collections collections.abc contextlib copy dataclasses decimal difflib enum fractions
    functools hashlib hmac html inspect ipaddress itertools json keyword math numbers operator re string textwrap types typing zlib
    unicodedata urllib.parse jiter jsonschema_rs msgspec orjson rapidfuzz rfc8785
    """.split()  # noqa: SIM905 - one line per kind reads better than forty quotes
)
# Of these only the named values: the rest of the module reads the world.
VALUES_ONLY = {
    "datetime": {"UTC", "date", "datetime", "time", "timedelta", "timezone", "tzinfo"},
    "pathlib": {"PurePath", "PurePosixPath", "PureWindowsPath"},
    "uuid": {"UUID"},
}
# The one exception: pydantic's way of saying what a schema cannot express is a warning, and a typed async
# handler needs an async wrapper. Both happen while a contract is built, and neither waits.
EXCEPTED = {"python_types.py": {"warnings", "AsyncFunctionDef", "Await"}}
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "compile", "breakpoint", "__import__"}
# datetime.now() and its like read the clock through an allowed name.
FORBIDDEN_METHODS = {
    "now",
    "utcnow",
    "today",
    "sleep",
    "getenv",
    "read_text",
    "write_text",
    "read_bytes",
    "write_bytes",
}


def allowed(module: str, names: tuple[str, ...]) -> bool:
    """True for an import the core may have."""
    if module == "pokayoke.errors" or module.split(".")[:2] == ["pokayoke", "core"]:
        return True
    if module in VALUES_ONLY:
        return bool(names) and set(names) <= VALUES_ONLY[module]
    return module in ALLOWED or module.split(".", maxsplit=1)[0] in {"msgspec", "rapidfuzz"}


def lazily_allowed(module: str) -> bool:
    """Import of pydantic: it may be imported where a contract really came from it, never when the core is imported."""
    return module.split(".", maxsplit=1)[0] in {"pydantic", "pydantic_core"}


@pytest.mark.parametrize("path", CORE, ids=name)
def test_a_core_module_imports_only_values(path):
    """A module of the core imports value modules, its siblings and the error tree, nothing else."""
    inside = {
        line
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for _, _, line in imports(node)
    }
    wrong = [
        f"line {line}: {module} {names}"
        for module, names, line in imports(tree(path))
        if not allowed(module, names)
        and not (line in inside and lazily_allowed(module))
        and module not in EXCEPTED.get(path.name, ())
    ]
    assert not wrong


@pytest.mark.parametrize("path", CORE, ids=name)
def test_a_core_module_calls_nothing_that_touches_the_world(path):
    """No call in the core opens a file, prints, evaluates text, reads a clock or reads the environment."""
    wrong = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
                wrong.append(f"line {node.lineno}: {called.id}()")
            if isinstance(called, ast.Attribute) and called.attr in FORBIDDEN_METHODS:
                wrong.append(f"line {node.lineno}: .{called.attr}()")
        kind = type(node).__name__
        if kind in {"AsyncFunctionDef", "Await", "Global"} and kind not in EXCEPTED.get(path.name, ()):
            wrong.append(f"line {node.lineno}: {kind}")
    assert not wrong


@pytest.mark.parametrize("path", CORE, ids=name)
def test_a_core_module_says_what_it_is(path):
    """Every module of the core opens with a docstring."""
    assert ast.get_docstring(tree(path)) or not tree(path).body
