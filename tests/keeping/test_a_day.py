"""A day in the life: programs write, the keeper is killed again and again, the disk fills once, a folder is renamed, retention deletes.

At the end every message is in the library, in order, once, and the sessions come out byte for byte, those too that are gone.
"""

from __future__ import annotations

import io
import json
import os
import random
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from tests.keeping.day import live_a_day, small_disk
from tests.keeping.helpers import LONG_AGO, line, texts
from transcript_store import ConversationLibrary
from transcript_store.exporting import export

KILLS, SESSIONS = 30, 12


class Program:
    """A program that writes sessions of several formats, a line at a time, and never the same time twice."""

    def __init__(self, home: Path, choose: random.Random) -> None:
        self.home, self.choose = home, choose
        names = [*(f"claude{number}" for number in range(SESSIONS)), *(f"codex{number}" for number in range(SESSIONS))]
        self.counts = dict.fromkeys(names, 0)
        self.written: dict[str, bytes] = {}
        self.paths: dict[str, Path] = {}
        self._alive = list(names)
        self._times = LONG_AGO
        for name in names:
            self._say(name)

    def write_for(self, seconds: float) -> None:
        """Write a few messages at a time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(self.choose.randrange(1, 6)):
                self._say(self.choose.choice(self._alive))
            time.sleep(self.choose.uniform(0, 0.2))

    def _say(self, session: str) -> None:
        self.counts[session] += 1
        self.write(session, self.counts[session])

    def write(self, session: str, number: int) -> None:
        """Append a message: to a session of Claude Code, or to one of Codex if its name says so."""
        path = self.paths.setdefault(session, self._path(session))
        path.parent.mkdir(parents=True, exist_ok=True)
        new = self._codex(session, number) if session.startswith("codex") else line(session, number)
        with path.open("ab") as file:
            file.write(new)
        self.written[session] = self.written.get(session, b"") + new
        self._times += 1
        os.utime(path, (self._times, self._times))  # quiet since long ago

    def _path(self, session: str) -> Path:
        if session.startswith("codex"):
            return self.home / f".codex/sessions/2026/11/01/rollout-2026-11-01T10-00-00-{session}.jsonl"
        return self.home / f".claude/projects/-home-ada-shop/{session}.jsonl"

    @staticmethod
    def _codex(session: str, number: int) -> bytes:
        at = f"2026-11-01T10:{number // 60:02d}:{number % 60:02d}.000Z"
        role, kind = ("user", "input_text") if number % 2 else ("assistant", "output_text")
        payload = {"type": "message", "role": role, "content": [{"type": kind, "text": f"{session} {number}"}]}
        lines = [{"timestamp": at, "type": "response_item", "payload": payload}]
        if number == 1:
            meta = {"id": session, "timestamp": at, "cwd": "/home/ada/shop", "cli_version": "0.169.0"}
            lines.insert(0, {"timestamp": at, "type": "session_meta", "payload": meta})
        return b"".join(json.dumps(each).encode() + b"\n" for each in lines)

    def rename_the_project(self, library: Path) -> None:
        """The folder of a project is moved: what comes goes into the new one."""
        old = self.home / ".claude/projects/-home-ada-shop"
        new = old.with_name("-home-ada-store")
        old.rename(new)
        self.paths = {name: new / path.name if path.parent == old else path for name, path in self.paths.items()}

    def delete_some(self) -> None:
        """A program deletes its own sessions."""
        for session in self.choose.sample(self._alive, 6):
            self.paths[session].unlink()
            self._alive.remove(session)

    def paused(self) -> AbstractContextManager[None]:
        """It writes in `write_for` alone."""
        return nullcontext()

    def stop(self) -> None:
        """Nothing goes on."""

    def differs_from(self, library: Path) -> object:
        """How many messages of which sessions a library has, and how many were written; nothing if these are the same."""
        there = {name: len(said) for name, said in texts(library).items()}
        return (there, self.counts) if there != self.counts else ()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_day(home: Path, tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    program = Program(home, choose)
    with small_disk(tmp_path / "disk", "16m") as (disk, is_disk):
        library = live_a_day(program, disk, choose, kills=KILLS, fills=is_disk)
        assert texts(library) == {
            name: [f"{name} {number}" for number in range(1, count + 1)] for name, count in program.counts.items()
        }
        _come_out_byte_for_byte(library, program)


def _come_out_byte_for_byte(library: Path, program: Program) -> None:
    found = {}
    for summary in ConversationLibrary(library).list():
        with ConversationLibrary(library).open(summary.id or "", read_only=True) as conversation:
            first = conversation.get_messages()[0]["content"]
            said = first if isinstance(first, str) else first[0]["text"]
            original = io.BytesIO()
            export(conversation, to="original", output=original)
            found[said.split()[0]] = original.getvalue()
    assert found == program.written
