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

    def write(self, text: str, /) -> int:
        written = super().write(text)
        self.line.set()
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
    """Each command waits here until its own line was said, and then goes on; into a pipe it is said once."""
    monkeypatch.chdir(tmp_path)
    conversation(tmp_path / "c", [{"role": "user", "content": "hi"}])
    (tmp_path / "c.jsonl").write_bytes(lines({"role": "user", "content": "hi"}))
    monkeypatch.setattr("transcript_store.cli._shared.terminal.PATIENCE_SECONDS", 0.001)
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
