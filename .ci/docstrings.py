"""For the site: docstrings are written for `help()` and for the source, in a few forms of reStructuredText; the site wants Markdown."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|data|func|meth|mod):`~?([^`]+)`")
_EXAMPLE = re.compile(r"\.\. code-block:: (\w+)\n\n((?: {4}.*\n?|\n)+)")


class Plain(griffe.Extension):
    """Roles become code, blocks of code become fenced ones."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(_fenced, text).replace("``", "`")


def _fenced(match: re.Match[str]) -> str:
    lines = [line.removeprefix("    ") for line in match[2].rstrip("\n").split("\n")]
    return "\n".join([f"~~~{match[1]}", *lines, "~~~", ""])
