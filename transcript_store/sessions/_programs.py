"""The programs whose files are changed here: where their session files are, and is one running that uses a folder?

``sources`` knows where a program keeps sessions. The other entries here are for programs that are not imported from yet.

On Linux a process counts if it has the program's name and, by its own environment, the folder that is asked about; or if it has one of
the files open. Elsewhere ``ps`` knows names alone, so a process of that name counts whatever folder it uses.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase

from transcript_store.formats import SessionFolder
from transcript_store.formats._claude_code import project_folder
from transcript_store.sources import folder_of, session_folders


@dataclass(frozen=True, slots=True)
class Program:
    """A program, by the names of its processes."""

    name: str
    commands: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """npm packages: a process of Node that runs a file below one of these is the program."""


_PROGRAMS = {
    program.name: program
    for program in (
        Program("claude-code", ("claude",), ("@anthropic-ai/claude-code",)),
        Program("codex", ("codex", "codex-app-server"), ("@openai/codex",)),
        Program("gemini-cli", ("gemini",), ("@google/gemini-cli",)),
        Program("pi", ("pi",), ("@mariozechner/pi-coding-agent", "@earendil-works/pi-coding-agent")),
        Program("openclaw", ("openclaw", "openclaw-gateway", "clawdbot", "moltbot"), ("openclaw",)),
        Program("kimi", ("kimi", "kimi-cli", "kimi-code")),
        Program("llm", ("llm",)),
        Program("copilot", ("copilot",), ("@github/copilot",)),
        Program("qwen-code", ("qwen",), ("@qwen-code/qwen-code",)),
        Program("droid", ("droid",)),
        Program("omp", ("omp",), ("@oh-my-pi/pi-coding-agent",)),
        Program("opencode", ("opencode",), ("opencode-ai",)),
        Program("kilo", ("kilo",), ("@kilocode/cli",)),
    )
}
_OTHER_PLACES = (
    SessionFolder("copilot", ".copilot", ("session-state/*/events.jsonl", "session-state/*.jsonl"), "COPILOT_HOME"),
    SessionFolder("qwen-code", ".qwen", ("projects/*/chats/*.jsonl", "projects/*/subagents/*/*.jsonl"), "QWEN_HOME"),
    SessionFolder("droid", ".factory", ("sessions/*/*.jsonl", "sessions/*.jsonl")),
    SessionFolder("omp", ".omp/agent", ("sessions/*/*.jsonl", "sessions/*.jsonl"), "PI_CODING_AGENT_DIR"),
    *(
        SessionFolder(name, f".local/share/{name}", (f"{name}*.db",), "XDG_DATA_HOME", below_variable=name)
        for name in ("opencode", "kilo")
    ),
)


def project_name(program: str, cwd: str) -> str:
    """The name of a project's folder, as a program makes it of the project's directory."""
    if program in ("pi", "omp"):
        return "--" + re.sub(r"[/:\\]", "-", cwd.removeprefix("/")) + "--"
    return project_folder(cwd) if program == "claude-code" else re.sub("[^a-zA-Z0-9]", "-", cwd)


def program_folders() -> tuple[SessionFolder, ...]:
    """Where programs keep sessions, those too that nothing is imported from."""
    known = session_folders()
    names = {folder_kept.program for folder_kept in known}
    return (*known, *(folder_kept for folder_kept in _OTHER_PLACES if folder_kept.program not in names))


def program_names() -> tuple[str, ...]:
    """The names of all programs, in the order in which they are known."""
    return tuple(dict.fromkeys(folder_kept.program for folder_kept in program_folders()))


def line_programs() -> tuple[str, ...]:
    """The names of the programs that keep sessions in files of lines."""
    found = (
        folder_kept.program
        for folder_kept in program_folders()
        if any(each.endswith(".jsonl") for each in folder_kept.patterns)
    )
    return tuple(dict.fromkeys(found))


def program_named(name: str) -> Program:
    """A program by its name. One that is known by its folder alone has a process of its own name."""
    return _PROGRAMS.get(name) or Program(name, (name,))


def folders_of(program: Program, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The folders of a program for an environment; this process's if None."""
    found = (
        folder_of(folder_kept, environ=environ)
        for folder_kept in program_folders()
        if folder_kept.program == program.name
    )
    return tuple(dict.fromkeys(found))


def session_files(
    program: Program, environ: Mapping[str, str] | None = None, *, packed: bool = False
) -> Iterator[tuple[str, str]]:
    """The session files of a program that are lines of JSON: the program's folder, and the path of each; also those that it ``packed``."""
    seen = set()
    for folder_kept in program_folders():
        if folder_kept.program == program.name:
            folder = folder_of(folder_kept, environ=environ)
            for pattern in folder_kept.patterns:
                for path in _matching(folder, pattern.split("/"), folder_kept.not_sessions):
                    if path.endswith((".jsonl", ".zst") if packed else ".jsonl") and path not in seen:
                        seen.add(path)
                        yield folder, path


