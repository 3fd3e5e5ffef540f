"""Write docs/reference from the code: API, configuration, codes, repairs, commands; and the schema for editors.

`python -m tools.reference` writes the pages; `--check` writes nothing and exits 1 if one is out of date.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import pokayoke
from pokayoke import replies, streams, urls
from pokayoke.core import policy
from pokayoke.core.finding_codes import CODES_BY_ROOM
from pokayoke.core.intake import REFUSALS, REPAIRS
from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.config.config import SCHEMA_FILE

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "reference"
NOTE = "<!-- Generated from the code by `make reference`. Edit the docstrings instead. -->\n\n"


def cell(text: object) -> str:
    """Text that fits into one cell of a table."""
    return re.sub(r"\s+", " ", str(text)).replace("|", "\\|").strip()


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


# ---------------------------------------------------------------- finding codes


def findings_page() -> str:
    """The page of finding codes: one section per room."""
    text = f"# Finding codes\n\n{NOTE}A code is stable: programs may compare it.\n"
    for room, codes in CODES_BY_ROOM.items():
        rows: list[tuple[str, ...]] = [(f"`{code}`", row.meaning) for code, row in sorted(codes.items())]
        text += f"\n## {room}\n\n{table(('code', 'meaning'), rows)}"
    return text


ROOM_PAGES: dict[str, tuple[str, ...]] = {
    "intake": ("concepts/readings",),
    "catalogue": ("concepts/path-of-a-call",),
    "correct": ("concepts/corrections", "guides/correct-arguments"),
    "ledger": ("concepts/at-most-once", "guides/safe-writes"),
    "output": ("guides/make-outputs-safe",),
    "files": ("guides/paths",),
    "state": ("concepts/ladder-and-latch",),
}
"""Where a room is explained; of every other one, on the page about the path of a call."""


def finding_pages() -> dict[str, str]:
    """Return a page for each finding code: what it means, what follows, and the pages that show it."""
    texts = {
        str(page.relative_to(ROOT / "docs").with_suffix("")): page.read_text(encoding="utf-8")
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.parent.name not in ("decisions", "reference")
    }
    pages: dict[str, str] = {}
    for room, codes in CODES_BY_ROOM.items():
        for code, row in codes.items():
            facts = [f"A call that is refused with it has the stop reason `{row.stop_reason}`."]
            if row.grade is not None:
                facts.append(f"A reading with this reason has the grade `{row.grade}`.")
            if row.counts_as:
                facts.append(f"The loop guard counts it as `{row.counts_as}`.")
            if row.is_lasting:
                facts.append("The same call would be refused again: it has to change first.")
            if row.is_free_once:
                facts.append("Its first refusal in a turn is no bad round.")
            shown = [page for page, text in texts.items() if re.search(rf"\b{code}\b", text)]
            more = dict.fromkeys([*ROOM_PAGES.get(room, ("concepts/path-of-a-call",)), *shown])
            links = "".join(f"- [{texts[page].split(chr(10), 1)[0].lstrip('# ')}](../../{page}.md)\n" for page in more)
            pages[code] = (
                f"# {code}\n\n{NOTE}{row.meaning[0].upper()}{row.meaning[1:]}.\n\n"
                f"It is found in the room `{room}`.\n{''.join(f'{fact}{chr(10)}' for fact in facts)}\n"
                f"## Where it is explained and shown\n\n{links}- [All finding codes](../findings.md)\n"
            )
    return pages


# ---------------------------------------------------------------- readings


def readings_page() -> str:
    """The page of what a reading may name: repairs, and reasons why a text was refused."""
    repairs: list[tuple[str, ...]] = [(f"`{name}`", done) for name, done in sorted(REPAIRS.items())]
    reasons: list[tuple[str, ...]] = [(f"`{name}`", grade, seen) for name, (grade, seen) in sorted(REFUSALS.items())]
    return (
        f"# Repairs and reasons of readings\n\n{NOTE}"
        "A name is stable: programs may compare it.\n\n## Repairs\n\n"
        "What stands in `reading.repairs`, `outcome.repairs` and the trace. "
        "A repair never changes what a text says.\n\n"
        f"{table(('repair', 'what was done'), repairs)}\n## Reasons\n\n"
        "What stands in `reading.reason`, and as the code of the finding.\n\n"
        f"{table(('reason', 'grade', 'what was seen'), reasons)}"
    )


# ---------------------------------------------------------------- configuration


def field_notes(struct: type) -> dict[str, str]:
    """The documentation strings that stand under the fields of a class."""
    body = ast.parse(inspect.getsource(struct)).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            notes[field.target.id] = inspect.cleandoc(str(after.value.value))
    return notes


def type_text(kind: Any) -> str:
    """A type as a reader of a configuration file needs it."""
    metas = [m for m in getattr(kind, "__metadata__", ()) if isinstance(m, msgspec.Meta)]
    if metas:
        limits = [f"{sign} {getattr(m, name)}" for m in metas for name, sign in SIGNS if getattr(m, name) is not None]
        return f"{type_text(kind.__origin__)}, {' and '.join(limits)}"
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    if origin is dict:
        return f"mapping of {type_text(arguments[0])} to {type_text(arguments[1])}"
    if arguments:
        return " or ".join("nothing" if one is type(None) else type_text(one) for one in arguments)
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(kind, f"`{kind.__name__}`")


SIGNS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))


def option_rows(struct: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, str, str, str]]:
    """One row per key below a structure: key, type, default, meaning."""
    notes = field_notes(struct)
    hints = typing.get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        kind, key = hints[field.name], f"{path}{field.encode_name}"
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from option_rows(kind, f"{key}.")
            continue
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default  # type: ignore[operator]
        shown = msgspec.json.encode(default).decode() if default is not None else "none"
        yield f"`{key}`", type_text(kind), f"`{shown}`", notes.get(field.name, "")


def config_page() -> str:
    """The page of configuration keys, from the policy structures."""
    intro = (
        "Every key of `pokayoke.yaml`, its default, and what it means.\n"
        "No file means every default; unknown and duplicate keys are errors.\n\n"
    )
    body = table(("key", "type", "default", "meaning"), list(option_rows(policy.Policy)))
    extra = ""
    for struct in (policy.LimitPolicy,):
        rows = list(option_rows(struct))
        extra += f"\n## {struct.__name__}\n\n{inspect.getdoc(struct)}\n\n"
        extra += table(("key", "type", "default", "meaning"), rows)
    return f"# Configuration\n\n{NOTE}{intro}{body}{extra}"


def policy_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the configuration file, with a description of every key."""
    schema = msgspec.json.schema(policy.Policy)
    for name, struct in schema["$defs"].items():
        for field, note in field_notes(getattr(policy, name)).items():
            struct["properties"][field] = {**struct["properties"][field], "description": " ".join(note.split())}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pokayoke configuration",
        **schema,
    }


