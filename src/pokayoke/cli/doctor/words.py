"""What provenance takes each tool for, and the words it goes by."""

from __future__ import annotations

from collections.abc import Iterator

from pokayoke.cli.output import as_json, print_data, print_section
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.plan import contract_labels, untrusted_mode
from pokayoke.core.policy import Policy
from pokayoke.core.provenance import vocabulary

_LISTS = {
    "reads": vocabulary.READ_VERBS,
    **{f"act: {act}": verbs for act, verbs in vocabulary.VERBS.items()},
    **{f"the user asks to {act}": words for act, words in vocabulary.ASKS.items()},
    "names of people and places": vocabulary.WHO_NAMES,
    "names of moments": vocabulary.WHEN_NAMES,
    "names of texts": vocabulary.TEXT_NAMES,
    "names of identifiers": vocabulary.IDENTIFIER_NAMES,
    "names of hosts": vocabulary.HOST_NAMES,
    "names of what is private": vocabulary.PRIVATE_NAMES,
}


def untrusted_notes(policy: Policy, contracts: list[Contract]) -> Iterator[str]:
    """Yield what is only noted, and the tools whose acts no word list knows."""
    noted: list[str] = []
    for contract in contracts:
        labels = contract_labels(contract)
        if labels.reads:
            continue
        mode, _ = untrusted_mode(contract, labels, policy)
        if mode in ("note", "off"):
            noted.append(contract.name)
        if not labels.acts and mode != "off":
            yield (
                f"{contract.name}: no word list knows what {labels.verb or contract.name!r} does to the world, so it "
                "is judged by its values alone, and never by whether the user asked for it."
            )
    if noted:
        shown = ", ".join(noted[:8]) + (f" and {len(noted) - 8} more" if len(noted) > 8 else "")  # noqa: PLR2004 - one line
        yield (
            f"untrusted.mode stops nothing for {shown}: a value that only a tool's output named is recorded and runs. "
            "`ask` or `refuse` stops it."
        )


def print_words(*, json: bool) -> None:
    """Print the word lists, each with its meaning."""
    if json:
        print_data(as_json({name: sorted(words) for name, words in _LISTS.items()}))
        return
    for name, words in _LISTS.items():
        print_section(name, [(", ".join(sorted(words)),)])
