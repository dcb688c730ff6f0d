"""A day in the life: programs write, the keeper is killed again and again, the disk fills once, a folder is renamed, retention deletes.

At the end every message is in the library, in order, once, and the sessions come out byte for byte, those too that are gone.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.keeping.helpers import LONG_AGO, keeping, line, texts
from transcript_store import ConversationLibrary
from transcript_store.exporting import export

KILLS, SESSIONS = 30, 12


class Program:
    """A program that writes sessions of several formats, a line at a time, and never the same time twice."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.written: dict[str, bytes] = {}
        self.paths: dict[str, Path] = {}
        self._times = LONG_AGO

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

    def rename_the_project(self) -> None:
        """The folder of a project is moved: what comes goes into the new one."""
        old = self.home / ".claude/projects/-home-ada-shop"
        new = old.with_name("-home-ada-store")
        old.rename(new)
        self.paths = {name: new / path.name if path.parent == old else path for name, path in self.paths.items()}

    def retention(self, *sessions: str) -> None:
        """A program deletes its own sessions."""
        for session in sessions:
            self.paths[session].unlink()


def counts_in(library: Path) -> dict[str, int]:
    return {name: len(said) for name, said in texts(library).items()}


def wait_until_all_is_there(library: Path, program: Program, counts: dict[str, int]) -> None:
    deadline = time.monotonic() + 120
    while not library.exists() or counts_in(library) != counts:
        assert time.monotonic() < deadline, (counts_in(library), counts)
        time.sleep(0.2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_day(home: Path, tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    disk, has_disk = tmp_path / "disk", os.geteuid() == 0 and shutil.which("mount") is not None
    disk.mkdir()
    if (
        has_disk
        and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=False).returncode
    ):
        has_disk = False  # a container without the right to mount: the disk fills in tests/keeping/test_keeper.py
    try:
        _a_day(Program(home), disk, choose, fills=has_disk)
    finally:
        if has_disk:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _a_day(program: Program, disk: Path, choose: random.Random, *, fills: bool) -> None:
    library = disk / "library"
    names = [*(f"claude{number}" for number in range(SESSIONS)), *(f"codex{number}" for number in range(SESSIONS))]
    counts = dict.fromkeys(names, 0)
    alive = list(names)

    def write_some(most: int) -> None:
        for _ in range(choose.randrange(1, most)):
            session = choose.choice(alive)
            counts[session] += 1
            program.write(session, counts[session])

    for name in names:
        counts[name] += 1
        program.write(name, 1)
    for kill in range(KILLS):
        with keeping(library) as process:
            end = time.monotonic() + choose.uniform(0.2, 3.0)
            while time.monotonic() < end:
                write_some(6)
                time.sleep(choose.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
        if kill == KILLS // 3:
            program.rename_the_project()
        if fills and kill == KILLS // 2:
            _fill_and_free(program, disk, library, write_some)
        if kill == 2 * KILLS // 3:
            with keeping(library):
                wait_until_all_is_there(library, program, counts)
            gone = choose.sample(alive, 6)  # a program deletes only what lay there for weeks
            program.retention(*gone)
            alive = [name for name in alive if name not in gone]
    with keeping(library) as process:
        wait_until_all_is_there(library, program, counts)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert texts(library) == {
        name: [f"{name} {number}" for number in range(1, count + 1)] for name, count in counts.items()
    }
    _come_out_byte_for_byte(library, program)


def _fill_and_free(program: Program, disk: Path, library: Path, write_some) -> None:
    """The disk is full while programs write; then there is room again."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    with keeping(library) as process:
        for _ in range(10):
            write_some(20)
            time.sleep(0.3)
        assert process.poll() is None, "it ended because the disk was full"
        ballast.unlink()
        process.send_signal(signal.SIGKILL)


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
