r"""What a person types, as a value. Total: every text is a query, and none is a syntax error. Only ``7d`` asks the clock.

::

    socket timeout          both words, anywhere in a message
    "socket timeout"        these words in this order
    time*   *out*           words that begin with it, that contain it (*out: too; *oo_ba: foo_bar)
    socket OR pipe          one of them; OR binds the terms at its sides
    -pipe                   messages without it
    in:result               in results of tools (call, thinking, text, scaffolding; several: in one of them; all)
    role:user title:moving model:opus provider:claude source:codex project:shop label:team=x id:0b8f
    after:2026-01-01 before:2026-02-01T12:00 after:7d before:yesterday since:"last month" until:november

``title:`` looks in what the conversation is called, ``project:`` (or ``cwd:``) in the path of the folder that it was held in. ``until:``
takes in the day or the month that it names, ``before:`` does not.

A name that is none of these, with a word behind its colon, is a filter that does not exist: it is ignored, and reported. So are dates
that are none. A URL, ``std::vector``, ``localhost:8000`` and all that stands in quotes are words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from transcript_store.search._texts import COLUMNS
from transcript_store.search._words import is_cjk, tokens
from transcript_store.words import period

_PIECE = re.compile(r'(-(?!-))?(?:([A-Za-z]{1,10}):)?(?:"([^"]*)"?|(\S+))')  # two dashes begin a word: --dry-run
_NAMES = ("title", "model", "provider", "label", "source", "project", "id", "role")
_OTHER_NAMES = {
    "cwd": "project",
    "dir": "project",
    "folder": "project",
    "program": "source",
    "since": "after",
    "until": "before",
}
FILTERS = ("in", *_NAMES, "after", "before", "since", "until")
"""The names that may stand before a colon."""
_NO_FILTER = re.compile(r"[A-Za-z][\w.-]*")
"""What a person writes behind the name of a filter."""


@dataclass(frozen=True, slots=True)
class Term:
    """Tokens that stand one behind the other. ``last`` says what the last one is: a whole word, the beginning of one or a part."""

    tokens: tuple[str, ...]
    last: Literal["whole", "beginning", "part"] = "whole"
    is_end: bool = False
    """Of several: whether the first may be the end of a longer word."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a conversation or a message must be (or must not): a name and a text. Letters' case does not count."""

    name: str
    value: str
    is_not: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """Messages that have one term of each group and none of ``without``, in one of ``columns``, and pass the filters."""

    groups: tuple[tuple[Term, ...], ...] = ()
    without: tuple[Term, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    is_limited: bool = False
    """Whether the columns were named. Else what was said stands before calls, results and thinking, and these before scaffolding."""
    filters: tuple[Filter, ...] = ()
    after: str | None = None
    before: str | None = None
    ignored: tuple[str, ...] = ()
    """Pieces that mean nothing: a date that is none, a word without a letter."""


def parse(text: str) -> Query:
    """The query that a text means; raises ``TypeError`` for what is no text."""
    if not isinstance(text, str):
        raise TypeError(f"a query must be a str, not {type(text).__name__}")
    text = text.encode("utf-8", "replace").decode()  # an argument that is not UTF-8 has lone surrogates
    groups: list[dict[Term, None]] = []
    without: dict[Term, None] = {}
    columns: dict[str, None] = {}
    filters: dict[Filter, None] = {}
    dates: dict[str, str] = {}
    ignored: list[str] = []
    joins = False  # whether the next term belongs to the group before it
    for sign, prefix, quoted, bare in _PIECE.findall(text):
        value, written = quoted or bare, prefix.lower()
        name = _OTHER_NAMES.get(written, written)
        if (sign, name, bare) == ("", "", "OR"):
            joins = bool(groups)
        elif name in _NAMES:
            filters[Filter(name, value.strip('"'), bool(sign))] = None
        elif name == "in" and value.lower() in (*COLUMNS, "all"):
            columns.update(dict.fromkeys(COLUMNS if value.lower() == "all" else (value.lower(),)))
        elif name in ("after", "before"):
            if (times := period(value)) is None:
                ignored.append(f"{written}:{value}")
            else:
                at = times[written == "until"]
                dates[name] = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")  # as records have it
        elif prefix.islower() and len(prefix) > 1 and (quoted or _NO_FILTER.fullmatch(bare)):
            ignored.append(f"{prefix}:{value}")
        elif (term := _term(f"{prefix}:{value}" if prefix else value, is_quoted=bool(quoted))) is None:
            ignored.append(value or '"')  # a quotation mark that nothing follows
        elif sign:
            without[term] = None
        elif joins:
            groups[-1][term] = None
            joins = False
        else:
            groups.append({term: None})
    return Query(
        groups=tuple(dict.fromkeys(map(tuple, groups))),
        without=tuple(without),
        columns=tuple(name for name in COLUMNS if name in columns) or COLUMNS,
        is_limited=bool(columns),
        filters=tuple(filters),
        after=dates.get("after"),
        before=dates.get("before"),
        ignored=tuple(ignored),
    )


def _term(value: str, *, is_quoted: bool) -> Term | None:
    """The term of a word or a phrase; None if there is no letter and no digit in it.

    A word that is cut in several (``foo-bar``) is a phrase: its pieces stand one behind the other.
    """
    found = list(tokens(value))
    # A text may go on where a query ends, so the last character of the query's last run says nothing: its pair does. That
    # of a run in the middle says that the run ends there.
    if len(found) > 1 and is_cjk(found[-1].text) and len(found[-1].text) == 1 and found[-2].end == found[-1].end:
        del found[-1]
    if not found:
        return None
    words = tuple(token.text for token in found)
    is_part = value.startswith("*") and not is_quoted
    is_end = is_part and len(words) > 1 and not is_cjk(words[0])  # a run of these is found wherever it stands
    if is_cjk(words[-1]):
        return Term(words, "beginning" if len(words[-1]) == 1 else "whole", is_end)
    if is_quoted:
        return Term(words)
    if is_part and len(words) == 1:
        return Term(words, "part")
    return Term(words, "beginning" if is_part or value.endswith("*") else "whole", is_end)


def role_searched(role: str) -> str:
    """What ``role:`` looks in: the model is called so by Gemini, and ``assistant`` by the others, so it has both names."""
    return "assistant model" if role in ("assistant", "model") else role
