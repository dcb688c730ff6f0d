"""The status of a service: a file with the result of its last round, and a clean end on SIGTERM.

The file has the text format of Prometheus, for the textfile collector of its node exporter. It is replaced atomically, so a
reader sees one round or the next. Its times are a heartbeat: a health check compares them with the current time.
"""

from __future__ import annotations

import math
import os
import signal
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transcript_store import __version__
from transcript_store.cli._shared.arguments import path
from transcript_store.cli._shared.terminal import complain
from transcript_store.new_files import temporary

_EACH_SECONDS = 15
"""The file is written at least this often: Prometheus usually reads it once a minute."""
_METRICS = {
    "last_round_timestamp_seconds": "When the last round ended, successful or not.",
    "last_success_timestamp_seconds": "When the last round without a failure ended; 0 if none has.",
    "failing_conversations": "Conversations that the last round could not copy.",
    "behind_records": "Records that the last round knew and did not copy.",
    "records_total": "Records copied since the start.",
}


class Stopped(Exception):  # noqa: N818 (not an error: it was requested)
    """SIGTERM came."""


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """In the block SIGTERM raises :class:`Stopped`, so that open files are closed; the block swallows it."""

    def stop(_number: int, _frame: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Stopped:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def add_status_file(parser: ArgumentParser) -> None:
    """Add ``--status-file``."""
    parser.add_argument(
        "--status-file",
        metavar="FILE",
        type=path,
        help="write the last round's result here, for health checks and Prometheus (FILE.prom)",
    )


class StatusFile:
    """The status file of one service; without a path nothing is written. The first write raises ``OSError`` on failure."""

    def __init__(self, file: str | None, command: str, **labels: str) -> None:
        self._path = None if file is None else os.path.abspath(os.path.expanduser(file))
        named = {"command": command, **labels}
        self._labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in named.items())
        self._values = dict.fromkeys(_METRICS, 0.0)
        self._written_at = 0.0
        self._failure = ""
        if self._path is not None:
            self._go_on_from(self._path)
            try:
                self._write()
            except OSError as error:  # it names a temporary file, or none
                raise OSError(error.errno, error.strerror, self._path) from None
            self._written_at = -math.inf  # so the first round is written, however soon it ends

    def _go_on_from(self, path: str) -> None:
        """Continue with the results of the last round and the last success: neither a restart nor a kill may hide a failure."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read(1 << 16).splitlines()
        except OSError:
            return
        for name in _METRICS.keys() - {"records_total"}:
            begins = f"transcript_store_{name}{{{self._labels}}} "
            for line in lines:
                with suppress(ValueError):
                    if line.startswith(begins):
                        self._values[name] = float(line.removeprefix(begins))

    @contextmanager
    def failing_if_it_raises(self) -> Iterator[None]:
        """A block in which a command makes its only round: an error that ends it is a failure of that round."""
        try:
            yield
        except Exception:
            self.end_round(failing=1)
            raise

    def end_round(self, *, failing: int = 0, behind: int = 0, records: int = 0) -> None:
        """Record the result of a round."""
        if self._path is None:
            return
        now, values = time.time(), self._values
        is_news = records > 0 or (values["failing_conversations"], values["behind_records"]) != (failing, behind)
        values["last_round_timestamp_seconds"] = now
        if not failing:
            values["last_success_timestamp_seconds"] = now
        values["failing_conversations"], values["behind_records"] = failing, behind
        values["records_total"] += records
        if not is_news and time.monotonic() - self._written_at < _EACH_SECONDS:
            return
        try:
            self._write()
            self._failure = ""
        except OSError as error:
            if self._failure != str(error):
                complain(f"{self._path}: the status could not be written: {error.strerror}")
            self._failure = str(error)

    def _write(self) -> None:
        assert self._path is not None
        lines = [
            "# HELP transcript_store_build_info The running version.",
            "# TYPE transcript_store_build_info gauge",
            f'transcript_store_build_info{{{self._labels},version="{_escaped(__version__)}"}} 1',
        ]
        for name, what in _METRICS.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP transcript_store_{name} {what}", f"# TYPE transcript_store_{name} {kind}"]
            lines.append(f"transcript_store_{name}{{{self._labels}}} {self._values[name]:.15g}")
        folder, base = os.path.split(self._path)
        with temporary(folder, f".{base}.") as (file, made):
            file.write("\n".join([*lines, ""]).encode())
            file.flush()
            os.fchmod(file.fileno(), 0o644)  # the exporter runs as another user; the file has no secrets
            os.replace(made, self._path)
        self._written_at = time.monotonic()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
