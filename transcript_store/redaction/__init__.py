r"""Removes secrets that should not be stored: a function from message to message.

.. code-block:: python

    from transcript_store.redaction import SecretRedactor

    redact = SecretRedactor(patterns=[r"ACME-\d{6}"])
    message = redact({"role": "user", "content": "The ticket is ACME-123456."})
    print(message["content"])  # The ticket is [redacted:pattern].

It finds secrets with a recognizable form: keys and tokens of services, private keys, JSON web tokens, passwords in
the URL of a server. It cannot find a password in plain words: give a pattern for it. docs/import.md has the
measurements.

JSON within a text is changed in part. The rest keeps its spelling: ``1e400`` and ``1.10`` are numbers that Python would
write differently, and an indentation is intentional.
"""

from __future__ import annotations

import base64
import json
import operator
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from transcript_store.redaction._forms import (
    DONE,
    private_keys,
    secrets_in,
    secrets_named,
    split_from_unseen,
    texts_in_base64,
)

__all__ = ["Redacted", "SecretRedactor"]

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"|[{}\[\]]|[^\s"{}\[\],:]++')
"""A text, a bracket, a number or a word."""


def parse_json_text(text: str) -> Any:
    """The object or list that a text is.

    Raises:
        ValueError: it is not JSON, or has an object with a repeated name: the first value would not be checked.
        RecursionError: it nests more deeply than Python goes.
    """
    return json.loads(text, object_pairs_hook=_each_name_once)


def _each_name_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    each = dict(members)
    if len(each) < len(members):
        raise ValueError
    return each


def respelled(text: str, value_read: Any, now: Any) -> str:
    """A text that said one value, with each part of it that is another object now spelled again."""
    tokens = _TOKEN.finditer(text)
    pieces: list[str] = []
    done = 0

    def value(value_read: Any, now: Any) -> None:
        nonlocal done
        first = last = next(tokens)
        is_held = isinstance(value_read, (dict, list)) and type(value_read) is type(now) and len(value_read) == len(now)
        if value_read is not now and is_held:
            for part, part_now in zip(_parts(value_read), _parts(now), strict=True):
                value(part, part_now)
            next(tokens)  # its closing bracket
            return
        level = int(first[0] in "{[")
        while level:
            last = next(tokens)
            level += (last[0] in "{[") - (last[0] in "}]")
        if value_read is not now:
            pieces.extend((text[done : first.start()], json.dumps(now, ensure_ascii="\\u" in first[0])))
            done = last.end()

    value(value_read, now)
    return "".join((*pieces, text[done:]))


