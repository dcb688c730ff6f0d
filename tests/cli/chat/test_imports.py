"""F7: `chat` continues an imported conversation at once, whatever the other program left unfinished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.conftest import OPENAI, Chat
from tests.cli.helpers import lines
from transcript_store import ConversationLibrary

pytestmark = pytest.mark.usefixtures("a_cache_of_its_own")

CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
}


def test_f7_an_import_is_continued_at_once(
    chat: Chat, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request has the messages as the source had them, without the events; a call that has no result gets one.

    The test's server refuses a request in which a call stands without its result.
    """
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    said = [{"role": "user", "content": "Look."}, CALL, {"role": "user", "content": "Well?"}]
    source = tmp_path / "s.jsonl"
    source.write_bytes(lines(said[0]) + b"torn by a cra\n" + lines(*said[1:]))
    imported = chat.cli("import", str(source))
    assert imported.code == 0
    (summary,) = ConversationLibrary(home).list()
    assert f"transcript-store chat {(summary.id or '')[:8]}\n" in imported.out
    chat.server.answers += [OPENAI.stream("Here.")]
    result = chat(summary.directory, lines="And now?\n")
    assert (result.code, result.out.rpartition("\n")[0].rpartition("\n")[2]) == (0, "Here.")
    sent = OPENAI.messages(chat.server.bodies[-1])
    assert [message for message in sent if message in said] == said
    assert chat.cli("import", str(source)).out.startswith("1 unchanged")
    with source.open("ab") as file:
        file.write(lines({"role": "user", "content": "elsewhere"}))
    diverged = chat.cli("import", str(source))
    assert (diverged.code, "diverged" in diverged.err) == (1, True)


def test_an_import_is_named_as_everywhere(chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DIR/last and the beginning of an id mean a conversation that is there: no second one is begun beside it."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (tmp_path / "s.jsonl").write_bytes(
        lines({"role": "user", "content": "Look."}, {"role": "assistant", "content": "I do."})
    )
    chats = tmp_path / "chats"
    nothing = chat(str(chats / "last"), lines="Hello?\n")
    assert (nothing.code, "there is no conversation yet" in nothing.err, chats.exists()) == (2, True, False)
    assert chat.cli("import", str(tmp_path / "s.jsonl"), "--into", str(chats)).code == 0
    (summary,) = ConversationLibrary(chats).list()
    for name in ("last", (summary.id or "")[:4]):
        chat.server.answers += [OPENAI.stream("Here.")]
        assert chat(str(chats / name), lines="And now?\n").code == 0
    assert [path.name for path in chats.iterdir()] == [summary.id]
    assert len(OPENAI.messages(chat.server.bodies[-1])) >= 5
