"""What a form of secret is, and the pieces that several forms share."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A form of secret: ``[redacted:<name>]`` stands for it."""

    name: str
    marks: tuple[str, ...]
    """What it begins with. To look for a text is far faster than for a pattern, and most texts have none of them."""
    rest: str
    """What follows the mark. The secret is the group ``secret``, or mark and rest. No repetition is within another one, unless what
    stands between two rounds ends the first, and none gives back more than 256 characters. So it takes time by the length of what it
    matches."""
    is_anywhere: bool = False
    """Whether a letter may stand before the mark."""
    is_alone: bool = False
    """Whether ``+``, ``/`` and ``-`` may not stand before it either: within other base64, or within a name, it is none."""
    is_random: bool = False
    """Whether the secret must not look like a name that somebody chose."""
    is_basic: bool = False
    """Whether the secret must be ``user:password`` in base64."""
    before: str = ""
    """What stands right before the mark and belongs to the secret: one character class of a fixed width for each part."""
    width: int = 0
    """How many characters that is."""
    near: str = ""
    """What stands in the ``NEAR`` characters before the mark: a pattern, which ends there if it ends in ``$``."""
    each: str = ""
    """Where ``secret`` has several of them, each by itself: their pattern, with a group ``secret``."""


NEAR = 256


def kind(name: str, marks: str, rest: str, *, anywhere: bool = False, **more: object) -> Kind:
    """A kind, and its marks with blanks between them; ``+`` stands for a blank within one."""
    return Kind(name, tuple(mark.replace("+", " ") for mark in marks.split()), rest, anywhere, **more)  # type: ignore[arg-type]


DONE = r"\[redacted:[a-z0-9-]{1,40}\]"
"""What stands in the place of a secret."""
CHARACTER = r"[A-Za-z0-9_-]"
ENDS = r"(?![A-Za-z0-9+/=_-])"
"""Nothing follows that could go on with it, in whichever base64."""
QUOTE = r"[\"'`\\]"
SET = (
    rf"(?:{QUOTE}{{0,4}}(?: ?\[[^\]\s]{{0,32}}\])?\s{{0,4}}[:=]>?\s{{0,4}}(?:b(?=[\"']))?{QUOTE}{{0,4}}"
    rf"|{QUOTE}{{1,4}}\s{{0,4}},(?:\s|\\[nrt]){{0,32}}(?:{QUOTE}{{1,4}}[Vv]alue{QUOTE}{{1,4}}\s{{0,4}}:\s{{0,4}})?"
    rf"(?:b(?=[\"']))?{QUOTE}{{1,4}}|%3[AaDd](?:%20|\+){{0,2}})"
)
"""Between a name and its value, in any notation: ``"Name": "``, ``NAME=``, ``\"name\":\"``, ``Name [as it is set]: ``, ``'name' => '``;
quoted, as a pair: ``('Name', 'value')``, ``"name":"Name","value":"``; and in a URL, ``Name%3A%20``.
"""
