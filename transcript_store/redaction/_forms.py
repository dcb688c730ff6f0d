r"""Where secrets stand in a text: each form has a mark by which it is looked for.

To look for a mark is far faster than for a pattern, and most texts have none. From a mark on, an anchored pattern decides.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice, pairwise

from transcript_store.redaction._kinds import DONE, NEAR, SET, Kind
from transcript_store.redaction._notations import NOTATIONS
from transcript_store.redaction._tokens import TOKENS

__all__ = ["DONE", "secrets_in", "secrets_named"]

_ESCAPES = ("\\n", "\\r", "\\t")
_COLOUR = re.compile(r"(?:\x1b|\\(?:u001[bB]|x1[bB]|033|e))\[[0-9;:]{0,24}[A-Za-z]$")
"""How a terminal's colours end, which is by a letter: as it is, and escaped in a text."""
_LONGEST_COLOUR = 32
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
"""A character as a URL has it, which may end in a letter."""
_BETWEEN_WORDS = re.compile(r"[-_.]")
_PART = re.compile(r"[A-Za-z0-9_-]*")
_KINDS = (*TOKENS, *NOTATIONS)
_SHORTEST = len("://:p@h")
_PLACEHOLDER = re.compile(
    r"[$#]{0,2}\{{1,2}[\w.]*\}{1,2}|\$\w+|%[^%]*%|%[ds]|[*x.]+|(?:" + DONE + r")+"
    r"|(?i:pass(?:word|wd)?|secret|pwd|token|your[-_].*|changeme)"
)
"""What stands in the place of a password. A text that only begins as a variable does is a password: ``$uper$ecret``."""
_ATTRIBUTES = frozenset({"expires", "path", "domain", "max-age", "samesite", "priority", "version", "comment"})
"""Of a cookie, what is beside its value."""
_NAMED = tuple(kind for kind in _KINDS if SET in kind.rest)
"""Those whose name says what they are: it may be the name of a member, and the secret its value."""
_NAMES = tuple(mark for kind in _NAMED for mark in kind.marks)


_STEMS = (  # noqa: SIM905
    "-A sk- api SS b_ dp hp aut AK AT sk_ -S 1C 1_ sq vc yJ -us _liv pat- 1. Ac u_ ey- iva AA NR b- fm fp g= SEC "
    "rod ret_ %2 // AI CL IA a2 bk dG dK dc fc hv m/ pm x- xo Tok bt- gls kie l_t psc ssw -tok Az TWI"
).split()
"""Pieces that several marks have, and few texts. Where a text lacks one, none of its marks is looked for: half the time goes."""


def _by_stem() -> dict[str, list[tuple[str, Kind]]]:
    groups: dict[str, list[tuple[str, Kind]]] = {}
    for kind in _KINDS:
        for mark in kind.marks:
            groups.setdefault(next((stem for stem in _STEMS if stem in mark), mark), []).append((mark, kind))
    return groups


_GROUPS = tuple(_by_stem().items())


def secrets_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Where secrets stand, and of which kinds."""
    if len(text) >= _SHORTEST:
        for stem, marks in _GROUPS:
            if stem in text:
                for mark, kind in marks:
                    if mark in text:
                        yield from _of_kind(text, kind, mark)


def secrets_named(name: str, text: str) -> Iterator[tuple[int, int, str]]:
    """Where secrets stand in a text of which something else says what it is."""
    if not name.endswith(_NAMES):
        return
    for kind in _NAMED:
        for mark in filter(name.endswith, kind.marks):
            before = f"{mark}: "
            # One, or several of one header: what stands further on has its mark in the text itself.
            found = _of_kind(before + text, kind, mark)
            for start, end, called in found if kind.each else islice(found, 1):
                if start >= len(before):
                    yield start - len(before), end - len(before), called


_compiled = cache(re.compile)
"""Those that are needed: most kinds are in no text."""


def _of_kind(text: str, kind: Kind, mark: str) -> Iterator[tuple[int, int, str]]:
    rest = _compiled(kind.rest)
    at = text.find(mark)
    while at >= 0:
        after = at + len(mark)
        match = rest.match(text, after) if _may_begin(text, at, kind) else None
        if match is None and kind.name == "jwt":
            # Each part goes up to a dot: what fails from one mark fails from the next one in the same part as well.
            after = _PART.match(text, after).end()  # type: ignore[union-attr]
        if match is not None and (not kind.near or _compiled(kind.near).search(text, max(0, at - NEAR), at)):
            first, last = (match.span("secret")) if "secret" in rest.groupindex else (at - kind.width, match.end())
            if kind.each:
                for part in _compiled(kind.each).finditer(text, first, last):
                    if part["name"].lower() not in _ATTRIBUTES and _is_chosen_by_chance(part["secret"]):
                        yield *part.span("secret"), kind.name
            elif _is_secret(text[first:last], kind):
                yield first, last, kind.name
            after = max(match.end(), after)
        at = text.find(mark, after)


def _may_begin(text: str, at: int, kind: Kind) -> bool:
    """Whether what stands before a mark lets it be this kind's."""
    if not kind.is_anywhere and not _begins_a_word(text, at, kind):
        return False
    return not kind.before or (
        at >= kind.width and _compiled(kind.before).fullmatch(text, at - kind.width, at) is not None
    )


def _begins_a_word(text: str, at: int, kind: Kind) -> bool:
    r"""Whether no letter stands before a place, except for those of an escape: ``\nsk-…`` in JSON within a text, ``%3Dsk-…`` in a URL, or
    a colour. A digit or an underscore may: it is the end of a name, or of what somebody put in front.
    """
    if at == 0 or text[at - 2 : at] in _ESCAPES or _PERCENT.fullmatch(text, max(0, at - 3), at):
        return True
    if kind.is_alone and text[at - 1] in "+/-":
        return False
    if not (text[at - 1].isascii() and text[at - 1].isalpha()):
        return True
    return _COLOUR.search(text[max(0, at - _LONGEST_COLOUR) : at]) is not None


def _is_secret(secret: str, kind: Kind) -> bool:
    if kind.is_basic:
        return _is_basic(secret)
    return not _PLACEHOLDER.fullmatch(secret) and not (kind.is_random and not _is_chosen_by_chance(secret))


def _is_basic(text: str) -> bool:
    """Whether this is ``user:password`` in base64."""
    try:
        return ":" in base64.b64decode(text, validate=True).decode("ascii")
    except ValueError:
        return False


def _is_chosen_by_chance(text: str) -> bool:
    """Whether this is no name that somebody chose, such as ``ROCKET_LAUNCHER_0001``: within a word it has a digit, or more capitals
    than one made of words would have.
    """
    words = _BETWEEN_WORDS.split(text)
    if all(word.isdigit() or (word.isalpha() and (word.isupper() or word.islower())) for word in words if word):
        return False
    if any(map(str.isdigit, text)):
        return True
    changes = sum(one.isupper() != other.isupper() for one, other in pairwise(text))
    return changes > 0.25 * (len(text) - 1)