def _parts(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return chain.from_iterable(value.items()) if isinstance(value, dict) else value


KNOWN = 9
"""The version of the forms that are known. It grows when a form is added or changed."""

_DONE = re.compile(DONE)
_TEXTS_WITHIN = 8
"""How deep JSON may stand within texts of JSON: arguments of a call in the arguments of a call."""
_DEEPEST = 254
"""How deep a value may nest: no record holds a deeper one."""


class Redacted(NamedTuple):
    """A value without secrets, and how many of each kind there were."""

    value: Any
    """The very object that was given, if there were none."""
    counts: Mapping[str, int]


def require_redactor(redact: object) -> None:
    """Raise ``TypeError`` unless this is a :class:`SecretRedactor`, which counts the removed secrets by kind."""
    if not isinstance(redact, SecretRedactor):
        raise TypeError(f"redact must be a SecretRedactor, not {type(redact).__name__}: give SecretRedactor()")


class SecretRedactor:
    """Takes secrets out of messages: a call gives the message with ``[redacted:<kind>]`` instead of each.

    Every text anywhere in a message is searched: names of members too, the values within a JSON text, and that text
    itself. A message without secrets is returned as the same object; no given object is changed. A redacted message has
    none, so it can be given again.

    Thinking that had a secret in it, or in its signature, is no longer what its provider signed. Such a block becomes a text,
    ``[redacted:thinking]``. JSON in a text keeps its spelling; only the removed parts change.

    Args:
        patterns: your own regular expressions; matches are replaced by ``[redacted:pattern]``. They run unchanged: one in
            which a repetition is repeated (``(a+)+``) may take for ever.

    Raises:
        TypeError: a pattern is not text, or ``patterns`` is a single pattern.
        ValueError: a pattern is not a regular expression, or matches the empty text.
    """

    def __init__(self, *, patterns: Iterable[str] = ()) -> None:
        if isinstance(patterns, (str, bytes)):
            raise TypeError("patterns must be a list of regular expressions, not one of them: pass [pattern]")
        self.patterns = tuple(patterns)
        self._own: list[re.Pattern[str]] = []
        for number, text in enumerate(self.patterns, 1):
            if not isinstance(getattr(text, "pattern", text), str):
                raise TypeError(f"pattern {number} must be text, not {type(text).__name__}")
            try:
                pattern = re.compile(text)
            except re.error as error:
                raise ValueError(f"pattern {number} is not a regular expression: {error}") from None
            if pattern.search("") is not None:
                raise ValueError(f"pattern {number} matches the empty text, and so everywhere")
            self._own.append(pattern)

    def __repr__(self) -> str:
        return f"SecretRedactor({len(self.patterns)} patterns of one's own)"  # a pattern may be the secret itself

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message without secrets."""
        redacted: dict[str, Any] = self.redact(message).value
        return redacted

    def redact(self, value: Any) -> Redacted:
        """Any JSON value without secrets, and how many of each kind there were."""
        counts: Counter[str] = Counter()
        return Redacted(self._value(value, counts, _TEXTS_WITHIN, 0), dict(sorted(counts.items())))

    def _value(self, value: Any, counts: Counter[str], within: int, depth: int, name: str = "") -> Any:
        """A value, and the text that names it."""
        if isinstance(value, str):
            return self._text(value, counts, within, depth, name)
        if not isinstance(value, (list, dict)):
            return value
        if depth > _DEEPEST:
            counts["too-deep"] += 1
            return "[redacted:too-deep]"
        if isinstance(value, dict):
            return self._object(value, counts, within, depth + 1)
        items = []
        for item in value:
            items.append(self._value(item, counts, within, depth + 1, name))
            name = item if isinstance(item, str) else ""  # of a pair: the item before a value names it
        return items if any(map(operator.is_not, items, value)) else value

    def _object(self, value: dict[str, Any], counts: Counter[str], within: int, depth: int) -> dict[str, Any]:
        changed = False
        members: dict[str, Any] = {}
        for name, member in value.items():
            if isinstance(member, str) and name.endswith("_base64"):
                now: Any = self._bytes(member, counts)
            else:
                now = self._value(member, counts, within, depth, _name_of(name, value))
            called = self._text(name, counts, 0, depth)
            changed |= now is not member or called is not name
            while called in members:  # two secrets as names: neither value is lost
                called += "'"
            members[called] = now
        if not changed:
            return value
        is_signed = "thinking" in value and isinstance(value.get("signature"), str)
        if is_signed and any(members.get(name) is not value[name] for name in ("thinking", "signature")):
            return {"type": "text", "text": "[redacted:thinking]"}
        return members

    def _text(self, text: str, counts: Counter[str], within: int, depth: int, name: str = "") -> str:
        """A text, and the text that names it."""
        if within and text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
            try:
                value_read = parse_json_text(text)
            except ValueError:
                pass  # a text that only looks like JSON
            except RecursionError:  # how deep Python goes differs from version to version
                counts["too-deep"] += 1
                return "[redacted:too-deep]"
            else:
                now = self._value(value_read, counts, within - 1, depth)
                if now is not value_read:
                    text = respelled(text, value_read, now)
                # It is a text too: a pattern may be of a number, or of a name with its value.
        found = [*self._found(text)]
        found += [  # a secret with a form is named by that
            (first, last, kind)
            for first, last, kind in secrets_named(name, text)
            if not any(start <= first and last <= end for start, end, _ in found)
        ]
        found.sort()
        if not found:
            return text
        pieces, done = [], 0
        for start, end, kind in found:
            if start >= done:
                pieces += [text[done:start], f"[redacted:{kind}]"]
                counts[kind] += 1
            elif end > done:  # two kinds overlap: both are removed, the first one is named
                pieces.append("")
            done = max(done, end)
        return "".join((*pieces, text[done:]))

    def _bytes(self, text: str, counts: Counter[str]) -> str:
        """Bytes that were no text: bytes again, without the secrets among them."""
        try:
            read = base64.b64decode(text, validate=True).decode("latin-1")
        except ValueError:
            return self._text(text, counts, 0, 0)
        now = self._text(read, counts, 0, 0)
        return text if now is read else base64.b64encode(now.encode("latin-1", "replace")).decode()

    def _found(self, text: str, *, is_decoded: bool = False, is_shown: bool = False) -> Iterator[tuple[int, int, str]]:
        """The positions and kinds of secrets. ``is_shown``: what is unseen was removed from the text; codes that were within codes stay."""
        # The text itself is looked through as well: there a colour ends the word before a secret.
        if not is_shown:
            shown, places, gone = split_from_unseen(text)
            for start, end, kind in self._found(shown, is_decoded=is_decoded, is_shown=True) if places else ():
                # What is unseen in front of the first character, or behind the last one, is no part of it.
                first, last = bisect_right(places, start), bisect_left(places, end)
                yield start + (gone[first - 1] if first else 0), end + (gone[last - 1] if last else 0), kind
        if "PRIVATE KEY" in text:
            yield from private_keys(text)
        yield from secrets_in(text)
        if not is_decoded:
            for start, end, said in texts_in_base64(text):
                if found := next(self._found(said, is_decoded=True), None):
                    yield start, end, found[2]
        done = [match.span() for match in _DONE.finditer(text)] if self._own and "[redacted:" in text else []
        for pattern in self._own:
            for match in pattern.finditer(text):
                start, end = match.span()
                before = bisect_right(done, (start, len(text))) - 1
                if end > start and not (before >= 0 and end <= done[before][1]):
                    yield start, end, "pattern"


def _name_of(name: str, members: dict[str, Any]) -> str:
    """The name of a member; for a ``value`` the ``name`` beside it, as in recorded headers."""
    if name not in ("value", "Value"):
        return name
    return next(
        (value_read for key in ("name", "Name", "key", "Key") if isinstance(value_read := members.get(key), str)), name
    )
