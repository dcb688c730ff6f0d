"""The keeper beside the programs as they are shipped: a day in the life of three, and the retention of Claude Code over simulated weeks.

What they delete is in the library, and comes out byte for byte; what was put back is resumed. faketime moves Claude Code's clock by weeks, and lets it run a hundred times as fast: it looks for what to delete ten minutes after its
start, once a day. Public reports: anthropics/claude-code#90866, #85743, #62959.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.crash.kernel import Note
from tests.keeping.day import live_a_day, small_disk
from tests.programs.exchanges import files, session_of
from tests.programs.lab import ANSWER, NOTE, Lab, arguments_of, command
from transcript_store import ConversationLibrary
from transcript_store.exporting import export
from transcript_store.keeping import Keeper, KeepEvent, retention_outlook
from transcript_store.messages import parts_of
from transcript_store.sources import discover, session_folders

pytestmark = [pytest.mark.long, pytest.mark.needs("faketime")]

DAY = 86_400
WEEKS = 3


@pytest.fixture
def at_home(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The lab's home is this process's too."""
    for name in (*(place.variable for place in session_folders() if place.variable), "TRANSCRIPT_STORE_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(lab.home))
    return lab


def preload() -> str:
    """The library that moves a program's clock, as the command faketime names it."""
    said = subprocess.run(["faketime", "-f", "+0", "env"], capture_output=True, text=True, check=False).stdout
    found = next((line.partition("=")[2] for line in said.splitlines() if line.startswith("LD_PRELOAD=")), None)
    if found is None:
        pytest.skip("faketime does not say what it preloads")
    return found


@contextmanager
def claude_at(lab: Lab, days: float, question: str) -> Iterator[subprocess.Popen[bytes]]:
    """Claude Code, so many days ahead and fast, which answers a question and stays until the block ends."""
    environment = {
        "HOME": str(lab.home),
        "PATH": os.environ["PATH"],
        "TERM": "dumb",
        "ANTHROPIC_BASE_URL": lab.url,
        "ANTHROPIC_API_KEY": "sk-ant-of-nobody",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "LD_PRELOAD": preload(),
        "FAKETIME": f"+{days:g}d x100",
        "FAKETIME_NO_CACHE": "1",
        "NO_FAKE_STAT": "1",
    }
    words = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    process = subprocess.Popen(
        [str(command("claude-code")), *words],
        cwd=lab.work,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    said = {"type": "user", "message": {"role": "user", "content": question}}
    process.stdin.write(json.dumps(said).encode() + b"\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def sessions() -> dict[str, bytes]:
    return {one.path: Path(one.path).read_bytes() for one in discover() if one.program == "claude-code"}


def let_claude_delete(lab: Lab, days: float) -> None:
    """Claude Code, so many days ahead, deletes all sessions that are there now."""
    before = set(sessions())
    with claude_at(lab, days, "What is said now?") as process:
        deadline = time.monotonic() + 60
        while before & set(sessions()):
            assert process.poll() is None
            assert time.monotonic() < deadline, "Claude Code deletes at another time now"
            time.sleep(0.5)
    (lab.home / ".claude/.last-cleanup").unlink(missing_ok=True)  # written at this machine's own time


def test_claude_code_deletes_and_the_library_keeps(at_home: Lab, tmp_path: Path) -> None:
    lab, library = at_home, ConversationLibrary(tmp_path / "chats")
    settings = lab.home / ".claude/settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"cleanupPeriodDays": 1}))
    said: list[KeepEvent] = []
    written: dict[str, bytes] = {}
    for week in range(WEEKS):
        lab.ask("claude-code", f"READ the note of week {week}, please.")
        ahead = time.time() + 7 * (week + 1) * DAY
        (outlook,) = retention_outlook(discover(), library if week else None, at=ahead)
        assert (outlook.days, outlook.is_set) == (1, True)
        assert outlook.missing, "the session of this week is not in the library yet"
        Keeper(lambda: library, state_path=str(tmp_path / "state.json"), say=said.append).run(once=True)
        assert retention_outlook(discover(), library, at=ahead)[0].missing == ()
        written |= sessions()
        let_claude_delete(lab, 7 * (week + 1))
    assert len(written) >= WEEKS
    assert not set(written) & set(sessions())
    originals = set()
    for summary in library.list():
        original = io.BytesIO()
        export(library, summary.id, to="original", output=original)
        originals.add(original.getvalue())
    assert set(written.values()) <= originals


def test_the_setting_of_one_project_deletes_in_all(at_home: Lab, tmp_path: Path) -> None:
    """anthropics/claude-code#90148: the user keeps, a scratch project does not, and Claude Code was started there. The outlook says so."""
    lab = at_home
    lab.ask("claude-code", "READ the note of the shop, please.")
    settings = lab.home / ".claude/settings.json"
    settings.write_text(json.dumps({"cleanupPeriodDays": 36500}))
    scratch = tmp_path / "scratch"
    (scratch / ".claude").mkdir(parents=True)
    (scratch / "note.txt").write_text(NOTE)
    lab.work = scratch
    lab.ask("claude-code", "READ the note, please.")  # so that the program knows the folder
    ahead = time.time() + 7 * DAY
    [outlook] = retention_outlook(discover(), None, at=ahead)
    assert (outlook.days, outlook.soon, outlook.setting) == (36500, 0, str(settings))
    (scratch / ".claude/settings.json").write_text(json.dumps({"cleanupPeriodDays": 1}))
    [outlook] = retention_outlook(discover(), None, at=ahead)
    assert (outlook.days, outlook.soon, outlook.setting) == (1, 2, str(scratch / ".claude/settings.json"))
    let_claude_delete(lab, 7)


# ---- a day in the life ------------------------------------------------------------------------------------------------

WRITERS = ("claude-code", "codex", "gemini-cli")
KILLS = 50
ASKED = re.compile(r"(?:READ the note, please: )?question (\d+) of ([\w-]+)")


class RealWriters:
    """Three programs, each in its own thread: it starts or resumes a session, and asks one question after the other."""

    def __init__(self, lab: Lab, choose: random.Random) -> None:
        self.lab, self.choose = lab, choose
        self.asked: dict[str, int] = {}
        """The number of questions per session, by a name that all of them contain."""
        self.ids: dict[str, tuple[str, str]] = {}
        """The program of each session, and what the program calls it."""
        self.deleted: dict[str, tuple[Path, bytes]] = {}
        self.failures: list[BaseException] = []
        self._busy = {program: threading.RLock() for program in WRITERS}
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(program,)) for program in WRITERS]

    def __enter__(self) -> RealWriters:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        self.__exit__()
        if self.failures:
            raise self.failures[0]

    def _write(self, program: str) -> None:
        choose = random.Random(program)
        try:
            while not self._ended.is_set():
                with self._busy[program]:
                    self._ask(program, choose)
                self._ended.wait(choose.uniform(0, 2))
        except BaseException as error:
            self.failures.append(error)

    def _ask(self, program: str, choose: random.Random) -> None:
        own = self.of(program)
        alive = [name for name in own if name not in self.deleted]
        name = choose.choice(alive) if alive and choose.random() < 0.6 else f"{program}-{len(own)}"
        number = self.asked.get(name, 0) + 1
        words = f"{'READ the note, please: ' if choose.random() < 0.3 else ''}question {number} of {name}"
        there = set(files(self.lab, program))
        printed = self.lab.run(program, *arguments_of(program, words, self.ids[name][1] if name in self.ids else None))
        assert ANSWER in printed, printed
        if name not in self.ids:
            [new] = [path for path in set(files(self.lab, program)) - there if name.encode() in path.read_bytes()]
            self.ids[name] = program, session_of(program, new)
        self.asked[name] = number

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No program runs in the block."""
        with ExitStack() as stack:
            for lock in self._busy.values():
                stack.enter_context(lock)
            if self.failures:
                raise self.failures[0]
            yield

    def write_for(self, seconds: float) -> None:
        """The threads write; here only time passes."""
        time.sleep(seconds)

    def rename_the_project(self, library: Path) -> None:
        with self.paused():
            old, new = self.lab.work, self.lab.work.with_name("the shop, renamed")
            old.rename(new)
            self.lab.work = new
            into = [str(library)] if library.exists() else []
            transcript_store("session", "relink", str(old), str(new), *into, "--in", ",".join(WRITERS), "--apply")

    def delete_some(self) -> None:
        """Claude Code deletes all of its own, weeks later; of the others some files go."""
        with self.paused():
            settings = self.lab.home / ".claude/settings.json"
            settings.write_text(json.dumps({"cleanupPeriodDays": 1}))
            keeps = {name for program in ("codex", "gemini-cli") for name in self.of(program)[1::2]}
            gone = {name: (path, path.read_bytes()) for name, path in self.paths().items() if name not in keeps}
            let_claude_delete(self.lab, 7)
            for path, _ in gone.values():
                path.unlink(missing_ok=True)
            settings.unlink()
            self.deleted = gone
            assert {self.ids[name][0] for name in gone} == set(WRITERS)

    def of(self, program: str) -> list[str]:
        """The names of a program's sessions."""
        return [name for name, (its, _) in [*self.ids.items()] if its == program]

    def paths(self) -> dict[str, Path]:
        """The file of each session that is there."""
        # Gemini CLI may begin another file, with the context alone, when it resumes.
        by_id = {
            (program, session_of(program, path)): path
            for program in WRITERS
            for path in files(self.lab, program)
            if b"question 1 of" in path.read_bytes()
        }
        return {name: by_id[its] for name, its in self.ids.items() if its in by_id}

    def differs_from(self, library: Path) -> object:
        wanted = {name: expected(count) for name, count in self.asked.items()}
        there = said_in(library)
        written = Counter(
            [path.read_bytes() for path in self.paths().values()] + [data for _, data in self.deleted.values()]
        )
        lacking = written - Counter(originals(library))
        others = {name: (there.get(name), said) for name, said in wanted.items() if there.get(name) != said}
        return (others, len(lacking)) if others or lacking else ()


def expected(count: int) -> list[str]:
    return [said for number in range(1, count + 1) for said in (f"question {number}", "answer")]


def said_in(library: Path) -> dict[str, list[str]]:
    """What each conversation of a library says, by the name in its questions: the questions and the answers, in order."""
    found: dict[str, list[str]] = {}
    for summary in ConversationLibrary(library).list():
        with ConversationLibrary(library).open(summary.id or "", read_only=True) as conversation:
            texts = [
                part.text
                for message in conversation.get_messages()
                for part in parts_of(message)
                if part.kind == "text"
            ]
        names = {asked[2] for text in texts if (asked := ASKED.search(text))}
        said = [
            f"question {asked[1]}" if (asked := ASKED.search(text)) else "answer"
            for text in texts
            if ASKED.search(text) or ANSWER in text
        ]
        for name in names:
            assert name not in found, "one session is two conversations"
            found[name] = said
        assert len(names) < 2, names
    return found


def originals(library: Path) -> list[bytes]:
    """The bytes that each conversation was imported from."""
    found = []
    for summary in ConversationLibrary(library).list():
        original = io.BytesIO()
        export(ConversationLibrary(library), summary.id, to="original", output=original)
        found.append(original.getvalue())
    return found


def transcript_store(*words: str) -> str:
    """The command, as a person types it."""
    done = subprocess.run(
        [sys.executable, "-m", "transcript_store", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_day(at_home: Lab, tmp_path: Path, record_property: Note) -> None:
    """Three programs write, fifty kills, a full disk, a renamed folder, a retention: every message once, byte for byte, and resumed."""
    choose = random.Random(43)
    # Gemini CLI 0.61 deletes a session that was resumed in another minute as soon as another one begins: it takes the second file, which
    # holds the context alone, for a broken one, and deletes all files with that id. It must not delete before the keeper was there.
    settings = at_home.home / ".gemini/settings.json"
    kept = {"general": {"sessionRetention": {"enabled": False}}}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | kept))
    with small_disk(tmp_path / "disk", "32m") as (disk, is_disk), RealWriters(at_home, choose) as writers:
        library = live_a_day(writers, disk, choose, kills=KILLS, fills=is_disk, longest=8.0)
        assert not writers.differs_from(library)
        record_property("sessions of a day with three real programs", len(writers.asked))
        record_property("questions and answers in them, each in the library once", sum(writers.asked.values()))
        record_property("of these sessions deleted by a retention", len(writers.deleted))
        resume_what_was_put_back(at_home, writers, library)


def resume_what_was_put_back(lab: Lab, writers: RealWriters, library: Path) -> None:
    """One of the deleted sessions of each program, by the command that a person types."""
    for program in WRITERS:
        name, (path, data) = next(
            (name, its) for name, its in writers.deleted.items() if writers.ids[name][0] == program
        )
        session = writers.ids[name][1]
        assert not path.exists()
        transcript_store("session", "restore", str(library), session, "--apply")
        assert path.read_bytes() == data
        sent = json.dumps(lab.ask(program, "And what was it?", session=session))
        for number in range(1, writers.asked[name] + 1):
            assert f"question {number} of {name}" in sent, (program, name, number)
        assert sent.count(ANSWER) >= writers.asked[name]
