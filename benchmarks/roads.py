"""The roads in and out, beside what their promises are measured by: import, search, the page, and sessions under a framework.

A time here is processor time where processes of others could be in the way of it, and says so.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import environments
from benchmarks.measurements import Workplace
from benchmarks.results import MissingError, Row
from benchmarks.timing import duration
from transcript_store import ConversationLibrary, ConversationStore

_ROOT = Path(__file__).parents[1]


def _processor_time() -> float:
    """This process's, and that of those it has waited for, in seconds."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


# ---- import ----------------------------------------------------------------------------------------------------------


def importing(place: Workplace) -> Iterator[Row]:
    """Small sessions of Claude Code, into an empty library and once more."""
    from transcript_store.importing import import_conversations

    sessions = place.conversations
    sources = place.directory / "projects" / "-home-me"
    sources.mkdir(parents=True)
    for number in range(sessions):
        (sources / f"{_uuid(number)}.jsonl").write_bytes(session(_uuid(number), turns=2))
    library, cache = ConversationLibrary(place.directory / "imported"), place.directory / "cache"

    def brought(*, into: ConversationLibrary = library, jobs: int = 1) -> int:
        return sum(
            report.action in ("created", "unchanged")
            for report in import_conversations([sources], into, cache=cache, jobs=jobs)
        )

    for jobs in dict.fromkeys((os.cpu_count() or 1, 1)):
        own = ConversationLibrary(place.directory / f"imported by {jobs}") if jobs > 1 else library
        began, used = time.perf_counter(), _processor_time()
        assert brought(into=own, jobs=jobs) == sessions
        took, used = time.perf_counter() - began, _processor_time() - used
        what = f"import, first, {sessions:,} sessions, jobs={jobs}: ms a session"
        note = f"beside: its processor time; {sessions / took:,.0f} a second (2,000 asked)"
        target = 0.5 if own is not library or os.cpu_count() == 1 else None
        yield Row(what, duration(took / sessions), duration(used / sessions), took / sessions * 1e3, "", target, note)

    def looked() -> None:
        for above, below in ((os.fsencode(sources), b""), (os.fsencode(library.directory), b"/transcript.jsonl")):
            with os.scandir(above) as entries:
                for entry in entries:
                    os.stat(entry.path + below)

    note = "beside: scandir, and stat of each source and each transcript"
    yield by_processor(f"import again, {sessions:,} unchanged", brought, looked, 5, 3.0, note)


def session(own_id: str, turns: int) -> bytes:
    """A session as Claude Code writes it, short."""
    lines: list[dict[str, Any]] = [{"type": "summary", "summary": f"Session {own_id[:8]}", "leafUuid": f"{own_id}-0"}]
    above = None
    for number in range(turns * 2):
        uuid = f"{own_id}-{number}"
        of_user = number % 2 == 0
        content: Any = (
            f"Question {number} of {own_id}" if of_user else [{"type": "text", "text": f"Answer {number}. {'x' * 200}"}]
        )
        message = {"role": "user" if of_user else "assistant", "content": content}
        if not of_user:
            message |= {
                "id": f"msg_{uuid}",
                "type": "message",
                "model": "claude-opus-4-8",
                "usage": {"input_tokens": 9, "output_tokens": 7},
            }
        lines.append(
            {"parentUuid": above, "isSidechain": False, "userType": "external", "cwd": "/home/me", "sessionId": own_id, "version": "2.0.1",
             "type": message["role"], "message": message, "uuid": uuid, "timestamp": f"2026-01-01T00:00:{number:02}.000Z"}
        )  # fmt: skip
        above = uuid
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def _uuid(number: int) -> str:
    return f"0195cafe-0000-4000-8000-{number:012x}"


