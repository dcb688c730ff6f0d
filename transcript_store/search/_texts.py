"""What is searched of a message: its text, its thinking, its calls, its results and what a program wrote in the user's name, apart.

Base64, data URLs and signatures are no words: they never get here, and so never into an index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from transcript_store.messages import parts_of, typed_of
from transcript_store.words import without_escapes

LONGEST_PART_BYTES = 256 * 1024
"""Of each part of a message, so much is searched from its beginning. (Of text that is not ASCII, as many characters.)"""

_DATA = re.compile(r"data:[\w.+-]*+/?+[\w.+-]*+(?:;[\w.+=-]*+)*;base64,[A-Za-z0-9+/=_-]*+|[A-Za-z0-9+/_-]{512,}+={0,2}")
"""A data URL, and a run that is too long to be a word: snapshots take such runs for base64 too. No part gives back what it took
(``*+``), or a long word behind ``data:`` takes time by its square."""
_MARK = "base64,"
_SHORTEST_RUN = 512
_NO_RUN = re.compile(r"[^A-Za-z0-9+/_-]")
_PLAIN = {"role", "content"}
_SIGNATURES = frozenset(
    {"signature", "thoughtSignature", "thought_signature", "encrypted_content", "encryptedContent", "data"}
)
_HIDDEN = "(not shown by the provider)"


class Texts(NamedTuple):
    """The searched texts of a message, by where they stand. The fields are the columns of the index."""

    text: str = ""
    thinking: str = ""
    call: str = ""
    result: str = ""
    scaffolding: str = ""
    """What a program wrote in the user's name, all of it."""


COLUMNS = Texts._fields
_COLUMN_OF = {
    "text": 0,
    "thinking": 1,
    "call": 2,
    "result": 3,
    "document": 0,
    "other": 0,
}  # media and what is besides are not searched


def texts_of(message: object, extra: Mapping[str, Any] | None = None) -> Texts:
    """The searched texts of a message in any provider's form, with what stands beside it."""
    found = _texts_of(message)
    if not extra or "scaffolding" not in extra:
        return found
    return found._replace(text=_words_of(typed_of(extra, found.text)), scaffolding=found.text)


def _texts_of(message: object) -> Texts:
    if isinstance(message, dict) and message.keys() == _PLAIN and isinstance(said := message["content"], str):
        return Texts(_words_of(said))  # most messages: a tenth of the time that their parts take
    found: tuple[list[str], ...] = ([], [], [], [])
    for kind, title, text in parts_of(message):
        column = _COLUMN_OF.get(kind)
        if column is None or text == _HIDDEN:
            continue
        if kind in ("text", "thinking"):
            piece = text
        else:
            # The title's first word is ours; the second is the tool's name, and what is in brackets is the call's number.
            name = (
                title.split(" ", 2)[1:2]
                if kind in ("call", "result")
                else title.split(" ", 1)[1:] * (kind == "document")
            )
            piece = "\n".join((*(part for part in name if not part.startswith("(")), *_said_in(text)))
        found[column].append(_words_of(piece))
    return Texts(*("\n".join(pieces) for pieces in found))


def _words_of(text: str) -> str:
    """What is searched of a text: its beginning, without colours, and no data."""
    cut = without_escapes(text[:LONGEST_PART_BYTES])
    return _DATA.sub(" ", cut) if _MARK in cut or _has_run(cut) else cut


def _has_run(text: str) -> bool:
    """Whether a run is in it that is too long to be a word. It would hold one of the places that stand as far apart as it is long."""
    for place in range(_SHORTEST_RUN - 1, len(text), _SHORTEST_RUN):
        # Most places stand between two spaces, near enough: that is seen in a third of the time.
        space, next_space = (
            text.rfind(" ", place - _SHORTEST_RUN + 1, place),
            text.find(" ", place, place + _SHORTEST_RUN),
        )
        if space >= 0 and 0 <= next_space - space <= _SHORTEST_RUN:
            continue
        # From where the word around the place may begin: words end soon, so little is looked at.
        if (end := _NO_RUN.search(text, place)) is not None and end.start() == place:
            continue
        behind = (len(text) if end is None else end.start()) - place
        before = _NO_RUN.search(text[max(0, place - _SHORTEST_RUN) : place][::-1])
        if behind + (_SHORTEST_RUN if before is None else before.start()) >= _SHORTEST_RUN:
            return True
    return False


def _said_in(text: str) -> Iterator[str]:
    r"""The names and values of a JSON text, without signatures; a text that is none, as it is.

    In JSON a line feed is ``\n``, and the word behind it would begin with an n.
    """
    if not text.startswith(("{", "[")):
        yield text
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield text
        return
    yield from _strings_in(value)


def _strings_in(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            for name, member in reversed(one.items()):
                if name not in _SIGNATURES:
                    waiting += (member, name)
        elif isinstance(one, list):
            waiting += reversed(one)
        elif one is not None:
            yield str(one)
