"""Places the note in a history: as a user message, or for Anthropic as a block of the first one.

In: groups, and which of them stay.
Out: the groups with one note.
Never: give the note the authority of the system prompt: it quotes users, tools and models.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pokayoke.core.context.chat import MessageMaker
from pokayoke.core.context.groups import MessageGroup, Shape, with_fields
from pokayoke.core.context.note import ContextNote, is_note, read_note
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.messages import text_of


def take_notes(
    groups: list[MessageGroup], stays: list[bool], shape: Shape
) -> tuple[list[MessageGroup], list[ContextNote], int]:
    """Remove the notes and the groups that do not stay from a history.

    Args:
        groups: the history.
        stays: for each group, whether it stays.
        shape: shape of its messages.

    Returns:
        the groups that stay, the removed notes, and the position of the new one.
    """
    kept: list[MessageGroup] = []
    notes: list[ContextNote] = []
    place: int | None = None
    for group, stay in zip(groups, stays, strict=True):
        rest, found = _without_notes(group) if shape == "anthropic" else _as_note(group)
        if not (stay and rest is group):  # a note that cannot be removed stays
            notes += found
        if stay and rest is not None:
            kept.append(rest)
        elif place is None:
            place = len(kept)
    return kept, notes, len(kept) if place is None else place


def _as_note(group: MessageGroup) -> tuple[MessageGroup | None, list[ContextNote]]:
    """Return the group, or the note that it is."""
    note = read_note(text_of(group.messages[0])) if group.role == "user" else None
    return (group, []) if note is None else (None, [note])


def _without_notes(group: MessageGroup) -> tuple[MessageGroup | None, list[ContextNote]]:
    """Return a group without the notes in its user message, and the notes; None for an empty group.

    A message of only notes stays after a model message: the roles must alternate.
    """
    place = next((at for at, message in enumerate(group.messages) if read_field(message, "role") == "user"), None)
    if place is None:
        return group, []
    message = group.messages[place]
    content = read_field(message, "content")
    if isinstance(content, str):
        note = read_note(content)
        return (group, []) if note is None else (None, [note])
    blocks = list(as_sequence(content))
    found = [note for block in blocks if (note := read_note(_block_text(block))) is not None]
    if not found:
        return group, []
    rest = [block for block in blocks if not is_note(block)]
    if not rest:
        return (None if len(group.messages) == 1 else group), found
    messages = (*group.messages[:place], with_fields(message, content=rest), *group.messages[place + 1 :])
    return msgspec.structs.replace(group, messages=messages), found


def _block_text(block: Any) -> Any:
    return block if isinstance(block, str) else read_field(block, "text")


def put_note(
    groups: list[MessageGroup], place: int, text: str, shape: Shape, maker: MessageMaker
) -> list[MessageGroup]:
    """Return the history with a note in it.

    Args:
        groups: the history without a note.
        place: its position, if it is a message of its own.
        text: its text.
        shape: shape of the messages.
        maker: makes a message in their style.
    """
    if shape != "anthropic":
        return [*groups[:place], MessageGroup((maker.user_message(text),), (), "user"), *groups[place:]]
    start = next((at for at, group in enumerate(groups) if group.role != "system"), len(groups))
    if start == len(groups) or groups[start].role != "user":
        return [*groups[:start], MessageGroup(({"role": "user", "content": text},), (), "user"), *groups[start:]]
    first = groups[start]
    content = read_field(first.messages[0], "content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(as_sequence(content))
    message = with_fields(first.messages[0], content=[*blocks, {"type": "text", "text": text}])
    noted = msgspec.structs.replace(first, messages=(message, *first.messages[1:]))
    return [*groups[:start], noted, *groups[start + 1 :]]
