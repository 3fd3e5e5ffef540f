"""Names and places: a stranger guesses what a file and a function do.

The allow-lists may only shrink: an entry that is no longer needed is an error, so it has to be taken out.
"""

import ast
import re
from collections import Counter, defaultdict

from source import MODULES, PACKAGE, module_of, tree

FILES_PER_FOLDER = 20
IRREGULAR = {
    "cut",
    "done",
    "drawn",
    "found",
    "given",
    "gone",
    "heard",
    "held",
    "kept",
    "known",
    "left",
    "lost",
    "made",
    "meant",
    "put",
    "read",
    "said",
    "seen",
    "sent",
    "set",
    "shown",
    "spoken",
    "taken",
    "told",
    "written",
}
VERBS = {"cut", "embed", "feed", "found", "need", "put", "read", "seed", "set", "speed"}
"""Words of that form that are plain verbs, or the field's own nouns."""
PUBLISHED_PARTICIPLES = {
    ("core.context.compact", "compacted"),
    ("core.context.history", "compacted"),
    ("core.context.history", "offloaded"),
    ("core.context.values", "shortened"),
    ("core.ledger.admission", "asked"),
    ("core.ledger.admission", "granted"),
    ("runtime.metrics.opentelemetry", "dropped"),
    ("runtime.run.ticket", "admitted"),
    ("replay.score.counts", "refused"),
    ("testing.tools", "oversized"),
    ("adapters.autogen._agent", "guarded"),
    ("adapters.crewai._model", "guarded"),
    ("adapters.litellm", "mended"),
    ("adapters.openai_agents._runner", "guarded"),
}
"""Functions that users call by a bare participle; they keep their names."""
TWICE: set[str] = {"Reply"}
"""Class names that exist in two files: `testing.Reply` is published, and a model's reply is called nothing else."""


def is_participle(name: str) -> bool:
    """Return whether a function's name is one past participle and nothing else."""
    word = name.strip("_")
    return "_" not in word and word not in VERBS and (word in IRREGULAR or bool(re.fullmatch(r"[a-z]{3,}ed", word)))


def test_no_function_is_named_by_a_bare_participle():
    """A function is a verb with its object, a boolean begins with is_, has_, may_ or can_: `told` is neither."""
    found = {
        (module_of(path).removeprefix("pokayoke."), node.name)
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name)
    }
    assert found == PUBLISHED_PARTICIPLES


def test_a_class_name_exists_once():
    """One thing per word: outside the adapters, which share their names on purpose, no two files define one class."""
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        if "adapters" not in path.relative_to(PACKAGE).parts:
            for node in tree(path).body:
                if isinstance(node, ast.ClassDef):
                    homes[node.name].add(module_of(path))
    assert {name for name, modules in homes.items() if len(modules) > 1} == TWICE


def test_no_folder_is_a_heap():
    """A folder of the package holds at most 20 files beside its `__init__.py`."""
    counts = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {str(folder): count for folder, count in counts.items() if count > FILES_PER_FOLDER} == {}
