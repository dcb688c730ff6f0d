"""The next import skips deleted sessions and files that an export wrote."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest

from tests.cli.helpers import Cli
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations

SESSION = "6f1d6c5e-7a4c-4a36-9a77-0d8c5d1c9e01"


def rollout(*said: str) -> bytes:
    """A session of Codex in which this was said."""
    head = {"type": "session_meta", "payload": {"id": SESSION, "timestamp": "2026-05-01T10:00:00Z", "cwd": "/srv/shop"}}
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]} for text in said]
    lines = [head, *({"type": "response_item", "payload": item} for item in items)]
    times = [{"timestamp": f"2026-05-01T10:00:{at:02}.000Z", **line} for at, line in enumerate(lines)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in times)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with one session of Codex, imported."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRANSCRIPT_STORE_LIBRARY", str(tmp_path / "chats"))
    folder = tmp_path / ".codex/sessions/2026/05/01"
    folder.mkdir(parents=True)
    (folder / "rollout-1.jsonl").write_bytes(rollout("Mend the flaky checkout test"))
    return tmp_path


def test_a_deleted_session_is_not_imported_again(cli: Cli, home: Path) -> None:
    """Deleted or pruned, a session is not imported again, whatever was added to it; `--again` imports it, and keeps up with it then."""
    library = ConversationLibrary(home / "chats")
    for away in ("delete", "prune"):
        assert cli("import", "codex", "--again").code == 0
        (summary,) = library.list()
        if away == "delete":
            assert cli("delete", "last", "--yes").out == f"deleted {summary.id}\n"
        else:
            assert [one.id for one in library.prune(older_than=timedelta(0), dry_run=False).pruned] == [summary.id]
        (home / ".codex/sessions/2026/05/01/rollout-1.jsonl").write_bytes(rollout("Mend it", away))
        code, out, err = cli("import", "--all")
        assert (code, err, "1 deleted" in out, "--again" in out, library.list()) == (0, "", True, True, [])
    assert "1 created" in cli("import", "--all", "--again").out
    (home / ".codex/sessions/2026/05/01/rollout-1.jsonl").write_bytes(rollout("Mend it", "prune", "And now?"))
    assert "1 grew" in cli("import", "--all").out
    (line,) = (home / "chats/deleted.jsonl").read_text().splitlines()
    assert json.loads(line) == {"id": summary.id, "format": "codex"}


def test_a_session_of_a_framework_leaves_no_note(tmp_path: Path) -> None:
    """Its id is a hash as that of an import is, and no import could bring it back. Nothing of what a service forgets stays behind."""
    library = ConversationLibrary(tmp_path)
    for labels in ({"a-framework.key": "user-1"}, {"source": "codex"}):
        own_id = str(uuid5(NAMESPACE_OID, str(labels)))
        library.create(id=own_id, labels=labels).close()
        library.delete(own_id)
    assert library.deleted_ids() == {own_id}


def test_a_shredded_session_is_not_imported_again(cli: Cli, home: Path) -> None:
    """As long as its folder stands, and when that is gone."""
    library = ConversationLibrary(home / "chats", encryption_key=bytes(32))
    source = [home / ".codex/sessions/2026/05/01/rollout-1.jsonl"]
    (created,) = import_conversations(source, library)
    library.shred(str(created.id))
    assert [one.action for one in import_conversations(source, library)] == ["deleted"]
    library.delete(str(created.id))
    assert [one.action for one in import_conversations(source, library)] == ["deleted"]
    assert [one.action for one in import_conversations(source, library, again=True)] == ["created"]


def test_delete_says_what_it_is_about(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks, with the name, the size and the time. Neither a dry run nor a script without --yes deletes anything."""
    assert cli("import", "codex").code == 0
    code, out, _ = cli("delete", "last", "--dry-run")
    for part in ("would be deleted", "Mend the flaky checkout test", "2026-05-01 10:00:01 UTC", "kB"):
        assert part in out
    code, out, err = cli("delete", "last")
    assert (code, out, "without a terminal, --yes deletes it" in err) == (2, "", True)
    assert cli("delete", "last", "--json").code == 2
    assert len(ConversationLibrary(home / "chats").list()) == 1
    monkeypatch.setattr("transcript_store.cli._shared.terminal.is_at_a_terminal", lambda: True)
    monkeypatch.setattr("transcript_store.cli.manage.is_at_a_terminal", lambda: True)
    for answer, is_left in (("n", 1), ("", 1), ("y", 0)):
        monkeypatch.setattr("builtins.input", lambda answer=answer: answer)
        code, out, _ = cli("delete", "last")
        assert (code, "Mend the flaky checkout test" in out) == (0 if answer == "y" else 2, True)
        assert len(ConversationLibrary(home / "chats").list()) == is_left


@pytest.mark.parametrize("program", ["codex", "claude-code", "gemini-cli", "pi"])
def test_what_export_wrote_is_no_new_conversation(cli: Cli, home: Path, program: str) -> None:
    """Twice, even. As soon as the program went on with one of them it is; and it has the times of the conversation."""
    assert cli("import", "codex").code == 0
    for _ in range(2):
        out = cli("export", "last", "--to", program, "--cwd", str(home)).out
    written = out.splitlines()[-2]
    assert "2026-05-01T10:00:01" in Path(written).read_text()
    assert cli("import", "--all").code == 0
    assert len(ConversationLibrary(home / "chats").list()) == 1
    with open(written, "ab") as file:
        file.write(Path(written).read_bytes().splitlines(keepends=True)[-1])
    assert cli("import", "--all").code == 0
    assert len(ConversationLibrary(home / "chats").list()) == 2
