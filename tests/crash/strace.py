"""strace around one forked child: its system calls, and a fault at one of them.

The child is forked from the test, waits at a gate, is attached to, and is let go: so the calls are those of the work
alone, and the same work makes the same calls, which is what lets a call be known by its name and its ordinal number.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.kit.children import Child, Gate

CALLS = [
    "openat",
    "open",
    "creat",
    "openat2",
    "close",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "read",
    "readv",
    "pread64",
    "preadv",
    "preadv2",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "lseek",
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "sync_file_range",
    "fadvise64",
    "ftruncate",
    "truncate",
    "fallocate",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "rmdir",
    "newfstatat",
    "fstat",
    "stat",
    "lstat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "fchmod",
    "chmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "fchownat",
    "utimensat",
    "flock",
    "getdents64",
    "mmap",
    "copy_file_range",
    "sendfile",
    "splice",
    "readlink",
    "readlinkat",
    "setxattr",
    "fsetxattr",
    "ioctl",
]

_LINE = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+|\?|0x[0-9a-f]+)(?:<([^>]*)>)?(.*)")
_HANDLE = re.compile(r"(\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})+)>")
_CARRY_DATA = frozenset(
    ["read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev", "pwritev2"]
)
_STRING = re.compile(r'(?<!<)"((?:\\x[0-9a-f]{2})*)"')


class SystemCall(NamedTuple):
    """A call as strace saw it; ``ordinal`` counts the calls of this name from 1."""

    name: str
    ordinal: int
    arguments: str
    handles: tuple[tuple[int, str], ...]
    """File descriptors among the arguments, with their paths; AT_FDCWD is -100."""
    strings: tuple[bytes, ...]
    result: int | None
    """None for a call that never returned."""
    tampered: bool
    """Whether strace put its own result in the place of the kernel's."""

    def __str__(self) -> str:
        paths = [path.rsplit("/", 1)[-1] for _, path in self.handles]
        names = [text.decode(errors="replace") for text in self.strings] if self.name not in _CARRY_DATA else []
        return f"{self.name} #{self.ordinal} ({' '.join([*paths, *names])})"

    def touches(self, root: Path) -> bool:
        """Whether it is about something at or below a folder."""
        paths = [path for _, path in self.handles]
        if self.name not in _CARRY_DATA:
            paths += [text.decode(errors="replace") for text in self.strings]
        return any(path == str(root) or path.startswith(f"{root}/") for path in paths)


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def parse(text: str) -> list[SystemCall]:
    """The calls of a trace, in order."""
    counts: dict[str, int] = {}
    calls = []
    for line in text.splitlines():
        if (match := _LINE.match(line)) is None:
            match = re.match(r"(\w+)\((.*?)( <unfinished \.\.\.>|<ptrace\(SYSCALL\):.*)?$()()", line)
            if match is None:
                continue  # an exit, a signal
            name, arguments, result, note = match[1], match[2], None, ""
        else:
            name, arguments, note = match[1], match[2], match[5]
            result = None if match[3] == "?" else int(match[3], 0)
        counts[name] = counts.get(name, 0) + 1
        handles = tuple(
            (-100 if number == "AT_FDCWD" else int(number), _bytes(path).decode(errors="replace"))
            for number, path in _HANDLE.findall(arguments)
        )
        strings = tuple(_bytes(escaped) for escaped in _STRING.findall(arguments))
        calls.append(SystemCall(name, counts[name], arguments, handles, strings, result, "(INJECTED)" in note))
    return calls


class Injection(NamedTuple):
    """What strace does at one call: as ``-e inject=`` has it (``signal=SIGKILL``, ``error=EIO``, ``retval=0``)."""

    call: SystemCall
    what: str
    for_ever: bool = False

    @property
    def argument(self) -> str:
        return f"inject={self.call.name}:{self.what}:when={self.call.ordinal}{'+' if self.for_ever else ''}"

    def __str__(self) -> str:
        return f"{self.what}{' for ever' if self.for_ever else ''} at {self.call}"


class Traced(NamedTuple):
    """What a child did while it was traced, and what it said, before and after the trace ended."""

    calls: list[SystemCall]
    handles: dict[int, str]
    """The files that it had open when the trace began."""
    lines: list[str]
    killed: bool


READY, OVER = "ready", "over"

Say = Callable[[object], None]


