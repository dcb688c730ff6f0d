"""The conversation of the lab in each program's form, and what the library finds in the program's home."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.programs.lab import ANSWER, NOTE, Lab
from transcript_store import ConversationLibrary
from transcript_store.importing import ImportReport, discover, import_conversations
from transcript_store.messages import parts_of

QUESTION = "READ the note, please."
SAID = ("READ the note", "note.txt", NOTE, ANSWER, "And what was it?", "And once more")


OWN = ("<system-reminder>", "<session_context>")


def exchanges(messages: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """What was said in the lab, in order: the question, the call, the note that the tool read, the answer.

    How a program wraps it (as JSON, behind line numbers), and what it says for itself, is its own.
    """
    parts = [part for message in messages for part in parts_of(message) if not any(own in part.text for own in OWN)]
    return [(part.kind, words) for part in parts for words in [word for word in SAID if word in part.text][:1]]


def sessions(lab: Lab, program: str) -> list[str]:
    """The files that the library finds of a program, by where that program keeps them."""
    return [
        found.path for found in discover(home=lab.home, environ={"HOME": str(lab.home)}) if found.program == program
    ]


def files(lab: Lab, program: str) -> list[Path]:
    """The same as paths."""
    return [Path(path) for path in sessions(lab, program)]


def session_of(program: str, path: Path) -> str:
    """How a session is named on the program's command line."""
    if program == "gemini-cli":
        return str(json.loads(path.read_bytes().partition(b"\n")[0])["sessionId"])
    return {"claude-code": path.stem, "codex": path.stem[-36:], "pi": str(path)}[program]


def imported(lab: Lab, program: str, library: ConversationLibrary) -> list[ImportReport]:
    return list(import_conversations(sessions(lab, program), library))