def schema_text() -> str:
    """The content of `config.schema.json`."""
    return msgspec.json.format(msgspec.json.encode(policy_schema(), order="sorted"), indent=2).decode() + "\n"


# ---------------------------------------------------------------- public API


def signature(found: Any) -> str:
    """The signature of something callable, without addresses of objects."""
    try:
        text = str(inspect.signature(found))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations that were postponed
    text = re.sub(r"\((?:self|cls)(?:, )?", "(", text)
    text = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"<\1>", text)
    text = re.sub(r"<function ([\w.]+) at 0x[0-9a-f]+>", r"\1", text)
    return re.sub(r"\b(?:collections\.abc|typing|pokayoke(?:\.\w+)+)\.", "", text)


def doc(found: Any) -> str:
    """A docstring whose Google sections became Markdown."""
    text = inspect.getdoc(found) or ""
    lines: list[str] = []
    for line in text.splitlines():
        section = re.fullmatch(r"(Args|Returns|Raises|Attributes|Yields|Example|Examples|Note):", line)
        entry = re.match(r"^ {4}([\w*, ]+(?: \([^)]*\))?): (.*)$", line)
        if section:
            lines += ["", f"**{section.group(1)}**", ""]
        elif entry:
            lines.append(f"- `{entry.group(1)}`: {entry.group(2)}")
        else:
            lines.append(re.sub(r"^ {4,}", "  ", line))
    return "\n".join(lines).strip()


def members(found: type) -> Iterator[tuple[str, Any]]:
    """The documented public methods and properties that a class defines itself."""
    for base in reversed(found.__mro__[:-1]):
        if base.__module__.startswith("pokayoke"):
            for name, member in vars(base).items():
                if not name.startswith("_") and getattr(found, name, None) is not None:
                    yield name, member


def shapes(found: type) -> dict[str, str]:
    """What each field that can be given takes, and its default; of those that are made nothing."""
    written, known = inspect.get_annotations(found), vars(sys.modules[found.__module__])
    shown: dict[str, str] = {}
    for one in inspect.signature(found).parameters.values():
        named = known.get(str(written[one.name]))
        kind = type_text(named) if typing.get_origin(named) is typing.Literal else f"`{written[one.name]}`"
        default = "" if one.default is one.empty or "<" in repr(one.default) else f"; default `{one.default!r}`"
        shown[one.name] = f" ({kind}{default})"
    return shown


def is_record(found: type) -> bool:
    """Whether a class is made of its fields, so that its signature is what it takes."""
    return dataclasses.is_dataclass(found) or issubclass(found, msgspec.Struct)


