"""A conversation is called by what the user typed, or by its program's title, and is listed by when something was last said.

Reports: microsoft/intelligent-terminal#339, xintaofei/codeg#789 (Codex), d-kimuson/claude-code-viewer#150, anthropics/claude-code#89857
(Claude Code), lyfuci/ai-terminal-manager#27 (Gemini CLI), arcboxlabs/linkcode#76 (summaries), nowledge-co/community#469 (times),
NousResearch/hermes-agent#90652 (Kimi's state.json).
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.reports.sessions import SESSION, ClaudeLines, imported, lines, told
from transcript_store import ConversationLibrary
from transcript_store.formats._pi import _labels_in
from transcript_store.importing import import_conversations
from transcript_store.messages import typed_of
from transcript_store.search import SearchIndex
from transcript_store.testing import SimulatedBackend

ASKED = "Why is the build red?"


def claude(*said: Any, **members: Any) -> list[Any]:
    session = ClaudeLines()
    for one in said:
        session.user(one, **(members if one != ASKED else {}))
    return session.lines


def kimi(said: str) -> list[Any]:
    message = {"role": "user", "content": [{"type": "text", "text": said}], "origin": {"kind": "user"}}
    return [
        {"type": "metadata", "protocol_version": "1.4"},
        {"type": "context.append_message", "message": message, "time": 1788256800000},
    ]


def codex(*texts: str) -> list[Any]:
    at = "2026-09-01T10:00:00.000Z"
    return [
        {"timestamp": at, "type": "session_meta", "payload": {"id": SESSION, "timestamp": at, "cwd": "/tmp/p"}},
        *(
            {"timestamp": at, "type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}}
            for text in texts
        ),
    ]  # fmt: skip


def gemini(*said: str | list[str]) -> list[Any]:
    at = "2026-09-01T10:00:00.000Z"
    return [
        {"sessionId": SESSION, "projectHash": "ab", "startTime": at, "lastUpdated": at, "kind": "main"},
        *(
            {"id": f"m{number}", "timestamp": at, "type": "user", "content": [{"text": text} for text in ([texts] if isinstance(texts, str) else texts)]}
            for number, texts in enumerate(said)
        ),
    ]  # fmt: skip


def openclaw(said: str) -> list[Any]:
    at = "2026-09-01T10:00:00.000Z"
    message = {"role": "user", "content": [{"type": "text", "text": said}], "timestamp": 1788256800000}
    return [
        {"type": "session", "version": 3, "id": SESSION, "timestamp": at, "cwd": "/tmp/p"},
        {"type": "message", "id": "a", "parentId": None, "timestamp": at, "message": message},
    ]


INJECTED = {
    "claude-caveat": claude("<local-command-caveat>Caveat: x</local-command-caveat>", "<local-command-stdout>a</local-command-stdout>", ASKED),
    "claude-meta": claude("Base directory for this skill: /x", ASKED, isMeta=True),
    "claude-summary": claude("This session is being continued from a previous conversation that ran out", ASKED),
    "claude-task": claude("<task-notification>\n<task-id>1</task-id>\n</task-notification>", ASKED),
    "claude-reminder": claude(f"<system-reminder>be brief</system-reminder>\n{ASKED}"),
    "claude-ide": claude([{"type": "text", "text": "<ide_opened_file>The user opened x</ide_opened_file>"}, {"type": "text", "text": ASKED}]),
    "claude-interrupted": claude("[Request interrupted by user]", ASKED),
    "codex-agents": codex("# AGENTS.md instructions for /tmp/p\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>", "<environment_context>\n</environment_context>", ASKED),
    "codex-modes": codex("<collaboration_mode>\n# Default\n`<collaboration_mode>...</collaboration_mode>` changes it; nothing else does.\n</collaboration_mode>", ASKED),
    "claude-nested": claude(f"{ASKED}\n<system-reminder>a <system-reminder>b</system-reminder> c</system-reminder>"),
    "codex-glued": codex(f"<environment_context>\n<cwd>/</cwd>\n</environment_context>\n{ASKED}"),
    "codex-ide": codex(f"# Context from my IDE setup:\n\n## Open tabs:\n- a\n\n## My request for Codex:\n{ASKED}"),
    "codex-app": codex(f"# Files mentioned by the user:\n\n## a.png: /a.png\n\n## My request for Codex:\n{ASKED}", '<image name=[Image #1] path="/a.png">', "</image>"),
    "codex-newer-app": codex(f"# Files pasted by the user:\n\n## a: /a\n\nDistinguish instructions.\n\n## My request:\n{ASKED}"),
    "codex-browser": codex(f'<in-app-browser-context source="ambient-ui-state">\nx\n</in-app-browser-context>\n\n## My request for Codex:\n{ASKED}'),
    "codex-comments": codex(f"# Browser comments:\n\n## Comment 1\nComment:\nx\n\n## My request for Codex:\n{ASKED}"),
    "claude-image": claude("[Image: source: /a.png]", ASKED),
    "kiro": [{"version": "v1", "kind": "Prompt", "data": {"content": [{"kind": "text", "data": f"--- CONTEXT ENTRY BEGIN ---\nCurrent time: x\n--- CONTEXT ENTRY END ---\n\n--- USER MESSAGE BEGIN ---\n{ASKED}--- USER MESSAGE END ---"}]}}],
    "acp": [{"method": "session/update", "params": {"sessionId": SESSION, "update": {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": said}}}} for said in ("<system-reminder>be ", f"brief</system-reminder>\n{ASKED}")],
    "openclaw": openclaw(f'Conversation info (untrusted metadata):\n```json\n{{"sender": "Will"}}\n```\n\nSender (untrusted metadata):\n```json\n{{"id": "1"}}\n```\n\n[Mon 2026-02-23 10:54 GMT-7] {ASKED}'),
    "gemini": gemini("<session_context>\nThis is the Gemini CLI.\n</session_context>", ASKED),
    "gemini-old": gemini("This is the Gemini CLI. We are setting up the context for our chat.\nToday", f"{ASKED}\n<system_note>x</system_note>"),
    "gemini-file": gemini([ASKED, "\n--- Content from referenced files ---", "\nContent from @a.txt:\n", "a", "\n--- End of content ---"]),
    "gemini-file-glued": gemini(f"{ASKED}\n--- Content from referenced files ---\nContent from @a.txt:\na\n--- End of content ---"),
}  # fmt: skip


@pytest.mark.parametrize("name", INJECTED)
def test_what_the_program_injected_is_no_name(tmp_path: Path, name: str) -> None:
    """It is folded and quiet on the page and in show, and behind what was said in the search."""
    got = imported(tmp_path, INJECTED[name])
    assert got.name() == ASKED
    assert f"# {ASKED}".replace("?", "?") in told("export", got.directory, "--to", "markdown").replace("\\", "")
    page = got.page()
    assert page.count('class="user prompt') == 1
    assert "Written by the program" in page
    assert '<span class="name">text</span>' not in page, "what is folded is not shown a second time"
    assert "that the program wrote" in got.show()
    assert got.found(f'"{ASKED}"')[0]["where"] == "text"
    assert got.has_its_bytes()


def test_it_is_folded_on_a_branch_that_was_left_too(tmp_path: Path) -> None:
    session = ClaudeLines()
    first = session.user(ASKED)
    session.user("<system-reminder>be brief</system-reminder>\nWhich one?")
    session.reply("That one.")
    session.user("Never mind.", parent=first)
    session.reply("Well.")
    page = imported(tmp_path, session.lines).page()
    left = page[page.index("on an abandoned branch") :]
    assert (
        left.index("Which one?")
        < left.index("Written by the program")
        < left.index("be brief")
        < left.index("That one.")
    )


def test_elements_of_a_message_take_time_by_its_length(tmp_path: Path) -> None:
    """130 KB of them took nine seconds, and four times that for twice as much: with a megabyte this test would not end."""
    said = f"{ASKED}\n" + "<system-reminder></system-reminder>" * 30_000
    assert imported(tmp_path, claude(said)).name() == ASKED


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("<command-message>review-pr is running…</command-message>\n<command-name>/review-pr</command-name>\n<command-args>482</command-args>", "/review-pr 482"),
        ("<command-name>/init</command-name>", "/init"),
        ("<command-name>/init</command-name><command-args></command-args>\n<local-command-stdout>x</local-command-stdout>", "/init"),
        ("<bash-input>make test</bash-input>", "! make test"),
    ],
)  # fmt: skip
def test_a_command_is_called_as_it_was_typed(tmp_path: Path, said: str, name: str) -> None:
    assert imported(tmp_path, claude(said)).name() == name


def test_a_command_in_a_line_that_the_program_calls_its_own_is_the_users(tmp_path: Path) -> None:
    """Versions of Claude Code wrote commands with ``isMeta``, and prompts of its own without (specstoryai/getspecstory#179)."""
    own = "Write a 3-6 word summary of the TEXTBLOCK below. Summary only.\n<TEXTBLOCK>x</TEXTBLOCK>"
    got = imported(tmp_path, [*claude(own), *claude("", "<command-name>/init</command-name>", isMeta=True)[1:]])
    assert got.name() == "/init"


def test_what_began_a_session_names_it_after_a_compaction(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user("Where does the zebra sleep?")
    session.reply("In the alpha stable.")
    session.compact()
    session.user("And the horse?")
    got = imported(tmp_path, session.lines)
    assert got.name() == "Where does the zebra sleep?"
    assert [(hit["title"], hit["beside"], hit["generation"]) for hit in got.found('"alpha stable"')] == [
        ("Where does the zebra sleep?", "earlier-generation", 0)
    ]
    assert "--generation 0 --around" in told("search", "alpha stable", got.library.directory)


def test_what_a_user_replaced_or_took_back_by_hand_stays_unfound(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user("Where does the zebra sleep?")
    session.compact()
    session.user("And the horse?")
    got = imported(tmp_path, session.lines)
    with got.library.open(str(got.report.id)) as store:
        kept = [record.message for record in store.get_records() if record.message is not None]
        store.replace_transcript([*kept, {"role": "user", "content": "By hand"}])
    assert got.found("zebra") == []
    assert len(got.found("horse")) == 1


def test_changed_is_when_something_was_last_said(tmp_path: Path) -> None:
    """Two generations, a rename and a label are no news; prune, which deletes, looks at the latest write."""
    session = ClaudeLines()
    session.user("Where does the zebra sleep?")
    session.compact()
    last = session.user("And the horse?")
    got = imported(tmp_path, session.lines)
    said = str(session.lines[last - 1]["timestamp"])[:19]
    for _ in range(2):
        (summary,) = got.library.list()
        assert (summary.updated_at or "")[:19] == said
        with SearchIndex(got.library, cache=tmp_path / "cache") as index:
            assert [(one.updated_at or "")[:19] for one in index.list(wait=True)] == [said]
            assert index.list(filter="after:2026-10-01", wait=True).total == 0
        told("rename", got.directory, "Another name")
    assert got.library.prune(older_than=timedelta(minutes=30)).pruned == ()
    assert len(got.library.prune(older_than=timedelta(0)).pruned) == 1


def test_titles_that_stand_beside_a_session_are_read(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user(ASKED)
    beside = tmp_path / SESSION / "custom-title.json"
    beside.parent.mkdir()
    beside.write_text('{"customTitle": "My own title"}')
    assert imported(tmp_path, session.lines).report.title == "My own title"


def test_a_list_of_titles_beside_rollouts_is_read(tmp_path: Path) -> None:
    (tmp_path / "session_index.jsonl").write_text(json.dumps({"id": SESSION, "thread_name": "Zebra plan"}) + "\n")
    got = imported(tmp_path, codex(ASKED), "sessions/2026/09/01/rollout-a.jsonl")
    assert got.report.title == "Zebra plan"


@pytest.mark.parametrize(("agent", "title", "part_of"), [("main", "Zebra plan", None), ("agent-0", None, "session_1")])
def test_kimis_state_has_title_and_parent(tmp_path: Path, agent: str, title: str | None, part_of: str | None) -> None:
    folder = tmp_path / "sessions" / "wd" / "session_1"
    folder.mkdir(parents=True)
    agents = {"main": {"parentAgentId": None}, "agent-0": {"parentAgentId": "main"}}
    (folder / "state.json").write_text(json.dumps({"title": "Zebra plan", "agents": agents}))
    got = imported(tmp_path, kimi(agent), f"sessions/wd/session_1/agents/{agent}/wire.jsonl")
    with got.library.open(str(got.report.id), read_only=True) as store:
        labels = store.get_metadata().labels
    assert (labels.get("title"), labels.get("part_of")) == (title, part_of)


def test_a_file_beside_a_session_that_is_a_link_is_not_opened(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user(ASKED)
    (tmp_path / "secret.json").write_text('{"customTitle": "secret"}')
    (tmp_path / SESSION).mkdir()
    (tmp_path / SESSION / "custom-title.json").symlink_to(tmp_path / "secret.json")
    assert imported(tmp_path, session.lines).report.title is None


def _renamed(path: Path, title: str) -> None:
    """The file beside a session says another title, written at another time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(title)
    os.utime(path, (1_788_000_000 + len(title), 1_788_000_000 + len(title)))


BESIDE = {
    "claude-code": (f"p/{SESSION}.jsonl", f"p/{SESSION}/custom-title.json", '{"customTitle": "TITLE"}'),
    "kimi": ("s/session_1/agents/main/wire.jsonl", "s/session_1/state.json", '{"title": "TITLE"}'),
}


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("program", BESIDE)
def test_a_title_that_changes_beside_a_session_is_seen_by_the_next_import(
    tmp_path: Path, program: str, is_cached: bool
) -> None:
    """No line of the session changed. A title that you give here stays; what is the same twice is written once."""
    name, beside, said = BESIDE[program]
    session, library = ClaudeLines(), ConversationLibrary(tmp_path / "library")
    session.user("Where does the zebra sleep?")
    path, cache = tmp_path / name, tmp_path / "cache" if is_cached else None
    path.parent.mkdir(parents=True)
    path.write_bytes(lines(kimi("main") if program == "kimi" else session.lines))
    os.utime(path, (1_788_000_000, 1_788_000_000))

    def imported_as() -> tuple[str, str | None]:
        (report,) = import_conversations([path], library, cache=cache)
        with library.open(str(report.id), read_only=True) as store:
            return report.action, store.get_metadata().labels.get("title")

    assert imported_as() == ("created", None)
    for title in ("First", "Another one"):
        _renamed(tmp_path / beside, said.replace("TITLE", title))
        assert [imported_as() for _ in range(3)] == [("grew", title), ("unchanged", title), ("unchanged", title)]
    (summary,) = library.list()
    assert str(summary.updated_at) < "2026-09-02"  # nothing was said since
    with library.open(str(summary.id)) as store:
        assert store.get_metadata().generation == 0
        store.update_metadata(labels={**store.get_metadata().labels, "title": "Mine"})
    _renamed(tmp_path / beside, said.replace("TITLE", "The third title"))
    assert [imported_as() for _ in range(2)] == [("unchanged", "Mine")] * 2


def test_a_backend_lists_by_when_something_was_last_said_too(tmp_path: Path) -> None:
    """As a folder does, whatever was done to a conversation since; and prune keeps what was imported or renamed just now."""
    session = ClaudeLines()
    session.user(ASKED)
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(lines(session.lines))
    libraries = [ConversationLibrary(tmp_path / "folder"), ConversationLibrary(SimulatedBackend())]
    ids = []
    for library in libraries:
        (report,) = import_conversations([path], library)
        ids.append(str(report.id))
        with library.create(labels={"title": "now"}) as store:
            store.append_message({"role": "user", "content": "now"})
        assert [one.title for one in library.list()] == ["now", None]
        with library.open(ids[-1]) as store:
            store.update_metadata(labels={**store.get_metadata().labels, "title": "old"})
        assert [one.title for one in library.list()] == ["now", "old"]
        assert [one.title for one in library.list(limit=1)] == ["now"]
        assert [one.title for one in library.list(before=library.list(limit=1)[0])] == ["old"]
    in_folder, on_backend = (next(one for one in library.list() if one.title == "old") for library in libraries)
    assert (on_backend.updated_at, on_backend.updated_at) == (in_folder.updated_at, "2026-09-01T10:00:05.000000Z")
    assert str(on_backend.touched_at) > "2026-09-02"
    for library in libraries:
        assert library.prune(older_than=timedelta(minutes=30)).pruned == ()
        assert library.prune(older_than=timedelta(minutes=30), dry_run=False).pruned == ()
        assert len(library.prune(older_than=timedelta(0)).pruned) == 2


def test_a_backend_keeps_what_was_imported_just_now(tmp_path: Path) -> None:
    """Nothing was changed since the import, whose records are months old."""
    session = ClaudeLines()
    session.user(ASKED)
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(lines(session.lines))
    library = ConversationLibrary(SimulatedBackend())
    assert [report.action for report in import_conversations([path], library)] == ["created"]
    assert library.prune(older_than=timedelta(minutes=30)).pruned == ()
    assert library.prune(older_than=timedelta(0), dry_run=False).pruned != ()
    assert library.list() == []


@pytest.mark.parametrize("title", ["New Session", "New chat", "Untitled Session", "Untitled", "CLI Session"])
def test_what_a_program_calls_every_new_session_is_no_title(tmp_path: Path, title: str) -> None:
    item = {"message": {"role": "user", "content": ASKED}}
    about = {"sessionId": SESSION, "title": title, "workspaceDirectory": "/p", "history": [item]}
    assert imported(tmp_path / "continue", json.dumps(about).encode(), "a.json").name() == ASKED
    chat = {"uuid": SESSION, "name": title, "chat_messages": [{"uuid": "a", "sender": "human", "text": ASKED}]}
    assert imported(tmp_path / "claude-ai", json.dumps([chat]).encode(), "conversations.json").name() == ASKED


def test_a_comment_without_a_request_and_metadata_in_another_form_are_what_was_typed(tmp_path: Path) -> None:
    got = imported(tmp_path / "codex", codex("# Browser comments:\n\n## Comment 1\nComment:\nToo blue"))
    assert "Too blue" in got.show()
    assert "that the program wrote" not in got.show()
    for number, heading in enumerate(("## My request", "# In app browser:", "# Files pasted by the user:")):
        got = imported(tmp_path / str(number), codex(f"{heading}\nWhere is the zebra?"))
        assert "that the program wrote" not in got.show()
        assert got.found("zebra")[0]["where"] == "text"
    got = imported(tmp_path / "pi", openclaw("Sender (untrusted metadata):\nWhere is the zebra?"))
    assert "that the program wrote" not in got.show()


@pytest.mark.parametrize("name", ["name = 'My title'", 'name = "My \\"best\\" title"'])
def test_gptmes_name_is_toml(tmp_path: Path, name: str) -> None:
    (tmp_path / "talk").mkdir()
    (tmp_path / "talk/config.toml").write_text(f"[chat]\n{name}\n")
    said = [{"role": "user", "content": ASKED, "timestamp": "2026-09-01T10:00:00", "pinned": False, "hide": False}]
    assert imported(tmp_path, said, "talk/conversation.jsonl").name().startswith("My ")


def test_the_label_of_a_session_of_openclaw_is_its_title(tmp_path: Path) -> None:
    listed = {"agent:main:main": {"sessionId": SESSION, "label": "My title"}, "other": 1}
    (tmp_path / "sessions.json").write_text(json.dumps(listed))
    assert imported(tmp_path, openclaw(ASKED)).name() == "My title"


def test_the_list_beside_many_sessions_is_parsed_once_and_again_when_it_changed(tmp_path: Path) -> None:
    """It was read and parsed for each session: 1,200 sessions took five times as long for each as without it."""
    (tmp_path / "sessions").mkdir()
    ids = [f"0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a{number}" for number in range(10, 30)]
    library = ConversationLibrary(tmp_path / "library")
    for one in ids:
        (tmp_path / "sessions" / f"{one}.jsonl").write_bytes(
            lines(openclaw(ASKED)).replace(SESSION.encode(), one.encode())
        )
    for title in ("first", "again"):
        listed = {one: {"sessionId": one, "label": f"{title} {one}"} for one in ids}
        (tmp_path / "sessions" / "sessions.json").write_text(json.dumps(listed))
        before = _labels_in.cache_info().misses
        list(import_conversations([tmp_path / "sessions"], library))
        assert _labels_in.cache_info().misses - before == 1
        assert sorted(summary.title or "" for summary in library) == [f"{title} {one}" for one in ids]


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("Tue, 01 Sep 2026 10:00:00 +0200", "08:00:00"),
        ("1 Sep 2026 10:00:00 GMT", "10:00:00"),
        ("2026-09-01 10:00:00 UTC", "10:00:00"),
        ("2026-09-01 10:00:00.123456789 +0200 CEST m=+0.01", "08:00:00.123456"),
        ("2026/09/01 10:00", "10:00:00"),
        ("2026-9-1 10:00:00", "10:00:00"),
        ("Tue Sep  1 10:00:00 2026", "10:00:00"),
        ("Tue Sep  1 10:00:00 UTC 2026", "10:00:00"),
        ("Tue Sep 01 2026 10:00:00 GMT+0200 (Central European Summer Time)", "08:00:00"),
        ("September 1, 2026 10:00", "10:00:00"),
        ("2026-08-31T24:00:00Z", "00:00:00"),
        ("2026-09-01T10:00:60Z", "10:01:00"),
        ("9/1/2026 10:00", None),  # or the ninth of January
        ("2026-02-31 10:00:00 UTC", None),
        ("Tue Foo 01 2026 10:00:00", None),
    ],
)
def test_a_time_in_another_form_is_one_if_it_can_be_read_in_one_way(
    tmp_path: Path, written: str, at: str | None
) -> None:
    """The lists were sorted by the time of the import. A time that cannot be read is kept as its text."""
    got = imported(tmp_path, [{"role": "user", "content": ASKED, "timestamp": written}])
    with got.library.open(str(got.report.id), read_only=True) as store:
        (record,) = (record for record in store.iter_records() if record.message)
    assert record.at.startswith(f"2026-09-01T{at}") is (at is not None)
    has_zone = at is not None and written.endswith(("Z", "UTC", "GMT", "0200", "UTC 2026", "Time)", "m=+0.01"))
    assert ((record.extra or {})["source"].get("at") == written) is not has_zone


def test_what_was_typed_to_go_on_with_a_task_of_cline_is_the_users(tmp_path: Path) -> None:
    """It stands behind the program's text about the interruption, all of which was folded as the program's."""
    resumed = "[TASK RESUMPTION] This task was interrupted 1 minute ago.\n\nNew instructions for task continuation:\n"
    about = {"type": "text", "text": "<environment_details>\n# Time\n</environment_details>"}
    said = [
        {"role": "user", "content": [{"type": "text", "text": f"{resumed}<user_message>\n{ASKED}\n</user_message>"}, about]},
        {"role": "user", "content": [{"type": "text", "text": resumed}, about]},
    ]  # fmt: skip
    got = imported(tmp_path, json.dumps(said).encode(), "tasks/1788256800000/api_conversation_history.json")
    assert got.name() == ASKED
    with got.library.open(str(got.report.id), read_only=True) as store:
        typed = [typed_of(record.extra, "all of it") for record in store.iter_records() if record.message]
    assert typed == [ASKED, ""]
