"""What does a typed query mean, and does a message match it? Every text is a query. Only ``7d`` asks the clock.

::

    socket timeout          both words, anywhere in a message
    "socket timeout"        these words in this order
    time*   *out*           words that start with it, that contain it (*out: too; *oo_ba: foo_bar)
    socket OR pipe          one of them; OR binds the terms at its sides
    -pipe                   messages without it
    in:result               in results of tools (call, thinking, text, scaffolding; several: in one of them; all)
    role:user title:moving model:opus provider:claude source:codex project:shop label:team=x id:0b8f
    after:2026-01-01 before:2026-02-01T12:00 after:7d before:yesterday since:"last month" until:november

``title:`` searches the conversation's name, ``project:`` (or ``cwd:``) the path of its
folder. ``until:`` includes the day or the month that it names, ``before:`` does not.

Any other name with a word after its colon is an unknown filter: it is ignored and
reported. So are invalid dates. A URL, ``std::vector``, ``localhost:8000`` and everything in quotes are
words.

The index proposes; the record decides. So a hit is never stale or invented.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from transcript_store.display import period
from transcript_store.search._indexing import LONGEST_WORD, beginnings_up_to, record_seconds
from transcript_store.search._tokens import COLUMNS, Texts, blanked, fold, foreign_runs, is_cjk, tokens

_PIECE = re.compile(r'(-(?!-))?(?:([A-Za-z]{1,10}):)?(?:"([^"]*)"?|(\S+))')  # two dashes start a word: --dry-run
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
"""The names of filters, before a colon."""
_NO_FILTER = re.compile(r"[A-Za-z][\w.-]*")
"""The values of a filter, as a person writes them."""


@dataclass(frozen=True, slots=True)
class Term:
    """Adjacent tokens. ``last`` is the kind of the last one: a complete word, the beginning of one or a part."""

    tokens: tuple[str, ...]
    last: Literal["whole", "beginning", "part"] = "whole"
    is_end: bool = False
    """With several: True if the first may be the end of a longer word."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on a conversation or a message: a name and a text, ignoring case."""

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
    """True if the columns were named. Otherwise text comes before calls, results and thinking, and these before scaffolding."""
    filters: tuple[Filter, ...] = ()
    after: str | None = None
    before: str | None = None
    ignored: tuple[str, ...] = ()
    """Ignored parts: an invalid date, a word without a letter, an ``OR`` that does not join two terms."""


def parse_query(text: str) -> Query:
    """The query that a text means; raises ``TypeError`` if it is not text."""
    if not isinstance(text, str):
        raise TypeError(f"a query must be a str, not {type(text).__name__}")
    text = text.encode("utf-8", "replace").decode()  # an argument that is not UTF-8 has lone surrogates
    groups: list[dict[Term, None]] = []
    without: dict[Term, None] = {}
    columns: dict[str, None] = {}
    refused: dict[str, None] = {}
    filters: dict[Filter, None] = {}
    dates: dict[str, str] = {}
    ignored: list[str] = []
    joins = False  # True if the next term belongs to the group before it
    for sign, prefix, quoted, bare in _PIECE.findall(text):
        value, written = quoted or bare, prefix.lower()
        name = _OTHER_NAMES.get(written, written)
        if (sign, name, bare) == ("", "", "OR"):
            if not groups:
                ignored.append(bare)
            joins = bool(groups)
        elif name in _NAMES:
            filters[Filter(name, value.strip('"'), bool(sign))] = None
        elif name == "in" and value.lower() in (*COLUMNS, "all"):
            (refused if sign else columns).update(
                dict.fromkeys(COLUMNS if value.lower() == "all" else (value.lower(),))
            )
        elif name in ("after", "before"):
            if (times := period(value)) is None:
                ignored.append(f"{sign}{written}:{value}")
            else:
                at = times[written == "until"]
                if sign:  # not from a time on: before it
                    name = "before" if name == "after" else "after"
                dates[name] = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")  # in the form of records
        elif prefix.islower() and len(prefix) > 1 and (quoted or _NO_FILTER.fullmatch(bare)):
            ignored.append(f"{prefix}:{value}")
        elif (term := _term(f"{prefix}:{value}" if prefix else value, is_quoted=bool(quoted))) is None:
            ignored.append(value or '"')  # a quotation mark at the end
        elif sign:
            without[term] = None
        elif joins:
            groups[-1][term] = None
            joins = False
        else:
            groups.append({term: None})
    if joins:
        ignored.append("OR")  # nothing came after it
    searched = tuple(name for name in COLUMNS if name in (columns or COLUMNS) and name not in refused)
    if not searched:
        ignored += (f"-in:{name}" for name in refused)  # nothing would be left to search
    return Query(
        groups=tuple(dict.fromkeys(map(tuple, groups))),
        without=tuple(without),
        columns=searched or COLUMNS,
        is_limited=bool(searched and (columns or refused)),
        filters=tuple(filters),
        after=dates.get("after"),
        before=dates.get("before"),
        ignored=tuple(ignored),
    )


