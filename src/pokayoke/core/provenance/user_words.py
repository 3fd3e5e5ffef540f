"""What the user has said: which values stand in it, and which acts it asks for.

In: the texts of the user's turns.
Out: answers about values, acts, names and superlatives.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Literal

from pokayoke.core.provenance.forms import (
    close_up,
    fold,
    is_grouped,
    normal_form,
    read_days,
    read_numbers,
    read_times,
)
from pokayoke.core.provenance.vocabulary import (
    ASKS,
    EXTREMES,
    NEGATIONS,
    NOISE,
    ORIGINS,
    PLURAL,
    TIME_UNITS,
    Act,
)

_WORD: Final = re.compile(r"[^\W_]+(?:['’.@+_-][^\W_]+)*")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|[。！？;\n]+")
_CUE: Final = re.compile(r"(?:\b(?:id|no|nr|number|num|nummer|numéro|número)\.?|#|№)\s*$")
_SMALL: Final = 1_000  # a number below it is an identity only behind a cue
_LEAST_NAME: Final = 100  # a number below it names nothing by itself
_LEAST_LETTERS: Final = 3  # of a name
_WHOLE_WORD: Final = 3  # letters; a longer beginning stands for all words that begin with it


def find_words(folded: str) -> list[str]:
    """Return the words of a folded text; an address or a number with its signs is one."""
    return _WORD.findall(folded)


class UserWords:
    """All that the user has said so far.

    Args:
        text: the turns, joined by blank lines.
    """

    def __init__(self, text: str) -> None:
        """Fold the text and cut it into sentences."""
        self.folded = fold(text)
        self.sentences = tuple(one for one in map(fold, _SENTENCE.split(text)) if one)
        self.text = text
        self._asked: dict[Act, bool] = {}

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word, folded."""
        return frozenset(_WORD.findall(self.folded))

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Every number that a spelling in the words may mean."""
        spelled = re.findall(r"(?<![\w.,])[+-]?\d+(?:[.,' ]\d{3})*(?:[.,]\d+)?(?!\d)", self.folded)
        return frozenset(form for text in spelled for form in read_numbers(text.strip()))

    @cached_property
    def days(self) -> frozenset[tuple[int | None, int, int]]:
        """Every date: year or None, month, day."""
        return frozenset(read_days(self.folded))

    @cached_property
    def times(self) -> frozenset[str]:
        """Every time of day as `hh:mm`."""
        return frozenset(read_times(self.folded))

    @cached_property
    def is_plural(self) -> bool:
        """Whether a word such as "all" or "each" stands in them."""
        return not PLURAL.isdisjoint(self.words) or any(word in self.folded for word in PLURAL if not word.isascii())

    @cached_property
    def names(self) -> frozenset[str]:
        """Capitalised words inside a sentence, and words with a digit; a small number is no name."""
        found: set[str] = set()
        for sentence in _SENTENCE.split(self.text):
            for at, hit in enumerate(_WORD.finditer(sentence)):
                word = hit[0]
                if (any(c.isdigit() for c in word) and not (word.isdigit() and int(word) < _LEAST_NAME)) or (
                    at and word[0].isupper() and len(word) >= _LEAST_LETTERS
                ):
                    found.add(fold(word))
        return frozenset(found - NOISE)

    @cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Neighbouring words of a sentence."""
        return frozenset(
            pair for sentence in self.sentences for words in [_WORD.findall(sentence)] for pair in pairwise(words)
        )

    @cached_property
    def extremes(self) -> tuple[tuple[UserWords, Literal["max", "min"], Literal["number", "time"]], ...]:
        """Each superlative with its sentence: which end of a field of numbers or dates it asks for."""
        found: list[tuple[UserWords, Literal["max", "min"], Literal["number", "time"]]] = []
        for sentence in _SENTENCE.split(self.text):
            words = _WORD.findall(fold(sentence))
            asked = [word for word, after in pairwise([*words, ""]) if word in EXTREMES and after not in TIME_UNITS]
            asked += [word for word in EXTREMES if _is_wide(word[0]) and word in sentence]
            found += [(UserWords(sentence), *EXTREMES[word]) for word in asked]
        return tuple(found)

    def selects_otherwise(self, before: UserWords) -> bool:
        """Return whether these words may mean other records than before, whatever words the records hold."""
        return (
            (self.is_plural, len(self.extremes), self.days, self.times)
            != (before.is_plural, len(before.extremes), before.days, before.times)
        ) or any(_is_wide(sign) for word in self.words - before.words for sign in word[:1])

    def has(self, value: Any, *, is_identity: bool = True, cues: Collection[str] = ()) -> bool:
        """Return whether a value stands in the words.

        Args:
            value: a JSON scalar.
            is_identity: True if it names a thing or a person: a small number then needs a cue right before it.
            cues: more cues: words of the names of the argument and the tool.
        """
        form = normal_form(value)
        if form is None:
            return isinstance(value, str) and bool(value) and fold(value) in self.folded
        return self.has_form(form, is_identity=is_identity, cues=cues)

    def has_form(self, form: str, *, is_identity: bool = True, cues: Collection[str] = ()) -> bool:
        """`has` for a normal form."""
        if form[4:5] == "-" and (day := re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d:\d\d))?", form)):
            return self.has_day(int(day[1]), int(day[2]), int(day[3])) and (
                day[4] is None or day[4] in self.times or day[4] == "00:00"
            )
        if _is_number(form):
            if form not in self.numbers and not self._has_token(form):
                return False
            if is_identity and float(form) == int(float(form)) and abs(float(form)) < _SMALL:
                return any(self._has_cue(start, cues) for start in self.places(form))
            return True
        return self._has_token(form) or (is_grouped(form) and self._has_grouped(form))

    def has_day(self, year: int, month: int, day: int) -> bool:
        """Return whether a day stands in the words, with its year or without any."""
        return (year, month, day) in self.days or (None, month, day) in self.days

    def asks_for(self, act: Act, sentence: str | None = None) -> bool:
        """Return whether the words (or one sentence) hold a word that asks for an act of this kind."""
        if sentence is not None:
            words = sorted(_WORD.findall(sentence))
            return any(_is_asked(begin, sentence, words) for begin in ASKS[act])
        if act not in self._asked:
            self._asked[act] = any(_is_asked(begin, self.folded, self._word_list) for begin in ASKS[act])
        return self._asked[act]

    def has_word(self, stem: str, sentence: str | None = None) -> bool:
        """Return whether a word that begins like this stands in the words or the sentence."""
        if sentence is None:
            return _is_asked(stem, self.folded, self._word_list)
        return _is_asked(stem, sentence, sorted(_WORD.findall(sentence)))

    def sentences_with(self, value: Any) -> Iterator[tuple[str, int]]:
        """Yield each sentence that names a value, and where in it the value begins."""
        form = normal_form(value) or fold(str(value))
        for sentence, words in zip(self.sentences, self._by_sentence, strict=True):
            at = next(words.places(form), None)
            if at is None and is_grouped(form) and (hit := _grouped_pattern(form).search(sentence)):
                at = hit.start()
            if at is not None:
                yield sentence, at

    def places(self, form: str) -> Iterator[int]:
        """Yield where a form stands as whole tokens."""
        text = self._bare if "." in form else self.folded
        at = text.find(form)
        while at >= 0:
            end = at + len(form)
            if not (_goes_on(text, at - 1, -1, form[0]) or _goes_on(text, end, 1, form[-1])):
                yield at
            at = text.find(form, at + 1)
        if _is_number(form) and form in self.numbers and form not in text:
            yield from (
                hit.start()
                for hit in re.finditer(r"\d[\d.,' ]*", text)
                if form in set(read_numbers(hit[0].strip(" .,'")))
            )

    @cached_property
    def _word_list(self) -> list[str]:
        return sorted(self.words)

    @cached_property
    def _by_sentence(self) -> tuple[UserWords, ...]:
        return tuple(map(UserWords, self.sentences))

    @cached_property
    def _bare(self) -> str:
        """The words with addresses as their normal form has them."""
        return re.sub(r"(?:https?://)?(?:www\.)?(?=[a-z0-9-]+\.)", "", self.folded)

    @cached_property
    def _without_gaps(self) -> str:
        return close_up(self.folded)

    # -- parts -----------------------------------------------------------------------------------------

    def _has_token(self, form: str) -> bool:
        return (form in self.folded or form in self._bare or form in self.numbers) and next(
            iter(self.places(form)), None
        ) is not None

    def _has_grouped(self, form: str) -> bool:
        return form in self._without_gaps and _grouped_pattern(form).search(self.folded) is not None

    def _has_cue(self, start: int, cues: Collection[str]) -> bool:
        before = self.folded[max(0, start - 40) : start]
        if _CUE.search(before):
            return True
        words = _WORD.findall(before)
        return bool(words) and any(
            words[-1].startswith(cue[:4]) if len(cue) > _WHOLE_WORD else words[-1] == cue for cue in cues if cue
        )


