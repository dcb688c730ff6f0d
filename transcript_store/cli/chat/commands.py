"""What is typed to the program and not to the model: never sent, never recorded."""

from __future__ import annotations

import re
from typing import NamedTuple

QUIT, HELP, HISTORY, RETRY, MODEL = "/quit", "/help", "/history", "/retry", "/model"

HELP_TEXT = """\
/history [N]    what was said: the last N turns (10)
/retry          ask the last question again, if nothing answered it; an empty line does the same
/model [NAME]   which model answers; with NAME another one, from now on
/quit           leave, as exit, quit and Ctrl-D do
Whatever else begins with / and a word is not sent; with a space in front of it, it is."""

_SAID_ALONE = {"exit": QUIT, "quit": QUIT}
_COMMAND = re.compile(r"(/[a-z][a-z0-9_-]*)(?:\s+(.*))?", re.IGNORECASE)
_SAME = {"/exit": QUIT, "/q": QUIT, "/h": HELP}


class Command(NamedTuple):
    """A command by its name, which may be one that there is not, and what stands behind it."""

    name: str
    argument: str = ""


def command_in(line: str) -> Command | None:
    """The command that a line is, None if it is a message.

    A message of several lines is never one; neither is a path (``/etc/hosts``), nor what a space stands in front of.
    """
    line = line.rstrip()
    if line.lower() in _SAID_ALONE:
        return Command(_SAID_ALONE[line.lower()])
    if "\n" in line or (match := _COMMAND.fullmatch(line)) is None:
        return None
    name = match[1].lower()
    return Command(_SAME.get(name, name), (match[2] or "").strip())