def _term(value: str, *, is_quoted: bool) -> Term | None:
    """The term of a word or a phrase; None if there is no letter and no digit in it.

    A word of several tokens (``foo-bar``) is a phrase: its parts follow each other.
    """
    found = list(tokens(value))
    # A text may continue where a query ends, so the last character of the query's last run decides nothing: its pair does. That
    # of a run in the middle means that the run ends there.
    if len(found) > 1 and found[-2].text[1:] == found[-1].text and found[-2].end == found[-1].end:
        del found[-1]
    if not found:
        return None
    words = tuple(token.text for token in found)
    is_part = value.startswith("*") and not is_quoted
    is_end = is_part and len(words) > 1 and not is_cjk(words[0])  # a run of these is found anywhere
    if is_cjk(words[-1]):
        return Term(words, "beginning" if len(words[-1]) == 1 else "whole", is_end)
    if is_quoted:
        return Term(words)
    if is_part and len(words) == 1:
        return Term(words, "part")
    return Term(words, "beginning" if is_part or value.endswith("*") else "whole", is_end)


def role_searched(role: str) -> str:
    """The text that ``role:`` searches: ``model`` in Gemini's form is ``assistant`` in others, so it has both names."""
    return "assistant model" if role in ("assistant", "model") else role


# ---- plan ----
# A query as SQL. The index proposes messages; conditions that need the message itself are left to the matcher.

_Text = TypeVar("_Text", str, bytes)

EVERY = "1"
"""The condition that is always true."""
_TERMS = 256
"""The most terms in a query of the index. Further ones are matched on the messages."""
_LABELS = {"source": "l.name = 'source'", "project": "l.name IN ('cwd', 'project')"}
"""The labels of these filters. A user may set the label `project`, an import sets the folder as `cwd`."""
_REFUSED = {
    **{name: f"NOT has_any(c.{name}, ?)" for name in ("title", "model", "provider")},
    "role": "d.role NOT IN (SELECT n FROM role WHERE has_any(role_searched(name), ?))",
    **{
        name: f"c.n NOT IN (SELECT l.n FROM label l WHERE {label} AND has_any(l.value, ?))"
        for name, label in _LABELS.items()
    },
    "label": "c.n NOT IN (SELECT l.n FROM label l WHERE is_any_label(l.name, l.value, ?))",
    "id": "NOT is_any_id(c.id, c.folder, ?)",
}
"""Many refused values of a filter as one condition, the values as JSON: one by one, each conversation would be tested for each."""
_FEW_REFUSED = {"role": 0}
"""Up to this many (32 by default) are tested one by one: SQLite does that without calling Python. (Roles are few.)"""
_BEGINNINGS_OF_A_PART = 2000
"""If the words that contain a part have more distinct starts, the messages are read."""


class Range(NamedTuple):
    """Documents of the index, from the first to the last number; ``lives`` selects conversations, as JSON; "" for all."""

    first: int
    last: int
    lives: str = ""


EVERYWHERE = Range(0, 2**63 - 1)


class QueryPlan(NamedTuple):
    """A condition in SQL with its values; ``match`` is the FTS5 query, "" for none."""

    match: str
    where: str
    values: list[Any]
    """For ``where``, followed by the lives of a range, if any."""
    is_exact: bool
    """True if the matcher accepts everything that the index proposes, except changed records."""
    ranges: list[Range]
    """The ranges of conversations that match its filters, the last first; they may include others."""

    def of_kind(self, kind: int | None) -> QueryPlan:
        """The same for messages of one kind; None for all."""
        return self if kind is None else self._replace(where=f"d.kind = {kind:d} AND {self.where}")

    def of(self, range: Range) -> list[Any]:
        """The values of a statement for the messages of a range."""
        match = [self.match] if self.match else []
        lives = [range.lives] if range.lives else []
        return [*match, range.first, range.last, *self.values, *lives]


