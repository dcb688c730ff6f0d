"""Drivers at work, each in a process of its own, asked in turn."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TOP = Path(__file__).resolve().parent.parent


class DriverError(Exception):
    """A driver could not do what it was asked: its API has changed, it has no such call, or it takes too long."""


class Process:
    """One driver's process: it ends with the ``with`` block, however that is left."""

    def __init__(self, python: Path, driver: str, folder: Path, *, before: Sequence[str] = ()) -> None:
        self._again = (python, driver, folder)
        self._command = [*before, str(python), "-m", "benchmarks.drivers", driver, str(folder)]
        self._log = folder.with_name(f"{folder.name}.log")

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=TOP,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the benchmark, which ends its drivers itself
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it now, and whatever it has started; its files stay."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with suppress(BrokenPipeError):  # what it did not read any more
            self._process.stdin.close()
        self._process.stdout.close()

    def again(self) -> Process:
        """Another process like this one, with the same folder."""
        return Process(*self._again)

    def ready(self) -> None:
        """Wait until it has imported what it drives. Raises ``DriverError``."""
        self._answer(120)

    def ask(self, command: str, *, timeout_seconds: float = 120, **arguments: Any) -> Any:
        """Have it do something, and return its answer. Raises ``DriverError``; one that took too long is ended."""
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            raise DriverError("has ended")
        with suppress(BrokenPipeError):  # then there is no answer either
            print(json.dumps([command, arguments]), file=self._process.stdin, flush=True)
        return self._answer(timeout_seconds)

    def _answer(self, timeout_seconds: float) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_seconds)[0]:
            self.close()
            raise DriverError(f"took longer than {timeout_seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            said = self._log.read_text(encoding="utf-8").splitlines()
            raise DriverError(said[-1] if said else f"ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise DriverError(answer["error"])
        return answer["answer"]