def is_bound(words: UserWords, value: Any, asked: Collection[Act], verb: str) -> bool:
    """Return whether a sentence that names a value asks to act on it: no negation before it, no "from" right before it.

    Args:
        words: the user's words.
        value: the value that stands in them.
        asked: the kinds of acts that would do; none where the act of the tool is unknown.
        verb: the tool's own verb.
    """
    for sentence, at in words.sentences_with(value):
        before = _WORD.findall(sentence[:at])
        if before and before[-1] in ORIGINS:
            continue
        if any(word in NEGATIONS for word in before) or any(sign in sentence[:at] for sign in ("不要", "别")):
            continue
        if (
            not asked
            or any(words.asks_for(act, sentence) for act in asked)
            or (verb and words.has_word(verb, sentence))
        ):
            return True
    return False


def _is_asked(begin: str, folded: str, words: list[str]) -> bool:
    """Whether a word stands in a text, or for a longer one a word that begins with it. `words` are sorted."""
    if (not begin.isascii() and not begin[0].isalpha()) or _is_wide(begin[0]):
        return begin in folded
    at = bisect_left(words, begin)
    if at == len(words):
        return False
    return words[at] == begin if len(begin) <= _WHOLE_WORD else words[at].startswith(begin)


def _is_number(form: str) -> bool:
    may_be = len(form) < 16 and (form[0].isdigit() or form[0] in "+-")  # noqa: PLR2004 - longer ones are identifiers
    return may_be and re.fullmatch(r"[+-]?\d+(?:\.\d+)?", form) is not None


def _is_wide(sign: str) -> bool:
    return ord(sign) >= 0x2E80  # noqa: PLR2004 - CJK and beyond: written without blanks


def _goes_on(text: str, at: int, step: int, edge: str) -> bool:
    """Return whether a token goes on beyond its edge."""
    if not 0 <= at < len(text):
        return False
    sign = text[at]
    if sign.isalnum() or sign == "_":
        return _is_wide(sign) == _is_wide(edge)  # a change of script is a boundary
    if sign in "@+":
        return True
    beyond = at + step
    return sign in ".-" and 0 <= beyond < len(text) and text[beyond].isalnum() and not _is_wide(text[beyond])


def _grouped_pattern(form: str) -> re.Pattern[str]:
    return re.compile(r"(?<![^\W_])" + r"[\s\-./()]*".join(map(re.escape, form)) + r"(?![^\W_])")