class TooManyWordsError(Exception):
    """The query has too many words for the index."""


def plan_for(connection: sqlite3.Connection, query: Query) -> QueryPlan:
    """The plan for a query.

    Raises:
        TooManyWordsError: read the messages instead.
    """
    asked: list[str] = []
    left = _TERMS
    for group in query.groups:
        if len(group) <= left:
            left -= len(group)
            asked.append(_any_of(connection, group))
    if query.groups and not asked:
        raise TooManyWordsError
    is_exact = len(asked) == len(query.groups) and not any(term.is_end for group in query.groups for term in group)
    match = " AND ".join(asked)
    if match and any(term.is_end for term in query.without):
        is_exact = False  # the index would refuse too many
    elif match and query.without:
        try:
            match = f"({match}) NOT {_any_of(connection, query.without)}"
        except TooManyWordsError:
            is_exact = False
    if match:
        match = f"{{{' '.join(query.columns)}}} : ({match})"
    where, values, ranges = _conditions_of_messages(connection, query)
    is_exact = is_exact and not any(map(_has_fraction, (query.after, query.before)))
    return QueryPlan(match, where, values, is_exact and bool(match), ranges)


def conditions(query: Query) -> tuple[str, list[Any]]:
    """A query's conditions on a conversation, as SQL on ``c``; dates mean the conversation's last change."""
    where, values = _filters(query, of_messages=False)
    for moment, compare in ((query.after, ">="), (query.before, "<")):
        if moment is not None:
            where.append(f"c.updated_at {compare} ?")
            values.append(moment)
    return all_conditions(where), values


def all_conditions(conditions: list[str], by: str = "AND") -> str:
    """Conditions as one, halved and halved again: SQLite refuses an expression that is a thousand levels deep."""
    if len(conditions) < 2:
        return conditions[0] if conditions else EVERY
    middle = len(conditions) // 2
    return f"({all_conditions(conditions[:middle], by)} {by} {all_conditions(conditions[middle:], by)})"


def _conditions_of_messages(connection: sqlite3.Connection, query: Query) -> tuple[str, list[Any], list[Range]]:
    """A query's conditions on a message and its conversation, as SQL on ``d`` and ``c``, and their ranges."""
    where, values = _filters(query, of_messages=True)
    if query.after is not None:
        where.append("d.at >= ?")
        values.append(record_seconds(query.after))
    if query.before is not None:  # the index has whole seconds: the message decides
        where.append("d.at < ?")
        values.append(record_seconds(query.before) + _has_fraction(query.before))
    of_conversations, its = _filters(query, of_messages=False)
    if of_conversations:  # tested once for each conversation, before the lookup for a message
        which = f"c.first_document IS NOT NULL AND {all_conditions(of_conversations)}"
        asked = f"SELECT c.life, c.first_document, c.last_document FROM conversation c WHERE {which}"
        found = connection.execute(asked, its).fetchall()
        return all_conditions([*where, "d.life IN (SELECT value FROM json_each(?))"]), values, _ranges(found)
    return all_conditions(where), values, [EVERYWHERE]


def _ranges(lives: Iterable[tuple[int, int, int]]) -> list[Range]:
    """Disjoint ranges for lives, given with their first and last message; the last range first."""
    found: list[tuple[int, int, list[int]]] = []
    for life, first, last in sorted(lives, key=itemgetter(1)):
        if found and first <= found[-1][1] + 1:
            begin, end, its = found.pop()
            found.append((begin, max(end, last), [*its, life]))
        else:
            found.append((first, last, [life]))
    return [Range(first, last, json.dumps(its)) for first, last, its in reversed(found)]


def as_one(ranges: Sequence[Range]) -> Range:
    """From the first to the last message of some ranges, the last first, with the lives of all of them."""
    if len(ranges) == 1:
        return ranges[0]
    lives = f"[{', '.join(one.lives[1:-1] for one in ranges)}]"
    return Range(ranges[-1].first, ranges[0].last, lives)


def _has_fraction(moment: str | None) -> bool:
    return moment is not None and not moment.endswith(".000000Z")


