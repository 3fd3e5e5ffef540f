"""Guesses a tool's effect from its name.

A wrong `read` is the costly mistake (reads are repeated freely), so the name must begin with a word for looking
and hold no word for doing.

In: a name.
Out: an effect, with the reason for the guess.
Never: a guess that is not marked as one.
"""

from __future__ import annotations

import re
from typing import Final

from pokayoke.core.call import Effect

_READS: Final = frozenset(
    re.findall(
        r"\w+",
        """browse calc calculate cat check compare compute count describe detect diff display du estimate evaluate
        exists explain fetch find get grep has head is list lookup ls measure peek ping preview print pwd query read
        retrieve scan search select show sort stat status suggest summarize tail translate validate verify view wc
        weather whoami""",
    )
)
_DESTROYS: Final = frozenset(
    re.findall(
        r"\w+",
        """clear delete deprovision destroy drop erase kill nuke prune purge remove reset revoke rm rmdir shred
        terminate truncate uninstall unlink wipe""",
    )
)
_WRITES: Final = frozenset(
    re.findall(
        r"\w+",
        """accept activate add append apply approve archive assign authenticate buy cancel checkin checkout
        close commit configure confirm consume convert create decline deploy disable download edit enable
        enroll execute fill generate in insert install invite join lock logout migrate modify move mv notify
        open out pay publish register rename replace respond restart save schedule send submit subscribe
        toggle unlock unsubscribe update upload upsert write""",
    )
)
# Words that are also nouns: they count only where the name begins (`get_login_status` only looks).
_WRITES_FIRST: Final = frozenset(
    re.findall(
        r"\w+",
        """book call change charge claim comment copy cp exchange fund grant import invoke issue launch log
        login mark mention merge message order partition place post press process purchase push put record
        refund release reply reserve return run set share sign start stop store swap sync tag touch trade
        transfer trigger tweet upgrade withdraw""",
    )
)
_PIECES: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def guess_effect(name: str) -> tuple[Effect, str]:
    """Return the effect a tool's name suggests, and why.

    Args:
        name: such as `get_order_details`, `orders.deleteAll` or `rm`.
    """
    words = [word.lower() for word in _PIECES.findall(name)]
    destroying = next((word for word in words if word in _DESTROYS), None)
    if destroying:
        return "destructive", f"a guess from the word {destroying!r} in its name"
    doing = next((word for word in words if word in _WRITES), None)
    if doing is None and words and words[0] in _WRITES_FIRST:
        doing = words[0]
    if doing:
        return "write", f"a guess from the word {doing!r} in its name"
    if words and words[0] in _READS:
        return "read", f"a guess from the word {words[0]!r} in its name"
    return "write", "nothing in its name says what it does, and what is not known is a write"
