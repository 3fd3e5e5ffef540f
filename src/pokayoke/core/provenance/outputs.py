"""The outputs of a run as provenance keeps them: packed, and cut into records again where the user's words grow.

In: what a tool returned, and how its records are to be seen.
Out: numbers of records by value, and what is known of each.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator
from typing import Final

import msgspec
import orjson

from pokayoke.core.provenance.anchors import anchor_group, find_said
from pokayoke.core.provenance.forms import fold
from pokayoke.core.provenance.index import MOST_NUMBERS, ValueIndex, may_hold, token_bits
from pokayoke.core.provenance.records import OutputRecord, cut_into_records, is_identifier_key, join_key
from pokayoke.core.provenance.user_words import UserWords, find_words

ANCHORED: Final = 1
"""The user's words single the record out."""
JOINED: Final = 2
"""It begins with an identifier of an anchored record."""
OWN: Final = 4
"""A write of this run made it."""
DIRECTORY: Final = 8
"""Operators curate it."""
AUTHORED: Final = 16
"""It holds somebody's prose: its addresses are its author's claims."""
_LEAST_PACKED: Final = 2_048
"""Bytes from which on packing an output gains more than it costs."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """How the records of an output are to be seen.

    Args:
        tool: the tool that returned it.
        step: the step of the run.
        own: True if a write of this run made them.
        directory: True if operators curate what the tool lists.
        keyed: True if the user or a record vouches for every argument of the read.
        listed: True if words such as "all" may mean every one of them.
        private: True if nothing of what the tool returns is for outsiders.
        vouched: True if the user or a record vouches for the values of the call.
        phrases: texts of the user's by which the read was keyed.
    """

    tool: str
    step: int
    own: bool = False
    directory: bool = False
    keyed: bool = False
    listed: bool = False
    private: bool = False
    vouched: bool = True
    phrases: tuple[str, ...] = ()


class _Output(msgspec.Struct, gc=False):
    """One output: as it came or packed, with the number of its first record and the tokens that may stand in it.

    A run may have thousands, so it holds nothing that the garbage collector would look at.
    """

    origin: Origin
    first: int
    kept: bytes
    is_packed: bool
    tokens: bytearray | None = None  # found when the user's words grow for the first time after it
    count: int = 0
    marks: tuple[str, ...] = ()

    @property
    def data(self) -> bytes:
        """The output as JSON."""
        return zlib.decompress(self.kept) if self.is_packed else self.kept

    def may_hold(self, words: Collection[str]) -> bool:
        """Return False if certainly none of the words stands in it."""
        if self.tokens is None:
            self.tokens = token_bits(find_words(fold(self.data.decode())))
        return may_hold(self.tokens, words)


class Outputs:
    """Every record that a run has read or made."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self.flags = bytearray()
        self._largest = array("d")
        self._outputs: list[_Output] = []
        self._begins = array("L")  # the number of the first record of each output
        self._marked: dict[str, array[int]] = {}  # records by the marks of the user's words in them
        self._values = ValueIndex()
        self._firsts = ValueIndex()
        self._begin_pairs = array("Q")  # of each record the pair of its first field; 0 if that is no identifier
        self._named = ValueIndex()
        self._identifiers = array("Q")  # hashes of the pairs of key and value of every record, one after the other
        self._starts = array("L", [0])  # where those of a record begin
        self._anchored: set[int] = set()
        self._joined: set[int] = set()
        self._in_force: set[int] = set()  # identifiers of anchored and joined records

    def add(self, origin: Origin, data: bytes, words: UserWords, burned: Container[str]) -> Iterator[OutputRecord]:
        """Take in an output and yield its records.

        Args:
            origin: how its records are to be seen.
            data: the output as JSON.
            words: the user's words.
            burned: values that the agent brought up first.
        """
        is_long = len(data) > _LEAST_PACKED
        output = _Output(origin, len(self.flags), zlib.compress(data, 1) if is_long else data, is_long)
        for siblings in cut_into_records(orjson.loads(data)):
            group = siblings[: MOST_NUMBERS - len(self.flags)]
            for record in group:
                self._index_record(record, origin)
            self._judge_group(output, group, output.first + output.count, words, burned)
            output.count += len(group)
            yield from group
        if output.count:
            self._outputs.append(output)
            self._begins.append(output.first)
            self._anchor_single(output)
            numbers = range(output.first, output.first + output.count)
            for number in numbers:
                if self._begin_pairs[number] in self._in_force and not self.is_anchored(number):
                    self._mark_joined(number)
            self._join([number for number in numbers if self.is_anchored(number)])

    def read_again(self) -> Iterator[tuple[Origin, OutputRecord]]:
        """Yield every record that was read, with how it is to be seen."""
        for output in self._outputs:
            left = output.count
            for group in cut_into_records(orjson.loads(output.data)):
                yield from ((output.origin, record) for record in group[:left])
                left -= len(group[:left])

    def judge_again(self, before: UserWords, words: UserWords, burned: Container[str]) -> None:
        """Find anew what the user's words single out, now that they have grown: only where a new word may stand."""
        fresh = words.words - before.words
        everything = words.selects_otherwise(before)
        for output in self._outputs:
            if everything or output.may_hold(fresh):
                self._judge_again(output, words, burned)
        for number in self._joined:
            self.flags[number] &= ~JOINED
        self._joined.clear()
        self._in_force.clear()
        self._join(list(self._anchored))

    def find(self, form: str) -> list[int]:
        """Return the numbers of the records that hold a value."""
        return list(dict.fromkeys(self._values.find(form)))

    def find_identified(self, form: str) -> list[int]:
        """Return the numbers of the records in which a value is an identifier."""
        return list(dict.fromkeys(self._named.find(form)))

    def is_anchored(self, number: int) -> bool:
        """Return whether the user's words single a record out, or an identifier of one that they do."""
        return bool(self.flags[number] & (ANCHORED | JOINED))

    def largest_number(self, number: int) -> float:
        """Return the largest number in a record that is no identifier; -1 if it has none."""
        return self._largest[number]

    def find_marked(self, marks: Iterable[str]) -> Iterator[int]:
        """Yield the records of which such a word stands in the user's words."""
        for mark in marks:
            yield from self._marked.get(mark, ())

    def describe(self, number: int) -> tuple[int, str]:
        """Return the step and the place of a record: its tool, and which record of the output it is."""
        output = self._outputs[bisect_right(self._begins, number) - 1]
        return output.origin.step, f"{output.origin.tool}, record {number - output.first + 1} of {output.count}"

    # -- parts -----------------------------------------------------------------------------------------

    def _index_record(self, record: OutputRecord, origin: Origin) -> None:
        number = len(self.flags)
        self.flags.append(OWN * origin.own | DIRECTORY * origin.directory | AUTHORED * record.authored)
        self._largest.append(record.largest)
        self._values.add([field.form for field in record.fields], number)
        if named := [field for field in record.fields if is_identifier_key(field.key)]:
            self._identifiers.extend([_pair_hash(field.key, field.form) for field in named])
            self._named.add([field.form for field in named], number)
        self._starts.append(len(self._identifiers))
        first = record.fields[0]
        pair = _pair_hash(first.key, first.form) if is_identifier_key(first.key) else 0
        self._begin_pairs.append(pair)
        if pair:
            self._firsts.add((pair,), number)

    def _judge_again(self, output: _Output, words: UserWords, burned: Container[str]) -> None:
        number, behind = output.first, output.first + output.count
        for mark in dict.fromkeys(output.marks):
            kept = array("L", (one for one in self._marked[mark] if not output.first <= one < behind))
            self._marked[mark] = kept
        output.marks = ()
        for group in cut_into_records(orjson.loads(output.data)):
            same = group[: behind - number]
            self._judge_group(output, same, number, words, burned)
            number += len(same)
        self._anchor_single(output)

    def _judge_group(
        self, output: _Output, group: list[OutputRecord], number: int, words: UserWords, burned: Container[str]
    ) -> None:
        """Mark the records of a group that the user's words single out."""
        origin = output.origin
        if not words.text:
            for at in range(number, number + len(group)):
                self._set_anchored(at, origin.own)
            return
        for record in group:
            record.said = find_said(record, words, burned, origin.phrases)
            record.listed = origin.listed
        anchored = set(map(id, anchor_group(group, words, burned)))
        for at, record in enumerate(group, number):
            self._set_anchored(at, id(record) in anchored or origin.own)
            for mark in record.said:
                self._marked.setdefault(mark, array("L")).append(at)
            output.marks += tuple(record.said)

    def _anchor_single(self, output: _Output) -> None:
        """Anchor the only record of a read that the user's words keyed."""
        if output.origin.keyed and output.count == 1:
            self._set_anchored(output.first, True)

    def _set_anchored(self, number: int, anchored: bool) -> None:
        if anchored:
            self.flags[number] |= ANCHORED
            self._anchored.add(number)
        else:
            self.flags[number] &= ~ANCHORED
            self._anchored.discard(number)

    def _join(self, waiting: list[int]) -> None:
        """Follow the identifiers of anchored records to the records that begin with them, to a fixed point.

        Never through plain equality of values: any record can repeat a value of another one.
        """
        while waiting:
            number = waiting.pop()
            for pair in self._identifiers[self._starts[number] : self._starts[number + 1]]:
                if pair in self._in_force:
                    continue
                self._in_force.add(pair)
                for other in self._firsts.find(pair):
                    if not self.is_anchored(other):
                        self._mark_joined(other)
                        waiting.append(other)

    def _mark_joined(self, number: int) -> None:
        self.flags[number] |= JOINED
        self._joined.add(number)


def _pair_hash(key: str, form: str) -> int:
    return hash((join_key(key), form)) & 0xFFFF_FFFF_FFFF_FFFF
