"""A command that takes longer than a second shows what it is doing."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.cli.helpers import Cli, conversation, lines

pytestmark = pytest.mark.usefixtures("a_cache_of_its_own")


class Heard(io.StringIO):
    """A standard error that tells when the first line is said."""

    def __init__(self) -> None:
        super().__init__()
        self.line = threading.Event()
        self.counted = threading.Event()

    def write(self, text: str, /) -> int:
        written = super().write(text)
        self.line.set()
        if "1/1" in text:
            self.counted.set()
        return written


@pytest.mark.parametrize(
    ("slow", "arguments", "says"),
    [
        ("cli.view.write_page", ("view", "c", "--output", "c.html"), "writing the page …"),
        ("library.ConversationLibrary.fork_from", ("fork", "c"), "copying …"),
        ("cli.export.export", ("export", "c", "--to", "markdown", "--output", "c.md"), "exporting …"),
        ("cli.import_.import_conversations", ("import", "c.jsonl", "--into", "chats"), "importing …"),
        ("cli.doctor.doctor", ("doctor", "c"), "testing …"),
    ],
)
def test_what_takes_long_says_what_it_does(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str, arguments: tuple[str, ...], says: str
) -> None:
    """Each command waits here until it has printed its line, and then continues; in the first ten seconds a pipe gets one line."""
    monkeypatch.chdir(tmp_path)
    conversation(tmp_path / "c", [{"role": "user", "content": "hi"}])
    (tmp_path / "c.jsonl").write_bytes(lines({"role": "user", "content": "hi"}))
    monkeypatch.setattr("transcript_store.cli._shared.terminal.PATIENCE_SECONDS", 0.001)
    monkeypatch.setattr("transcript_store.cli._shared.terminal.SECONDS_BETWEEN_LINES", sys.maxsize)
    monkeypatch.setattr(sys, "stderr", heard := Heard())
    slow = f"transcript_store.{slow}"
    real = resolve_name(slow)

    def later(reports: Iterable[Any]) -> Iterator[Any]:
        assert heard.line.wait(30)
        yield from reports

    def waits(*given: Any, **named: Any) -> Any:
        if "import" in slow:  # it reads when the first report is asked for
            return later(real(*given, **named))
        assert heard.line.wait(30)
        return real(*given, **named)

    monkeypatch.setattr(slow, waits)
    code, out, _ = cli(*arguments)
    assert heard.getvalue() == f"transcript-store: {says}\n"
    assert code == 0 or arguments[0] == "doctor"
    assert out


def test_what_takes_very_long_says_so_again(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal too: `secrets` of 199 conversations printed one line in 50 seconds. It counts what it has read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".pi/agent/sessions").mkdir(parents=True)
    (tmp_path / ".pi/agent/sessions/one.jsonl").write_bytes(lines({"type": "session", "version": 3, "id": "s"}))
    monkeypatch.setattr("transcript_store.cli._shared.terminal.PATIENCE_SECONDS", 0.001)
    monkeypatch.setattr("transcript_store.cli._shared.terminal.SECONDS_BETWEEN_LINES", 2)
    monkeypatch.setattr(sys, "stderr", heard := Heard())
    real = resolve_name("transcript_store.cli.secrets.import_conversations")

    def waits(*given: Any, **named: Any) -> Iterator[Any]:
        for report in real(*given, **named):
            yield report
            heard.counted.clear()
            assert heard.counted.wait(30)

    monkeypatch.setattr("transcript_store.cli.secrets.import_conversations", waits)
    assert cli("secrets", str(tmp_path)).code == 0
    assert "transcript-store: looking for secrets in what other programs keep, 1/1 … " in heard.getvalue()
