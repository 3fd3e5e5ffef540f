"""Search for the tools that fit a text.

In: the catalogue and a text.
Out: tool names, best first: Okapi BM25 with the usual constants over the words of names, descriptions and parameters.
Never: an effect on a call. The ranking only decides which tools are shown.

Where no whole word is in common, pieces of words are compared: an ideograph is one, and so are a few letters of a long
word or of a script that joins its words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cached_property
from itertools import islice, zip_longest
from typing import Any, Final

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.values import is_object

_K1: Final = 1.2
_B: Final = 0.75
# Three words of a name tell as much as twenty of a description.
_NAME_WEIGHT: Final = 2
_CLOSE_SHARE: Final = 0.9

_WORD = re.compile(r"[^\W_]+")
_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])")
# Scripts without spaces: pairs of characters count as their words.
_UNSPACED_SCRIPT = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0e7f]+")
_IDEOGRAPH = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_PIECE_CHARS: Final = 4
_JOINED_PIECE_CHARS: Final = 2
"""Letters of a piece; fewer in scripts without capitals, where a letter tells more."""
_SENTENCE = re.compile(r"[.!?;\n]+(?:\s|$)|[。！？；]")
# The beginning of a long word counts: it is the same in conversion and convert, in genetics and genetically.
_STEM_CHARS: Final = 5
_SHORT_CHARS: Final = 3
_STOP_WORDS: Final = """
a about all also am an and any are as at be been but by can could did do does for from get give had has have he
help her him his how i if in into is it its just let like me my need no not of on or our out please she show so
some tell than that the their them then there these they this those to too up us want was we were what when
where which while who whom whose why will with would you your
"""
_STOP: Final = frozenset(_STOP_WORDS.split())
_MOST_CHARS: Final = 20_000


class RankedTool(msgspec.Struct, frozen=True, gc=False):
    """One tool of a ranking.

    Attributes:
        name: the name of the tool.
        score: how well it fits; 0 without a common word. Scores of different rankings cannot be compared.
    """

    name: str
    score: float


class WordIndex:
    """The counted words of a catalogue.

    Args:
        contracts: the tools to choose from.
        split: returns the words of a text.
    """

    def __init__(self, contracts: Iterable[Contract], split: Callable[[str], list[str]] | None = None) -> None:
        """Count the words."""
        self._split = split or split_words
        self._contracts = tuple(contracts)
        self._names: list[str] = []
        self._postings: dict[str, list[tuple[int, float]]] = {}
        counts: list[Counter[str]] = []
        for contract in self._contracts:
            self._names.append(contract.name)
            counts.append(Counter(_contract_words(contract, self._split)))
        lengths = [count.total() for count in counts]
        usual = (sum(lengths) / len(lengths) if lengths else 0.0) or 1.0
        for number, count in enumerate(counts):
            norm = _K1 * (1 - _B + _B * lengths[number] / usual)
            for word, times in count.items():
                self._postings.setdefault(word, []).append((number, times * (_K1 + 1) / (times + norm)))

    @cached_property
    def pieces(self) -> WordIndex:
        """The same catalogue by the pieces of its words, counted on first use."""
        return WordIndex(self._contracts, _split_pieces)

    def choose_tools(self, text: str, most: int, *, only: Container[str] | None = None) -> list[RankedTool]:
        """Return tools for a text that may have several requests: the best for the whole, and for each sentence.

        Args:
            text: a text of the user or the model; only its last 20,000 characters count.
            most: the highest number of results.
            only: the names that may be returned; None means all.

        Returns:
            The first of each ranking, then the second of each, and so on; each tool once. If no whole word is in
            common, the tools that share pieces of words.
        """
        text = text[-_MOST_CHARS:]
        parts = [part for part in _SENTENCE.split(text) if part.strip()]
        rankings = [self.rank_tools(part, most, only=only) for part in ([text, *parts] if len(parts) > 1 else [text])]
        found: dict[str, RankedTool] = {}
        for place in zip_longest(*rankings):
            for one in place:
                if one is not None:
                    found.setdefault(one.name, one)
        return list(found.values())[:most] or self.pieces.rank_tools(text, most, only=only)

    def find_tools(self, text: str, most: int, *, only: Container[str] | None = None) -> list[RankedTool]:
        """Return what `rank_tools` does, by the pieces of words if no whole word is in common."""
        return self.rank_tools(text, most, only=only) or self.pieces.rank_tools(text, most, only=only)

    def rank_tools(self, text: str, most: int, *, only: Container[str] | None = None) -> list[RankedTool]:
        """Return the tools that fit a text best. Arguments as in `choose_tools`.

        Returns:
            The best first; of equal ones, the first in the catalogue. Tools without a common word are left out.
        """
        scores: dict[int, float] = {}
        for word in dict.fromkeys(self._split(text[-_MOST_CHARS:])):
            found = self._postings.get(word, ())
            rarity = math.log(1 + (len(self._names) - len(found) + 0.5) / (len(found) + 0.5))
            for number, weight in found:
                scores[number] = scores.get(number, 0.0) + rarity * weight
        best = sorted(scores, key=lambda number: (-scores[number], number))
        allowed = (number for number in best if only is None or self._names[number] in only)
        return [RankedTool(self._names[number], scores[number]) for number in islice(allowed, most)]


def close_candidates(ranked: list[RankedTool]) -> tuple[str, ...]:
    """Return the names that fit about as well as the best one; () if the best is alone."""
    best = max((one.score for one in ranked), default=0.0)
    near = tuple(one.name for one in ranked if one.score >= _CLOSE_SHARE * best)
    return near if len(near) > 1 else ()


def split_words(text: str) -> list[str]:
    """Return the stemmed words of a text, without stop words."""
    found: list[str] = []
    for word in _WORD.findall(_CASE_BOUNDARY.sub(" ", text)):
        if _UNSPACED_SCRIPT.search(word):
            for run in _UNSPACED_SCRIPT.findall(word):
                found.extend(run[at : at + 2] for at in range(max(1, len(run) - 1)))
            continue
        lowered = word.lower()
        if lowered not in _STOP:
            found.append(_stem_word(lowered))
    return found


def _split_pieces(text: str) -> list[str]:
    """Return the ideographs of a text, and the runs of few letters of its other words, without stop words."""
    found: list[str] = []
    for word in _WORD.findall(_CASE_BOUNDARY.sub(" ", text)):
        lowered = word.lower()
        if lowered in _STOP or word.isdecimal():
            continue
        ideographs = _IDEOGRAPH.findall(word)
        size = _PIECE_CHARS if lowered != word.upper() else _JOINED_PIECE_CHARS
        runs = [lowered[at : at + size] for at in range(len(lowered) - size + 1)]
        found.extend(ideographs or runs)
    return found


def _stem_word(word: str) -> str:
    if len(word) > _STEM_CHARS:
        return word[:_STEM_CHARS]
    return word.removesuffix("s") if len(word) > _SHORT_CHARS else word


def _contract_words(contract: Contract, split: Callable[[str], list[str]]) -> list[str]:
    return [
        *split(contract.name) * _NAME_WEIGHT,
        *split(contract.description or ""),
        *(word for text in _parameter_texts(contract.model_schema) for word in split(text)),
    ]


def _parameter_texts(schema: Mapping[str, Any]) -> Iterable[str]:
    """Yield the names and descriptions of the parameters."""
    declared = schema.get("properties")
    if not is_object(declared):
        return
    for name, about in declared.items():
        yield name
        if is_object(about) and isinstance(text := about.get("description"), str):
            yield text
