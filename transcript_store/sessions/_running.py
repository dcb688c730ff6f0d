"""Is a program running that uses a folder? By the processes of this machine, and by who has a file of it open or locked.

On Linux a process counts if it has the program's name and, by its own environment, the folder that is asked about; or if it has one of
the files open. Elsewhere ``ps`` knows names alone, so a process of that name counts whatever folder it uses.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from transcript_store.sessions._programs import Program, folders_of

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