def program_of(path: str, environ: Mapping[str, str] | None = None) -> tuple[Program, str] | None:
    """Whose session file a path is, by its place, and that program's folder; None if it is in no program's folder."""
    for folder_kept in program_folders():
        folder = folder_of(folder_kept, environ=environ)
        below = os.path.relpath(path, folder).split(os.sep)
        if any(_fits(below, pattern.split("/")) for pattern in folder_kept.patterns):
            return program_named(folder_kept.program), folder
    return None


def _fits(names: list[str], pattern: list[str]) -> bool:
    return len(names) == len(pattern) and all(map(_is_like, names, pattern))


def _is_like(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and not name.startswith(".")


def _matching(folder: str, pattern: list[str], not_sessions: tuple[str, ...]) -> Iterator[str]:
    name, *rest = pattern
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # the program is not used here, or the folder is another user's
    for entry in entries:
        if not _is_like(entry.name, name):
            continue
        if rest and entry.is_dir(follow_symlinks=False):
            yield from _matching(entry.path, rest, not_sessions)
        elif (
            not rest
            and entry.is_file(follow_symlinks=False)
            and not any(fnmatchcase(entry.name, other) for other in not_sessions)
        ):
            yield entry.path


_PROC = "/proc"
_WRAPPERS = ("node", "bun", "deno", "python", "python3", "npx", "npm")
"""Interpreters that may start a program: then the script's name is the program's."""


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process that may write to the files."""

    pid: int
    command: str
    why: str


def running_processes(program: Program | None, folder: str, paths: Iterable[str] = ()) -> list[RunningProcess]:
    """The processes that use a program's folder or have one of the paths open, without this one.

    Args:
        program: whose process is looked for; None to look only for who has the paths open.
        folder: the program's folder.
        paths: files and databases that are about to change.
    """
    if not os.path.isdir(f"{_PROC}/self"):
        return [] if program is None else list(_by_ps(program))
    files = {
        (status.st_dev, status.st_ino)
        for path in paths
        for end in ("", "-wal", "-shm")
        if (status := _status(path + end)) is not None
    }
    found = []
    for name in sorted(filter(str.isdigit, os.listdir(_PROC)), key=int):
        pid = int(name)
        if pid == os.getpid():
            continue
        words = _words(pid)
        if program is not None and is_process_of(program, words) and _uses(pid, program, folder):
            found.append(RunningProcess(pid, " ".join(words)[:200], f"{program.name} runs"))
        elif files and not files.isdisjoint(_open_files(pid)):
            found.append(RunningProcess(pid, " ".join(words)[:200], "has a file open that would change"))
    return found


def is_locked(path: str) -> bool:
    """True if another process holds a lock on a file. Never asked of a database: to close it would drop SQLite's locks of this process."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # it does not exist yet
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(handle)
    return False


def is_process_of(program: Program, words: list[str]) -> bool:
    """True if a process with these arguments is the program, or a script of it that another one runs."""
    if not words:
        return False
    names = [os.path.basename(words[0].split(" ", 1)[0])]  # a program may give itself a title
    if words[0].startswith("/"):
        names.insert(0, os.path.basename(words[0]))  # or it stands in a folder whose name has a space
    if any(name in _WRAPPERS or name.startswith("python") for name in names):
        script = next((word for word in words[1:] if not word.startswith("-")), "")  # what follows are its arguments
        names.append(os.path.basename(script))
        if any(f"/{package}/" in script or script == package for package in program.packages):
            return True
    return any(name == command or name.startswith(f"{command}.") for name in names for command in program.commands)


def _uses(pid: int, program: Program, folder: str) -> bool:
    """True unless the process's own environment names another folder."""
    try:
        with open(f"{_PROC}/{pid}/environ", "rb") as file:
            raw = file.read()
    except PermissionError:
        return False  # another user's: it has its own home
    except OSError:
        return False  # it ended just now
    environ = dict(pair.split("=", 1) for pair in (os.fsdecode(part) for part in raw.split(b"\0")) if "=" in pair)
    # Its folder cannot be known, so it counts: a change under a running program could be overwritten by it.
    if not environ.get("HOME"):
        return True
    mine = os.path.realpath(folder)
    return any(
        one == mine or one.startswith(f"{mine}/") or mine.startswith(f"{one}/")
        for one in (os.path.realpath(each) for each in folders_of(program, environ))
    )


def _words(pid: int) -> list[str]:
    with suppress(OSError), open(f"{_PROC}/{pid}/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read(1 << 16).split(b"\0") if word]
    return []


def _open_files(pid: int) -> Iterator[tuple[int, int]]:
    with suppress(OSError), os.scandir(f"{_PROC}/{pid}/fd") as handles:
        for handle in handles:
            with suppress(OSError):
                status = handle.stat()
                yield status.st_dev, status.st_ino


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _by_ps(program: Program) -> Iterator[RunningProcess]:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["/bin/ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, timeout=10, check=True
        )
        for line in done.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            if pid.isdigit() and int(pid) != os.getpid() and is_process_of(program, command.split()):
                yield RunningProcess(int(pid), command[:200], f"{program.name} runs")