def _filters(query: Query, *, of_messages: bool) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    asked = [one for one in query.filters if (one.name == "role") == of_messages]
    for name, condition in _REFUSED.items():
        refused = [one.value for one in asked if one.name == name and one.is_not]
        if len(refused) > _FEW_REFUSED.get(name, 32):
            asked = [one for one in asked if one.name != name or not one.is_not]
            where.append(condition)
            values.append(json.dumps(refused))
    for one in asked:
        condition, its = _condition(one)
        where.append(f"NOT coalesce({condition}, 0)" if one.is_not else condition)
        values += its
    return where, values


def _condition(one: Filter) -> tuple[str, list[Any]]:
    match one.name:
        case "role":
            return "d.role IN (SELECT n FROM role WHERE has_text(role_searched(name), ?))", [one.value]
        case "id":
            return "(substr(c.id, 1, ?) = ? OR begins(c.folder, ?))", [len(one.value), one.value.lower(), one.value]
        case "label":
            name, has_value, value = one.value.partition("=")
            if has_value:
                return "EXISTS (SELECT 1 FROM label l WHERE l.n = c.n AND l.name = ? AND is_text(l.value, ?))", [
                    name,
                    value,
                ]
            return "EXISTS (SELECT 1 FROM label l WHERE l.n = c.n AND l.name = ?)", [name]
        case "source" | "project":
            named = f"l.n = c.n AND {_LABELS[one.name]}"
            return f"EXISTS (SELECT 1 FROM label l WHERE {named} AND has_text(l.value, ?))", [one.value]
        case name:
            return _contains(f"c.{name}", one.value)


def _contains(column: str, value: str) -> tuple[str, list[Any]]:
    """True if a text contains another, ignoring case and accents. If both are ASCII, SQLite decides without calling Python."""
    small = _in_small(value)
    if not small.isascii():
        return f"has_text({column}, ?)", [value]
    is_foreign = f"length({column}) < length(CAST({column} AS BLOB))"  # or has a NUL, at which length() stops
    return f"(instr(lower({column}), ?) OR ({is_foreign} AND has_text({column}, ?)))", [small, value]


def _any_of(connection: sqlite3.Connection, terms: tuple[Term, ...]) -> str:
    if len(terms) > _TERMS:
        raise TooManyWordsError
    return f"({' OR '.join(dict.fromkeys(_of_term(connection, term) for term in terms))})"


def _of_term(connection: sqlite3.Connection, term: Term) -> str:
    """A term in the language of FTS5. Tokens have only letters and digits, so none is an operator.

    FTS5 cannot search for the end of a word: the following words propose the messages.
    """
    if term.last == "part":
        return _of_part(connection, term.tokens[-1])
    return f'"{" ".join(term.tokens[term.is_end :])}"' + (" *" if term.last == "beginning" else "")


def _of_part(connection: sqlite3.Connection, part: str) -> str:
    """The words that contain a part, by their starts: every word that starts like one of them up to the part contains it too."""
    found = beginnings_up_to(connection, part, _BEGINNINGS_OF_A_PART + 1)
    if len(found) > _BEGINNINGS_OF_A_PART or len(part.encode()) > LONGEST_WORD:
        raise TooManyWordsError
    return " OR ".join(f'"{word}" *' for word in found) or f'"{part}"'


def functions(connection: sqlite3.Connection) -> None:
    """Register the SQL functions of the conditions."""
    connection.create_function("role_searched", 1, role_searched, deterministic=True)
    connection.create_function("has_text", 2, _has_text, deterministic=True)
    connection.create_function("has_any", 2, _has_any, deterministic=True)
    connection.create_function("is_any_label", 3, _is_any_label, deterministic=True)
    connection.create_function("is_any_id", 3, _is_any_id, deterministic=True)
    connection.create_function("is_text", 2, _is_text, deterministic=True)
    connection.create_function("begins", 2, lambda folder, text: bytes(folder).startswith(text.encode()))


def _has_text(text: str | None, part: str) -> bool:
    return text is not None and _in_small(part) in _in_small(text)


def _has_any(text: str | None, parts: str) -> bool:
    """True if a text contains one of many others, given as JSON: each substring of their lengths is looked up."""
    of_length = _by_length(parts)
    small = "" if text is None else _in_small(text)
    return text is not None and any(
        small[at : at + length] in those for length, those in of_length for at in range(len(small) - length + 1)
    )


@lru_cache(maxsize=4)
def _by_length(parts: str) -> list[tuple[int, set[str]]]:
    return _lengths(map(_in_small, json.loads(parts)))


