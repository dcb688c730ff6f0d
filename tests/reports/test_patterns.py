"""CPython's issues 106052, 100061 and 101955: a possessive repeat of a group matches what it must not, does not end, or raises.

The incident: Debian 12's Python 3.11.2 never finished an ordinary message. Up to 3.11.4 the possessive repeat of a group is
wrong, and up to 3.12.7 and 3.13.0 it is wrong if it captures. The repeat of one character is right on all of them: 15,000 random
patterns gave the same matches on 3.11.2, 3.11.7, 3.12.1 and 3.13.0.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import transcript_store
from tests.kit.tools import looks_elsewhere

PACKAGE = Path(transcript_store.__file__).parent
QUANTIFIER = r"(?:[*+?]|\{{1,2}\d+,?\d*\}{1,2}|\{{1,2},\d+\}{1,2})"
OF_A_GROUP = re.compile(rf"\)\s*{QUANTIFIER}\+")
OF_ANYTHING = re.compile(rf"[\])\w.}}]{QUANTIFIER}\+|^{QUANTIFIER}\+", re.MULTILINE)
ONE_CHARACTER = {ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN}

MATCHES = """
import json, re, sys
print(json.dumps([
    [[[match.span(), match.groups()] for match in re.finditer(pattern, text, flags)] for text in texts]
    for pattern, flags, texts in json.load(sys.stdin)
]))
"""


def modules_with_possessive_repeats() -> list[str]:
    files = (path for path in sorted(PACKAGE.rglob("*.py")) if OF_ANYTHING.search(path.read_text("utf-8")))
    return [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in files]


def patterns_in(value: Any) -> Iterator[tuple[str, int]]:
    """The patterns among a module's values, compiled or not, as text."""
    if isinstance(value, re.Pattern):
        said = value.pattern if isinstance(value.pattern, str) else value.pattern.decode("latin-1")
        yield said, value.flags & ~(0 if isinstance(value.pattern, str) else re.ASCII)
    elif isinstance(value, str) and OF_ANYTHING.search(value):
        yield value, 0
    elif isinstance(value, tuple):
        for each in value:
            yield from patterns_in(each)


def patterns() -> list[tuple[str, int]]:
    found: dict[tuple[str, int], None] = {}
    for name in modules_with_possessive_repeats():
        try:
            module = importlib.import_module(name)
        except ImportError:  # its extra is not installed
            continue
        for at, value in list(vars(module).items()):
            if not at.startswith("__"):
                found |= dict.fromkeys(patterns_in(value))
    return list(found)


def repeated(tree: Any) -> Iterator[Any]:
    """What each possessive repeat of a parsed pattern repeats."""
    if isinstance(tree, (list, tuple, parser.SubPattern)):
        if isinstance(tree, tuple) and tree and tree[0] is ops.POSSESSIVE_REPEAT:
            yield tree[1][2]
        for each in tree:
            yield from repeated(each)


def is_right_everywhere(pattern: str, flags: int) -> bool:
    return all(len(item) == 1 and item[0][0] in ONE_CHARACTER for item in repeated(parser.parse(pattern, flags)))


def a_match(tree: Any, draw: random.Random, groups: dict[int, str]) -> str:
    """A text that a parsed pattern mostly matches: what it looks ahead and behind for is left out."""
    made = ""
    for op, value in tree:
        if op is ops.LITERAL:
            made += chr(value)
        elif op is ops.IN:
            made += draw.choice([chr(of) for kind, of in value if kind is ops.LITERAL] or ["a", "7", "-"])
            made = made[:-1] + next((chr(draw.randint(*of)) for kind, of in value if kind is ops.RANGE), made[-1])
        elif op in {ops.ANY, ops.NOT_LITERAL}:
            made += draw.choice('a7" \\')
        elif op in {ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT}:
            least, most, item = value
            made += "".join(a_match(item, draw, groups) for _ in range(draw.randint(least, min(most, least + 3))))
        elif op is ops.SUBPATTERN:
            text = groups[value[0]] = a_match(value[3], draw, groups)
            made += text
        elif op is ops.BRANCH:
            made += a_match(draw.choice(value[1]), draw, groups)
        elif op is ops.GROUPREF:
            made += groups.get(value, "")
    return made


def changed(text: str, draw: random.Random) -> str:
    """The text with one character missing, doubled or replaced: what almost matches is where matchers differ."""
    at = draw.randrange(len(text) + 1)
    return text[:at] + draw.choice(["", text[at : at + 1] * 2, draw.choice('a7_ *!`"\\\n;/')]) + text[at + 1 :]


def oldest_python() -> str:
    """The Python of the oldest patch version on this machine, of those that can run this package."""
    found: dict[tuple[str, ...], str] = {platform.python_version_tuple(): sys.executable}
    candidates: list[Path] = []
    if looks_elsewhere():
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
        candidates += [Path("/usr/bin/python3"), *Path("/usr/bin").glob("python3.1[0-9]")]
        candidates += pyenv.glob("versions/3.*/bin/python")
    for python in candidates:
        if python.exists():
            said = subprocess.run([python, "-VV"], capture_output=True, text=True, check=True).stdout.split()[1]
            found[tuple(said.split("."))] = str(python)
    usable = [version for version in found if version[0] == "3" and int(version[1]) >= 11 and version[2].isdigit()]
    return found[min(usable, key=lambda version: [int(part) for part in version])]


def test_no_possessive_quantifier_repeats_a_group() -> None:
    """In the source of the package and of the tests, also where a pattern is put together only when it is needed."""
    top = PACKAGE.parent
    files = [
        path for room in ("transcript_store", "tests", "benchmarks", "examples") for path in (top / room).rglob("*.py")
    ]
    found = [f"{path}: {match[0]}" for path in files for match in OF_A_GROUP.finditer(path.read_text("utf-8"))]
    assert found == []


def test_each_possessive_repeat_is_of_one_character() -> None:
    """As Python itself reads the patterns: one that is put together of several texts, too."""
    of_the_package = patterns()
    assert len(of_the_package) > 40
    assert [pattern for pattern, flags in of_the_package if not is_right_everywhere(pattern, flags)] == []
    wrong = "(?:ab?c)" + "*+"  # in two: this file is read as well
    assert not is_right_everywhere(wrong, 0)
    assert OF_A_GROUP.search(wrong)


def test_the_oldest_python_of_this_machine_finds_the_same() -> None:
    """The patterns with possessive repeats, in texts that each matches or almost matches."""
    draw = random.Random(11)
    asked = []
    for pattern, flags in patterns():
        tree = parser.parse(pattern, flags)
        whole = [a_match(tree, draw, {}) for _ in range(8)]
        asked.append(
            (pattern, flags, [*whole, *(changed(draw.choice(whole), draw) for _ in range(24)), " ".join(whole)])
        )
    answers = [
        json.loads(
            subprocess.run(
                [python, "-I", "-c", MATCHES],
                input=json.dumps(asked),
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout
        )
        for python in (oldest_python(), sys.executable)
    ]
    assert answers[0] == answers[1]
    assert sum(bool(match) for match in answers[1]) > 40


def test_an_ordinary_message_is_rendered() -> None:
    """The message that never ended."""
    markup = pytest.importorskip("transcript_store.view.markup")
    said = "Why does the **socket** time out? See [the docs](https://example.com/a) and *wait* in `client.py`, ~~once~~ twice."
    (inline,) = (token for token in markup.parse_markdown(said, {}) if token.type == "inline")
    assert [child.type for child in inline.children if child.type.endswith("_open")] == [
        "strong_open", "link_open", "em_open", "s_open",
    ]  # fmt: skip
