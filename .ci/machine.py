"""What a step of CI needs: commands, environments, and a table of the time that each step took."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent


class StopError(Exception):
    """A step cannot do its work. The message says what the caller can do."""


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: str | Path, cwd: Path = TOP, env: dict[str, str] | None = None) -> None:
    """Run a command to its end; its output is CI's. Raises `subprocess.CalledProcessError` if it fails."""
    words = [str(word) for word in command]
    say(f"$ {shlex.join(words)}")
    subprocess.run(words, check=True, cwd=cwd, env=env, stdin=subprocess.DEVNULL)


def said(*command: str | Path, cwd: Path = TOP, env: dict[str, str] | None = None) -> str:
    """What a command prints. Raises `subprocess.CalledProcessError` if it fails."""
    return subprocess.run([*map(str, command)], check=True, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True).stdout


def environment(folder: Path, *wanted: str, python: str | Path = sys.executable) -> Path:
    """A virtual environment with these packages, made if it is not there; the folder of its programs."""
    if not (folder / "bin").exists():
        run(python, "-m", "venv", folder)
        run(folder / "bin/pip", "install", "-q", *wanted)
    return folder / "bin"


def within(programs: Path) -> dict[str, str]:
    """The variables of a shell in which this virtual environment is active."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(programs.parent)}


@dataclass
class Times:
    """How long each step took, and how the last one ended."""

    title: str
    rows: list[tuple[str, float, float, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the reader has to know at the end: warnings, and what was left for another run."""

    def note(self, text: str) -> None:
        self.notes.append(text)
        say(text)

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[None]:
        say(f"\n=== {name}: {title}")
        begin, processor = time.monotonic(), _processor_seconds()
        outcome = "FAILED"
        try:
            yield
            outcome = ""
        finally:
            self.rows.append((name, time.monotonic() - begin, _processor_seconds() - processor, outcome))

    def table(self) -> str:
        """A line a step: minutes of the clock, and of the processor, which who else is at work does not change."""
        width = max([len(name) for name, *_ in self.rows] + [len("step"), len("all")])
        lines = [f"\n=== {self.title}", f"{'step':<{width}}  minutes  processor"]
        whole = ("all", sum(row[1] for row in self.rows), sum(row[2] for row in self.rows), "")
        for name, clock, processor, outcome in [*self.rows, whole]:
            lines.append(f"{name:<{width}}  {clock / 60:>7.1f}  {processor / 60:>9.1f}  {outcome}".rstrip())
        return "\n".join([*lines, *self.notes])

    def all(self, steps: Sequence[tuple[str, str, Callable[[], None]]]) -> int:
        """Run these steps up to the first that fails; the table is printed in any case. The exit status."""
        try:
            for name, title, action in steps:
                with self.step(name, title):
                    action()
        except subprocess.CalledProcessError as error:
            words = error.cmd if isinstance(error.cmd, list) else [error.cmd]
            self.note(
                f"=== FAILED (exit code {error.returncode}) in the step {self.rows[-1][0]}: {shlex.join(map(str, words))}"
            )
            return 1
        except StopError as error:
            self.note(f"=== FAILED in the step {self.rows[-1][0]}: {error}")
            return 1
        except BaseException as error:
            traceback.print_exc()
            self.note(f"=== FAILED in the step {self.rows[-1][0] if self.rows else 'that was to come first'}")
            if not isinstance(error, Exception):
                raise  # Ctrl-C and SIGTERM end .ci/whole, not one piece of it
            return 1
        finally:
            say(self.table())
        return 0


def _processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