def _is_any_label(name: str, value: str, labels: str) -> bool:
    names, pairs = _labels(labels)
    return name in names or (name in pairs and _in_small(value) in pairs[name])


@lru_cache(maxsize=4)
def _labels(labels: str) -> tuple[set[str], dict[str, set[str]]]:
    names: set[str] = set()
    pairs: dict[str, set[str]] = {}
    for name, has_value, value in (label.partition("=") for label in json.loads(labels)):
        if has_value:
            pairs.setdefault(name, set()).add(_in_small(value))
        else:
            names.add(name)
    return names, pairs


def _is_any_id(id: str | None, folder: bytes, beginnings: str) -> bool:
    of_ids, of_folders = _beginnings(beginnings)
    return any((id or "")[:length] in those for length, those in of_ids) or any(
        folder[:length] in those for length, those in of_folders
    )


@lru_cache(maxsize=4)
def _beginnings(beginnings: str) -> tuple[list[tuple[int, set[str]]], list[tuple[int, set[bytes]]]]:
    given = json.loads(beginnings)
    return _lengths(one.lower() for one in given), _lengths(one.encode() for one in given)


def _lengths(parts: Iterable[_Text]) -> list[tuple[int, set[_Text]]]:
    found: dict[int, set[_Text]] = {}
    for part in parts:
        found.setdefault(len(part), set()).add(part)
    return sorted(found.items())


def _is_text(text: str | None, other: str) -> bool:
    return text is not None and _in_small(text) == _in_small(other)


def _in_small(text: str) -> str:
    return text.lower() if text.isascii() else fold(text).lower()


Span = tuple[int, int]

EXCERPT_CHARACTERS = 200
_FEW = 32
"""More terms than this are looked up among the tokens of a text, which are cut once for all of them."""
_SPACES = re.compile(r"\s+")
_BEFORE = 60
"""The length of an excerpt before its first highlight."""


class Excerpt(NamedTuple):
    """A part of a message on one line. ``highlights`` are the matching spans of ``text``; ``column`` is its column."""

    text: str
    highlights: tuple[Span, ...]
    column: str


Match = Callable[[Texts], Excerpt | None]
"""Returns the matching excerpt of a message's texts, or None."""


def matcher(query: Query) -> Match:
    """The matcher for a query. Without words it accepts every message that has a text."""
    terms = sum(map(len, query.groups)) + len(query.without)
    cut_of = _Plain if terms <= _FEW else _Cut

    def match(texts: Texts) -> Excerpt | None:
        searched = {name: getattr(texts, name) for name in query.columns}
        cut = {name: cut_of(text) for name, text in searched.items() if text}
        if any(found.spans(term) for term in query.without for found in cut.values()):
            return None
        spans: dict[str, list[Span]] = {name: [] for name in cut}
        for group in query.groups:
            is_there = False
            for name, found in cut.items():
                more = [span for term in group for span in found.spans(term)]
                spans[name] += more
                is_there = is_there or bool(more)
            if not is_there:
                return None
        best = max(cut, key=lambda name: bool(spans[name]), default=None)
        return None if best is None else excerpt(searched[best], sorted(spans[best]), best)

    return match


def with_pattern(match: Match, query: Query, pattern: re.Pattern[str]) -> Match:
    """The matcher that also requires a regular expression in one of the query's columns. The excerpt shows its match."""

    def both(texts: Texts) -> Excerpt | None:
        for name in query.columns:
            text = getattr(texts, name)
            if (found := pattern.search(text)) is not None:
                return excerpt(text, [found.span()], name) if match(texts) is not None else None
        return None

    return both