def class_entry(name: str, found: type) -> str:
    """The entry of a class."""
    kind = "exception" if issubclass(found, BaseException) else "class"
    text = f"## {name}\n\n*{kind}*\n\n"
    documented = "Args" in (found.__doc__ or "")
    if documented and is_record(found):
        text += f"```text\n{name}{signature(found)}\n```\n\n"
    text += f"{doc(found)}\n"
    notes = field_notes(found) if not documented and not issubclass(found, enum.Enum) else {}
    if notes:
        given = shapes(found) if is_record(found) else {}
        text += "\n" + "".join(f"- `{field}`{given.get(field, '')}: {cell(note)}\n" for field, note in notes.items())
    for member, value in dict(members(found)).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(value, property):
            text += f"\n### {name}.{member}\n\n{doc(value)}\n"
        elif inspect.isfunction(function):
            text += f"\n### {name}.{member}\n\n```text\n{member}{signature(function)}\n```\n\n{doc(function)}\n"
    return text


def entry(name: str, found: Any) -> str:
    """The entry of one public name."""
    if inspect.isclass(found):
        return class_entry(name, found)
    if inspect.ismodule(found):
        return f"## {name}\n\n*module*\n\n{doc(found)}\n"
    if callable(found) and typing.get_origin(found) is None:
        return f"## {name}\n\n```text\n{name}{signature(found)}\n```\n\n{doc(found)}\n"
    values = ", ".join(f"`{one}`" for one in typing.get_args(found)) or f"`{found!r}`"
    return f"## {name}\n\n*values*: {values}\n"


REACHED: dict[str, Any] = {
    "Guard.approvals": Approvals,
    **{f"replies.{name}": getattr(replies, name) for name in replies.__all__},
    **{f"streams.{name}": getattr(streams, name) for name in streams.__all__},
    **{f"urls.{name}": getattr(urls, name) for name in urls.__all__},
}
"""What is an attribute of something else, or has a module of its own."""


def api_page() -> str:
    """The page of the public API, from `pokayoke.__all__` and the modules beside it."""
    found = {**{name: getattr(pokayoke, name) for name in pokayoke.__all__}, **REACHED}
    entries = "\n".join(entry(name, found[name]) for name in sorted(found, key=str.lower))
    return f"# API\n\n{NOTE}Everything that can be imported from `pokayoke`, and its modules for hosts.\n\n{entries}"


# ---------------------------------------------------------------- commands


def help_text(text: str) -> str:
    """The help of a command, with its example calls as blocks."""
    paragraphs = [part.replace("\b\n", "").strip("\n") for part in inspect.cleandoc(text).split("\n\n")]
    shown = [f"```sh\n{part}\n```" if part.startswith("pokayoke ") else part for part in paragraphs]
    return "\n\n".join(shown).replace("\n```\n\n```sh\n", "\n")


def command_text(command: Any, name: str) -> Iterator[str]:
    """The help of one command and of those below it."""
    yield f"## {name}\n\n{help_text(command.help or '')}\n"
    rows: list[tuple[str, ...]] = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        label = names if names.startswith("-") else (parameter.metavar or names.upper())
        default = parameter.default if isinstance(parameter.default, str | int | float) else ""
        rows.append((f"`{label}`", str(default), getattr(parameter, "help", None) or ""))
    if rows:
        yield table(("argument", "default", "meaning"), rows)
    for below in sorted(getattr(command, "commands", {}).values(), key=lambda one: one.name):
        yield from command_text(below, f"{name} {below.name}")


def cli_page() -> str:
    """The page of commands, from the command line itself."""
    import typer.main  # noqa: PLC0415 - only this page needs it

    from pokayoke.cli.app import build_app  # noqa: PLC0415 - only this page needs it

    text = "\n".join(command_text(typer.main.get_command(build_app()), "pokayoke"))
    return f"# Commands\n\n{NOTE}{text}"


PAGES: dict[str, Callable[[], str]] = {
    "api.md": api_page,
    "cli.md": cli_page,
    "config.md": config_page,
    "findings.md": findings_page,
    "readings.md": readings_page,
}


def rendered(page: str) -> str:
    """Return the text of a page as the code has it now."""
    return re.sub(r"\n{3,}", "\n\n", PAGES[page]()).rstrip() + "\n"


def main() -> int:
    """Write or check the files; 1 if one is out of date."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    check = parser.parse_args().check
    TARGET.mkdir(parents=True, exist_ok=True)
    stale = 0
    wanted = {TARGET / name: rendered(name) for name in PAGES}
    for file, text in {**wanted, SCHEMA_FILE: schema_text()}.items():
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        shown = file.relative_to(ROOT)
        if check:
            print(f"{shown} is out of date: run make reference", file=sys.stderr)
        else:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {shown}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
