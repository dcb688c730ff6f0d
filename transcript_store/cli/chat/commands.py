"""The commands inside a chat, such as ``/help``: they are for the program, and are never sent or recorded."""

from __future__ import annotations

import re
from typing import NamedTuple

QUIT, HELP, HISTORY, RETRY, DROP, MODEL, SEARCH = "/quit", "/help", "/history", "/retry", "/drop", "/model", "/search"

HELP_TEXT = """\
/history [N]    what was said: the last N turns (10)
/retry          ask an unanswered question again, as an empty line does
/drop           take an unanswered question back
/model [NAME]   which model answers; with NAME another one, from now on
/search WORDS   where that was said, in all conversations beside this one too
/quit           leave, as exit, quit and Ctrl-D do
A line that begins with / and a word is a command. A space before it sends it."""

_SAID_ALONE = {"exit": QUIT, "quit": QUIT}
_COMMAND = re.compile(r"(/[a-z][a-z0-9_-]*)(?:\s+(.*))?", re.IGNORECASE)
_SAME = {"/exit": QUIT, "/q": QUIT, "/h": HELP}


class Command(NamedTuple):
    """A command's name and its argument. The name may be unknown: the caller says so."""

    name: str
    argument: str = ""


def command_in(line: str) -> Command | None:
    """The command in a line; None if the line is a message.

    These are messages: a text of several lines, a path (``/etc/hosts``), and a line that begins with a space.
    """
    line = line.rstrip()
    if line.lower() in _SAID_ALONE:
        return Command(_SAID_ALONE[line.lower()])
    if "\n" in line or (match := _COMMAND.fullmatch(line)) is None:
        return None
    name = match[1].lower()
    return Command(_SAME.get(name, name), (match[2] or "").strip())