class _Plain:
    """A text in which a pattern finds an ASCII word, in a tenth of the time that all its tokens take.

    Other words are cut into tokens: those around a non-ASCII character, and all of them for a term of several.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._foreign_runs = [] if text.isascii() else list(foreign_runs(text))
        self._small = (blanked(text, self._foreign_runs) if self._foreign_runs else text).lower()

    def spans(self, term: Term) -> list[Span]:
        if not self._foreign_runs:
            return self._in_ascii(term)
        # Only the rest of its own run follows a pair.
        if any(len(token) != 2 or not is_cjk(token) for token in term.tokens[:-1]):
            return self._cut.spans(term)
        return self._foreign.spans(term) + (self._in_ascii(term) if len(term.tokens) == 1 else [])

    def _in_ascii(self, term: Term) -> list[Span]:
        found = _pattern_of(term).finditer(self._small)
        may_begin_before = term.is_end or (term.last == "part" and len(term.tokens) == 1)
        return [
            (_begin_of_word(self._small, one.start()) if may_begin_before else one.start(), one.end(one.lastindex or 0))
            for one in found
        ]

    @cached_property
    def _cut(self) -> _Cut:
        return _Cut(self._text)

    @cached_property
    def _foreign(self) -> _Cut:
        return _Cut(self._text, self._foreign_runs)


@lru_cache(maxsize=4 * _FEW)
def _pattern_of(term: Term) -> re.Pattern[str]:
    """A pattern for a term in lower-case ASCII text. Its tokens have only letters and digits; overlapping ones are found too.

    It starts with the letters of the first token, which is faster than a test of each word. The text before them is tested
    afterwards, the text after them is group 1. For a part, and for an end, :func:`_begin_of_word` finds the word's start.
    """
    first, *others = map(re.escape, term.tokens)
    behind = "(?![a-z0-9])" if term.last == "whole" else "[a-z0-9]*+"
    is_begin = "" if term.is_end else f"(?<![a-z0-9]{first})"
    if not others:
        return re.compile(first + ("" if term.last == "part" else is_begin) + behind)
    others[-1] = ("[a-z0-9]*?" if term.last == "part" else "") + others[-1] + behind
    return re.compile(f"{first}{is_begin}(?=({''.join('[^a-z0-9]++' + one for one in others)}))")


def _begin_of_word(text: str, at: int) -> int:
    while at and text[at - 1].isalnum():
        at -= 1
    return at


class _Cut:
    """The tokens of a text, or of some spans of it, and the positions of each word."""

    def __init__(self, text: str, stretches: Iterable[Span] | None = None) -> None:
        self._tokens = list(tokens(text, stretches))
        self._places: dict[str, list[int]] = {}
        for place, token in enumerate(self._tokens):
            self._places.setdefault(token.text, []).append(place)

    def spans(self, term: Term) -> list[Span]:
        """The positions of a term in the text."""
        *firsts, last = term.tokens
        count = len(firsts)
        is_one_character = term.last == "beginning" and is_cjk(
            last
        )  # a pair starts with it: only this character is highlighted
        return [
            (
                self._tokens[place - count].start,
                self._tokens[place].first_end if is_one_character else self._tokens[place].end,
            )
            for place in self._places_of(last, term.last)
            if place >= count and self._stand_before(place, firsts, is_end=term.is_end)
        ]

    def _stand_before(self, place: int, firsts: list[str], *, is_end: bool) -> bool:
        there = [token.text for token in self._tokens[place - len(firsts) : place]]
        return there == firsts or (is_end and there[1:] == firsts[1:] and there[0].endswith(firsts[0]))

    def _places_of(self, word: str, how: str) -> Iterable[int]:
        if how == "whole":
            return self._places.get(word, ())
        is_it = str.startswith if how == "beginning" else str.__contains__
        return (place for known, places in self._places.items() if is_it(known, word) for place in places)


def excerpt(text: str, spans: Sequence[Span], column: str) -> Excerpt:
    """The part of a text around the first of some spans, with white space as one space; without spans its start."""
    first = spans[0][0] if spans else 0
    start = max(0, min(first - _BEFORE, len(text) - EXCERPT_CHARACTERS))
    if start and (space := text.find(" ", start, first)) >= 0:
        start = space + 1
    end = min(len(text), start + EXCERPT_CHARACTERS)
    out, marks = ["…"] if start else [], []
    length = len(out)
    # A printable text has no white space but spaces, and most texts are printable.
    is_plain = "  " not in (shown := text[start:end]) and shown.isprintable()
    for piece, is_marked in _pieces(text, start, end, spans):
        plain = piece if is_plain else _SPACES.sub(" ", piece)
        if is_marked:
            marks.append((length, length + len(plain)))
        out.append(plain)
        length += len(plain)
    return Excerpt("".join(out) + ("…" if end < len(text) else ""), tuple(marks), column)


def _pieces(text: str, start: int, end: int, spans: Sequence[Span]) -> Iterator[tuple[str, bool]]:
    at = start
    for span in spans:
        first, last = max(span[0], at), min(span[1], end)  # spans may overlap
        if first < last:
            yield text[at:first], False
            yield text[first:last], True
            at = last
    yield text[at:end], False
