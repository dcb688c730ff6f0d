"""The text of a help, as wide as the terminal is."""

from __future__ import annotations

import re
from argparse import RawDescriptionHelpFormatter
from itertools import groupby
from textwrap import fill, wrap

_WIDEST = 118
_LAST_COLUMN = re.compile(r"(.*\S {2,})(\S.*)")
_NARROWEST = 24


class HelpFormatter(RawDescriptionHelpFormatter):
    """Paragraphs are filled. A line that is indented stays one, so that an example can be copied; of columns the last one is wrapped."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width = min(width, _WIDEST)
        lines = []
        for is_prose, some in groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
            if is_prose:
                said = " ".join(some)  # a name with a hyphen is copied whole
                lines += [fill(said, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)]
            else:
                lines += [kept for line in some for kept in _in_columns(indent + line, width)]
        return "\n".join(lines)


def _in_columns(line: str, width: int) -> list[str]:
    columns = _LAST_COLUMN.fullmatch(line)
    if len(line) <= width or columns is None or width - len(columns[1]) < _NARROWEST:
        return [line]
    below = " " * len(columns[1])
    return wrap(columns[2], width, initial_indent=columns[1], subsequent_indent=below, break_on_hyphens=False)
