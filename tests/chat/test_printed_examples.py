"""The examples of docs/guide.md and docs/chat.md that speak to a model run as they are printed, against the test server."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tests.chat.dialects import DIALECTS
from tests.chat.server import Server
from transcript_store import chat

TOP = Path(__file__).parent.parent.parent
EXAMPLES = [
    (document, number, example)
    for document in ("docs/guide.md", "docs/chat.md")
    for number, example in enumerate(
        re.findall(r"^```py\n(.*?)^```", (TOP / document).read_text(), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize(("document", "number", "example"), EXAMPLES, ids=[f"{d}-{n}" for d, n, _ in EXAMPLES])
def test_an_example_runs(
    document: str, number: int, example: str, server: Server, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Only the server is another one than the reader's."""
    claude = DIALECTS["claude"]
    (tmp_path / "notes").write_text("the notes")
    server.answers += [claude.reply("Let me look.", (("read_file", {"path": "notes"}),)), claude.reply("At the notes.")]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setattr(chat, "create_client", functools.partial(chat.create_client, allow_insecure_base_url=True))
    exec(compile(example, f"{document}, example {number}", "exec"), {})
    assert capsys.readouterr().out == "At the notes.\n"


def test_both_documents_have_an_example() -> None:
    assert {document for document, _, _ in EXAMPLES} == {"docs/guide.md", "docs/chat.md"}
