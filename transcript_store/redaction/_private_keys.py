r"""Private keys in a text (PEM, OpenSSH, PGP): whole, or cut off by what showed them.

A key that is shown may have something in front of each line: a number (``     2→MII…``, ``2:MII…``), ``> ``, ``-``, a file's name, a time.
What stands there is not looked at. A key goes on as long as its next line begins near the end of the one before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARK = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")


def _base64_of(least: int) -> re.Pattern[str]:
    """That many characters of base64, with a capital and a digit among the first ones: a hash in hex has no capital, a word no digit.
    It is looked for where such characters begin: not once more at each of them.
    """
    a_capital, a_digit = r"(?=[a-z0-9+/=]{0,80}[A-Z])", r"(?=[A-Za-z+/=]{0,80}[0-9])"
    return re.compile(rf"(?<![A-Za-z0-9+/=]){a_capital}{a_digit}[A-Za-z0-9+/=]{{{least},}}+")


_LINE = _base64_of(40)
"""A line of a key of which the end is missing. Programs write 64 to 76 in each but the last."""
_SOME_OF_IT = _base64_of(24)
"""A line between BEGIN and END. A terminal may have wrapped it, but not more narrowly than BEGIN, which is in one line."""
_PIECE = re.compile(r"[A-Za-z0-9+/=]++(?![^\r\n\\\"'])")
"""The last line, or a piece of one, and nothing else in it."""
_NUMBER = re.compile(r"[ \d]+")
_NEAR = 240
"""Characters between two lines of a key: what stands in front of a line, a note of what was left out, the headers of an encrypted key."""


def private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """From each BEGIN to its END. Without one, as a command that cuts its output leaves it: all that can belong to the key."""
    begun: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        if begun is not None and mark[1] == "END":
            if _SOME_OF_IT.search(text, begun.end(), mark.start()):  # else somebody speaks of the form
                yield begun.start(), mark.end(), "private-key"
            begun = None
        elif mark[1] == "BEGIN":
            if begun is not None:
                yield from _cut_key(text, begun)
            begun = mark
    if begun is not None:
        yield from _cut_key(text, begun)


def _cut_key(text: str, begun: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    at = begun.end()
    next_mark = text.find("-----", at)  # of any kind: a certificate may follow
    end = next_mark if next_mark >= 0 else len(text)
    front = ""
    while (line := _LINE.search(text, at, end)) and line.start() - at <= _NEAR:
        front, at = text[at : line.start()], line.end()
    if at > begun.end():  # else somebody speaks of the form
        last = _PIECE.match(text, _behind(front, text, at), end)
        yield begun.start(), last.end() if last else at, "private-key"


def _behind(front: str, text: str, at: int) -> int:
    """Where a line begins that has the same in front of it as another one, whatever its number is. Without such a line, the text's end."""
    for nth, part in enumerate(_NUMBER.split(front)):
        if nth:
            number = _NUMBER.match(text, at)
            at = number.end() if number else len(text)
        at = at + len(part) if text.startswith(part, at) else len(text)
    return at