def trace(
    work: Callable[[Say], object],
    afterwards: Callable[[Say], object] = lambda say: None,
    *,
    prepare: Callable[[], object] = lambda: None,
    when_ready: Callable[[], object] = lambda: None,
    while_stopped: Callable[[], object] | None = None,
    injection: Injection | None = None,
) -> Traced:
    """Fork a child, prepare it, trace it at ``work``, and let it do ``afterwards`` untraced, with no fault any more.

    Here ``when_ready`` is called when the child is prepared and nothing is traced yet, and ``while_stopped`` when the child
    has been stopped by an injected SIGSTOP; then it goes on.
    """
    begin, go_on = Gate(), Gate()

    def subject(say: Say) -> None:
        prepare()
        begin.arrive()  # so that nothing but a read is left to do here while strace is attached
        go_on.arrive()
        say(READY)
        begin.wait()
        work(say)
        say(OVER)
        go_on.wait()
        afterwards(say)

    child = Child(subject)
    with tempfile.NamedTemporaryFile(suffix=".strace", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
        try:
            child.wait_for(1)
            when_ready()
            handles = _open_files(child.pid)
            with _attached(child.pid, file.name, injection):
                begin.open()
                if while_stopped is not None:
                    try:
                        _wait_until_stopped(Path(file.name))
                        while_stopped()
                    finally:
                        os.kill(child.pid, signal.SIGCONT)
                killed = OVER not in child.wait_until_it_said(OVER)
        except BaseException:
            child.end(signal.SIGKILL, to_the_last_word=False)
            raise
        finally:
            go_on.open()
        lines = child.end(signal.SIGKILL if killed else None)
        return Traced(parse(Path(file.name).read_text()), handles, lines, killed)


@contextmanager
def _attached(pid: int, file: str, injection: Injection | None) -> Iterator[None]:
    names = ",".join(f"?{name}" for name in CALLS)  # of those that this processor has
    command = ["strace", "-y", "-xx", "-s", "1000000", "-e", "signal=SIGSTOP", "-e", f"trace={names}"]
    if injection:
        command += ["-e", injection.argument]
    with subprocess.Popen([*command, "-o", file, "-p", str(pid)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "attached" in said, f"strace: {said}"
        try:
            yield
        finally:
            process.terminate()  # it detaches, and the child goes on without it
            process.stderr.read()


def _wait_until_stopped(log: Path) -> None:
    """Until strace says so: a process that is traced stands still at each of its calls."""
    for _ in range(10_000):
        if b"--- stopped by SIGSTOP ---" in log.read_bytes():
            return
        time.sleep(0.002)
    raise AssertionError("it was never stopped")


def _open_files(pid: int) -> dict[int, str]:
    folder = Path(f"/proc/{pid}/fd")
    return {int(entry.name): os.readlink(entry) for entry in folder.iterdir()}


# ---- which error each call may meet ------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[str, ...]] = {
    "openat": ("EACCES", "EMFILE", "EIO", "EINTR"),
    "open to write": ("EROFS", "EPERM"),
    "open to create": ("ENOSPC", "EDQUOT"),
    "close": ("EIO",),
    "fcntl": ("EMFILE",),
    "read": ("EIO", "EINTR"),
    "pread64": ("EIO", "EINTR"),
    "preadv": ("EIO", "EINTR"),
    "preadv2": ("EIO", "EINTR"),
    "getdents64": ("EIO",),
    "newfstatat": ("EACCES", "EIO"),
    "fstat": ("EIO",),
    "statx": ("EACCES", "EIO"),
    "lseek": (),
    "write": ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EINTR"),
    "ftruncate": ("EIO", "EPERM", "EINTR"),
    "fsync": ("EIO", "ENOSPC", "EDQUOT", "EINTR"),
    "fdatasync": ("EIO", "ENOSPC", "EDQUOT", "EINTR"),
    "syncfs": ("EIO", "ENOSPC", "EDQUOT"),
    "fadvise64": ("EINVAL",),
    "rename": ("ENOSPC", "EDQUOT", "EIO", "EACCES", "EROFS"),
    "renameat": ("ENOSPC", "EDQUOT", "EIO", "EACCES", "EROFS"),
    "renameat2": ("ENOSPC", "EDQUOT", "EIO", "EACCES", "EROFS"),
    "linkat": ("ENOSPC", "EDQUOT", "EPERM", "EIO", "EMLINK", "EROFS"),
    "unlinkat": ("EIO", "EACCES", "EROFS", "EBUSY"),
    "mkdirat": ("ENOSPC", "EDQUOT", "EACCES", "EROFS"),
    "fchmod": ("EPERM", "EROFS", "EIO"),
    "fchmodat": ("EPERM", "EROFS", "EIO"),
    "fchmodat2": ("EPERM", "EROFS", "EIO"),
    "flock": ("ENOLCK", "EINTR"),
    "ioctl": (),
}
"""The errors that Linux documents for a call in its manual page, as far as an innocent program meets them.

A call that is not here is one that the store is not known to make: it has to be added, with its errors."""


def errors_of(call: SystemCall) -> Iterator[str]:
    """Which errors a call may meet."""
    yield from ERRORS[call.name]
    if call.name == "openat" and ("O_RDWR" in call.arguments or "O_WRONLY" in call.arguments):
        yield from ERRORS["open to write"]
        if "O_CREAT" in call.arguments:
            yield from ERRORS["open to create"]


def injections(call: SystemCall) -> Iterator[Injection]:
    """Every way to fail a call: each error once and for ever (EINTR once: Python tries again until it is over)."""
    for name in errors_of(call):
        assert hasattr(errno, name)
        yield Injection(call, f"error={name}")
        if name != "EINTR":
            yield Injection(call, f"error={name}", for_ever=True)