def by_processor(
    what: str, ours: Callable[[], Any], beside: Callable[[], Any], rounds: int, limit: float | None, note: str
) -> Row:
    """Both in turn, in seconds of this process's processor."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(-1, rounds):  # the first only warms up
        for way, seconds in zip((ours, beside), taken, strict=True):
            began = time.process_time()
            way()
            if number >= 0:
                seconds.append(time.process_time() - began)
    return Row.of(what, *taken, limit, f"{note}; processor time")


# ---- the page --------------------------------------------------------------------------------------------------------


def page(place: Workplace) -> Iterator[Row]:
    """A conversation of an agent at work as one page, beside claude-code-log; each command whole, with the start of Python."""
    from tests.view.conversations import long
    from tests.view.peers import exported, installed

    messages = 10_000
    conversation = place.directory / "shown"
    with ConversationStore(conversation) as store:
        store.initialize(messages=long(messages), provider="claude")
    log = installed("claude-code-log", "1.7.0")
    form = exported(str(conversation), "claude-code", place.directory / "as-claude-code")
    pages = [place.directory / f"{name}.html" for name in ("ours", "theirs")]
    commands = (
        [sys.executable, "-m", "transcript_store", "view", str(conversation), "--output", str(pages[0])],
        [log, str(form), "--output", str(pages[1])],
    )
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        for command, written, seconds in zip(commands, pages, taken, strict=True):
            written.unlink(missing_ok=True)
            before = _children()
            done = subprocess.run(command, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr[-500:]
            seconds.append(_children() - before)
    what, note = f"view, {messages:,} messages", "beside: claude-code-log 1.7.0"
    yield Row.of(f"{what}: the page made", *taken, 1 / 5, f"{note}; processor time")
    ours, theirs = (written.stat().st_size for written in pages)
    yield Row(
        f"{what}: the bytes of it", f"{ours / 1e6:.1f} MB", f"{theirs / 1e6:.1f} MB", ours / theirs, "", 0.5, note
    )


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- search ----------------------------------------------------------------------------------------------------------


def search(place: Workplace) -> Iterator[Row]:
    """An index of conversations of 50 messages, beside a bare FTS5 table of the same text and beside ripgrep."""
    from benchmarks import searching

    library = place.directory / "library"
    searching.made(library, place.conversations, 50)
    with tempfile.TemporaryDirectory(dir=place.directory) as folder:
        yield from searching.rows(library, Path(folder))


# ---- sessions under a framework --------------------------------------------------------------------------------------


def sessions(place: Workplace) -> Iterator[Row]:
    """Our stores beside the frameworks' own, through their protocols, each in its framework's environment."""
    folder = environments.default_folder() / "integrations"
    from tests.integrations.environments import FRAMEWORKS, make

    for framework in FRAMEWORKS:
        if not framework.has_tests:
            continue
        python, complete = (folder / framework.name / name for name in ("bin/python", "complete"))
        if not complete.exists():
            shutil.rmtree(folder / framework.name, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            make(framework, folder)
            complete.touch()
        command = [str(python), "-m", "benchmarks.integrations", str(place.directory)]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, env=environment, check=False)
        if done.returncode:
            raise MissingError(f"{framework.name}: {done.stderr[-300:]}")
        limit = 1.0 if framework.name == "openai-agents" else 1.2
        for what, theirs, ours, ratio in re.findall(
            r"^\| (.+?) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", done.stdout, re.M
        ):
            note = "beside: `SQLiteSession`" if framework.name == "openai-agents" else "beside: a JSONL file, synced"
            yield Row(
                f"{framework.name}: {what}".replace("`", ""),
                f"{ours} ms",
                f"{theirs} ms",
                float(ratio),
                "",
                limit,
                note,
            )
        for megabytes in re.findall(r"each with a turn: (\d+) MB", done.stdout):
            yield Row(f"{framework.name}: 64 sessions of 20 MB, MB", f"{megabytes} MB", "", float(megabytes), "", 50.0)


ROADS: dict[str, Callable[[Workplace], Iterator[Row]]] = {
    "importing": importing,
    "search": search,
    "page": page,
    "sessions": sessions,
}
