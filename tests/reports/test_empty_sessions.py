"""Sessions in which nothing was said are counted and left out, and hinder nobody.

Reports: a real export of Claude.ai with 1,547 conversations, 1,300 of them empty (Superkikim/nexus-ai-chat-importer#76);
google-gemini/gemini-cli#28036: ``--resume`` leaves a second file with the same session id that has the context alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import a_cache_of_its_own, cli  # noqa: F401 (fixtures)
from tests.cli.helpers import Cli
from tests.importing.helpers import files_of
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations

EMPTY = [
    {"uuid": f"c-{n}", "name": f"Empty {n}", "created_at": "2026-08-01T10:00:00Z", "updated_at": "2026-09-01T10:10:00Z"}
    for n in range(3)
]
HEADERS = {
    "claude-ai.json": json.dumps([{**one, "chat_messages": []} for one in EMPTY]),
    "chatgpt.json": json.dumps(
        [{"title": "New chat", "create_time": 1.78e9, "update_time": 1.78e9, "mapping": {}, "conversation_id": "c"}]
    ),
    "pi.jsonl": '{"type":"session","version":3,"id":"s","timestamp":"2026-09-01T10:00:00Z","cwd":"/p"}\n',
    "nothing.jsonl": "",
    "lines.jsonl": "\n\r\n \n",
}


@pytest.mark.usefixtures("a_cache_of_its_own")
def test_they_are_one_line_of_the_report_and_no_error(cli: Cli, tmp_path: Path, library: ConversationLibrary) -> None:  # noqa: F811
    """Named or in a folder, the first time and from the cache; --empty takes those of a known program, at their time."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for name, text in HEADERS.items():
        (folder / name).write_text(text)
    for number in range(300):
        (folder / f"{number}.jsonl").touch()
    named = [str(folder / name) for name in HEADERS]
    into = ("--into", library.directory)
    for paths, count in ((named, 7), ([str(folder)], 307), ([str(folder)], 307)):
        code, out, err = cli("import", *paths, *into)
        assert (code, err) == (0, "")
        assert out == f"left out: {count} sessions without a message (--empty imports the new ones)\n"
    assert list(library.list()) == []
    reports = [json.loads(line) for line in cli("import", str(folder), *into, "--json").out.splitlines()]
    assert [report["action"] for report in reports] == ["empty"] * 307
    assert "5 created" in cli("import", str(folder), *into, "--empty").out
    times = {str((one.labels or {}).get("title")): one.updated_at for one in library.list()}
    assert times["Empty 1"] == "2026-09-01T10:10:00.000000Z"
    before = files_of(Path(library.directory))
    assert "5 unchanged" in cli("import", str(folder), *into).out
    assert files_of(Path(library.directory)) == before


def test_one_that_is_continued_is_imported(tmp_path: Path, library: ConversationLibrary) -> None:
    """Whatever the cache knows of it."""
    path = tmp_path / "pi.jsonl"
    path.write_text(HEADERS["pi.jsonl"])

    def action() -> str:
        (report,) = import_conversations([path], library, cache=tmp_path / "cache")
        return report.action

    assert [action(), action()] == ["empty", "empty"]
    with path.open("a") as file:
        message = {"role": "user", "content": "hi"}
        line = {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-09-01T10:00:00Z", "message": message}
        file.write(json.dumps(line) + "\n")
    assert [action(), action()] == ["created", "unchanged"]


def test_what_no_reader_understood_is_not_empty(tmp_path: Path, library: ConversationLibrary) -> None:
    """A finding, a loss or a speaker says that there is something: it is kept, as it was."""
    path = tmp_path / "pi.jsonl"
    spoken = '{"type":"message","id":"a","timestamp":"2026","message":{"role":"human","parts":[{"text":"hi"}]}}\n'
    for number, line in enumerate(("torn by a cra\n", spoken)):
        path.write_text(HEADERS["pi.jsonl"].replace('"s"', f'"s{number}"') + line)
        (report,) = import_conversations([path], library)
        assert (report.action, report.messages, report.lines.in_events) == ("created", 0, 2)


def gemini(folder: Path, name: str, *lines: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    first = {"sessionId": "s", "projectHash": "ab" * 32, "startTime": "2026-09-01T10:00:00.000Z", "kind": "main"}
    context = {"id": f"x{name}", "type": "user", "content": [{"text": "<session_context>\nThis is Gemini CLI.\n"}]}
    path = folder / f"session-{name}.jsonl"
    values = (first, {"$set": {"messages": [context]}}, *lines)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


SAID: tuple[dict[str, Any], ...] = (
    {"id": "m1", "timestamp": "2026-09-01T10:00:01.000Z", "type": "user", "content": [{"text": "alpha"}]},
    {"id": "m2", "timestamp": "2026-09-01T10:00:02.000Z", "type": "gemini", "content": [{"text": "beta"}]},
)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("first", ["1", "2"])
@pytest.mark.parametrize("original_stays", [True, False])
@pytest.mark.parametrize("takes_empty", [True, False])
def test_a_second_file_with_the_context_alone_is_passed_over(
    first: str, original_stays: bool, takes_empty: bool, tmp_path: Path, library: ConversationLibrary
) -> None:
    """In either order; also if the file with the conversation is gone, which its messages outlive."""
    folder = tmp_path / "chats"
    whole, context = gemini(folder, "1", *SAID), gemini(folder, "2")
    if first == "2":
        (report,) = import_conversations([context], library, empty=takes_empty)
        assert (report.action, report.messages) == ("created", 1)
    actions = {
        report.source: report.action for path in (whole, context) for report in import_conversations([path], library)
    }
    assert actions == {str(whole): "created" if first == "1" else "replaced", str(context): "empty"}
    if not original_stays:
        whole.unlink()
    before = files_of(Path(library.directory))
    again = [report.action for report in import_conversations([folder], library, empty=takes_empty)]
    assert again == (["unchanged", "empty"] if original_stays else ["empty"])
    assert files_of(Path(library.directory)) == before
    (summary,) = library.list()
    with library.open(str(summary.id), read_only=True) as store:
        assert "beta" in json.dumps(store.get_messages())


def test_a_second_file_in_which_something_is_said_is_still_told(tmp_path: Path, library: ConversationLibrary) -> None:
    folder = tmp_path / "chats"
    gemini(folder, "1", *SAID)
    gemini(folder, "2", {**SAID[0], "content": [{"text": "gamma"}]})
    assert [report.action for report in import_conversations([folder], library)] == ["created", "diverged"]


@pytest.mark.parametrize("data", [b"[]", b"[]\n", b"\xef\xbb\xbf []\r\n"])
def test_an_export_without_a_conversation_is_empty(data: bytes, tmp_path: Path, library: ConversationLibrary) -> None:
    """A part of an export (`conversations-001.json`) in which there is none; it was of no known format, exit 1."""
    path = tmp_path / "conversations-001.json"
    path.write_bytes(data)
    assert [report.action for report in import_conversations([path], library)] == ["empty"]
