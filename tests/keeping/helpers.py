"""Sessions as Claude Code writes them, a keeper of a test's own, and what a library has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transcript_store import ConversationLibrary
from transcript_store.importing import FoundSource
from transcript_store.keeping import Keeper, KeepEvent, read_state

LONG_AGO = 1_700_000_000


def line(session: str, number: int, text: str | None = None, *, cwd: str = "/home/ada/shop") -> bytes:
    """A line of a session: questions and answers, one after the other."""
    role = "user" if number % 2 else "assistant"
    said = f"{session} {number}" if text is None else text
    message: dict[str, Any] = {"role": role, "content": said if number % 2 else [{"type": "text", "text": said}]}
    if role == "assistant":
        message |= {
            "id": f"msg_{session}_{number}",
            "model": "claude-sonnet-5",
            "usage": {"input_tokens": 3, "output_tokens": 2},
        }
    members = {
        "type": role,
        "uuid": f"{session}-{number}",
        "parentUuid": f"{session}-{number - 1}" if number > 1 else None,
        "sessionId": session,
        "cwd": cwd,
        "timestamp": f"2026-11-01T10:{number // 60:02d}:{number % 60:02d}.000Z",
        "message": message,
    }
    return json.dumps(members).encode() + b"\n"


def write(
    home: Path, session: str, numbers: Iterable[int], *, project: str = "-home-ada-shop", old: bool = True
) -> Path:
    """Append lines to a session, as a program does; ``old`` ones were written long ago, so nothing waits for more."""
    source = home / ".claude/projects" / project / f"{session}.jsonl"
    source.parent.mkdir(parents=True, exist_ok=True)
    with source.open("ab") as file:
        for number in numbers:
            file.write(line(session, number))
    if old:
        at = LONG_AGO + source.stat().st_size
        os.utime(source, (at, at))
    return source


def texts(library: Path) -> dict[str, list[str]]:
    """What each conversation of a library says, by the session of its first message."""
    found: dict[str, list[str]] = {}
    for summary in ConversationLibrary(library).list():
        with ConversationLibrary(library).open(summary.id or "", read_only=True) as conversation:
            said = [
                message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
                for message in conversation.get_messages()
            ]
        assert said[0].split()[0] not in found, "one session is two conversations"
        found[said[0].split()[0]] = said
    return found


def expected(**sessions: int) -> dict[str, list[str]]:
    """So many messages of each session, in order, once."""
    return {name: [f"{name} {number}" for number in range(1, count + 1)] for name, count in sessions.items()}


def delete(*sources: Path) -> tuple[Path, ...]:
    """Delete files, as a retention does."""
    for source in sources:
        source.unlink()
    return sources


def state_in(folder: Path) -> Any:
    """The state that a keeper wrote."""
    return read_state(str(folder / "state/keep.json"))


class ScriptedWatcher:
    """Lets a test act wherever a keeper waits: each action may change something, and says which paths it did; the last one ends it."""

    how = "script"

    def __init__(self, *actions: Callable[[], Iterable[Path] | None]) -> None:
        self._actions = iter(actions)
        self.waits: list[float] = []

    def know(self, found: Iterable[FoundSource]) -> None:
        pass

    def wait(self, seconds: float) -> set[str]:
        self.waits.append(seconds)
        action = next(self._actions, None)
        if action is None:
            raise KeyboardInterrupt
        return {str(path) for path in action() or ()}

    def close(self) -> None:
        pass


class Kept:
    """A keeper in this process, with all that it said."""

    def __init__(self, folder: Path, *actions: Callable[[], Iterable[Path] | None], **options: object) -> None:
        self.said: list[KeepEvent] = []
        self.library = folder / "library"
        self.watcher = ScriptedWatcher(*actions)
        options = {"watcher": self.watcher, "quiet_seconds": 0.0, "cache": str(folder / "cache"), **options}
        self.keeper = Keeper(
            lambda: ConversationLibrary(self.library),
            state_path=str(folder / "state/keep.json"),
            say=self.said.append,
            **options,  # type: ignore[arg-type]
        )

    def run(self) -> Kept:
        """Run it to the end of its script."""
        try:
            self.keeper.run()
        except KeyboardInterrupt:
            assert threading.active_count() < 50
        return self

    @property
    def state(self) -> Any:
        """What it says of itself."""
        return self.keeper.state

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.said]


def words_of(text: str) -> list[str]:
    """ExecStart= of a unit as systemd.service(5) and systemd.syntax(7) read it, in plain steps of our own."""
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words, at = [], 0
    while at < len(command):
        if command[at] == " ":
            at += 1
            continue
        word = ""
        quoted = command[at] == '"'
        at += quoted
        while at < len(command) and command[at] != ('"' if quoted else " "):
            if command[at] == "\\":
                at += 1
                word += {"n": "\n", "t": "\t", "r": "\r"}.get(command[at], command[at])
            elif command[at : at + 2] in ("%%", "$$"):
                word += command[at]
                at += 1
            else:
                assert command[at] not in "%$", "systemd would replace it"
                word += command[at]
            at += 1
        at += quoted
        words.append(word)
    return words


COMMAND = (sys.executable, "-m", "transcript_store")


@contextmanager
def keeping(
    library: Path, *options: str, before: tuple[str, ...] = (), **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A keeper as a process, which runs until the block ends."""
    process = subprocess.Popen(
        (*before, *COMMAND, "keep", "--into", str(library), "--json", "--poll", *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(process: subprocess.Popen[str], kind: str, **facts: Any) -> list[dict[str, Any]]:
    """The events that a keeper prints, up to one of this kind with these facts."""
    assert process.stdout is not None
    seen = []
    for said in process.stdout:
        seen.append(json.loads(said))
        if seen[-1]["event"] == kind and facts.items() <= seen[-1].items():
            return seen
    raise AssertionError(f"it ended before {kind}: {seen}")
