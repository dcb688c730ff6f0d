"""F1 to F8 with the programs as shipped: their sessions are imported completely, and each program resumes what we exported.

The incident behind it: a program that reads what is not quite its own leaves out what it does not know, and says nothing.
So what counts is the request that the program then sends: it has to carry what was said.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.formats.sources import corpora
from tests.programs.exchanges import QUESTION, exchanges, imported, sessions
from tests.programs.lab import ANSWER, PROGRAMS, WITH_DATABASE, WITH_IMPORT, Lab, command
from tests.session_properties import problems_of
from transcript_store import ConversationLibrary, verify
from transcript_store.exporting import export
from transcript_store.formats import WRITERS
from transcript_store.formats._arranging import messages_of, to_neutral
from transcript_store.formats._blocks import Call, Result, Text
from transcript_store.importing import ImportReport, import_conversations

pytestmark = pytest.mark.long

TARGETS = [writer.name for writer in WRITERS if writer.name not in WITH_IMPORT]
SOURCES = [program for program in PROGRAMS if program not in WITH_DATABASE]
"""Programs of which a session is a file; test_imported_by_a_program.py has all."""


@pytest.mark.parametrize("program", SOURCES)
def test_a_real_session_comes_in_whole_and_grows(lab: Lab, program: str, tmp_path: Path) -> None:
    """F1, F2, F3, F6: the program's own session, then one turn more in it."""
    lab.ask(program, QUESTION)
    [path] = sessions(lab, program)
    bytes_before, stat_before = Path(path).read_bytes(), Path(path).stat()
    library = ConversationLibrary(tmp_path / "chats")

    [report] = imported(lab, program, library)
    assert report.action == "created", report
    assert report.lines.in_messages + report.lines.in_events + report.lines.left_out == report.lines.total
    assert report.findings == ()
    assert (Path(path).read_bytes(), Path(path).stat().st_mtime_ns) == (bytes_before, stat_before.st_mtime_ns)
    assert report.id is not None
    assert verify(tmp_path / "chats" / report.id).is_intact
    with library.open(report.id, read_only=True) as store:
        messages = store.get_messages()
    kinds = [kind for kind, _ in exchanges(messages)]
    assert kinds == ["text", "call", "result", "text"], exchanges(messages)

    export(library, report.id, to="original", output=tmp_path / "original")
    assert hashlib.sha256((tmp_path / "original").read_bytes()).digest() == hashlib.sha256(bytes_before).digest()
    [again] = imported(lab, program, library)
    assert again.action == "unchanged"

    lab.ask(program, "And once more, please.", session=_name_of(program, report, path))
    # Gemini CLI may begin another file with the context alone when it resumes: it has the minute in its name.
    [grown] = [each for each in imported(lab, program, library) if each.action != "empty"]
    assert (grown.action, grown.id) == ("grew", report.id), grown
    with library.open(report.id, read_only=True) as store:
        assert [kind for kind, _ in exchanges(store.get_messages())] == [
            "text",
            "call",
            "result",
            "text",
            "text",
            "text",
        ]
        if program == "gemini-cli":  # it writes all of its messages anew, and the results twice, when it resumes
            assert len(store.generations()) == 2
            assert store.get_messages()[1:3] == messages[1:3]
        else:
            assert store.get_messages()[: len(messages)] == messages
            assert len(store.generations()) == 1


@pytest.mark.parametrize("program", SOURCES)
def test_what_a_program_writes_has_the_properties_of_every_session(lab: Lab, program: str) -> None:
    """A session with a call, and the same gone on with: all that is said is shown, found and on the page, times ascend, twice is once."""
    lab.ask(program, QUESTION)
    [path] = sessions(lab, program)
    assert [*problems_of(Path(path))] == []
    [report] = imported(lab, program, ConversationLibrary(lab.home / "chats"))
    lab.ask(program, "And once more, please.", session=_name_of(program, report, path))
    assert {each: [*problems_of(Path(each))] for each in sessions(lab, program)} == {
        each: [] for each in sessions(lab, program)
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_program_continues_with_a_session_of_another(lab: Lab, source: str, target: str, tmp_path: Path) -> None:
    """F7, F8: what the one said is in the request of the other, the call with its result; and it comes in from there again."""
    lab.ask(source, QUESTION)
    library = ConversationLibrary(tmp_path / "chats")
    [report] = imported(lab, source, library)
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        wanted = exchanges(store.get_messages())

    there = set(sessions(lab, target))
    done = export(library, report.id, to=target, cwd=lab.work, environ={"HOME": str(lab.home)})
    assert done.session is not None
    assert done.command
    [new] = set(sessions(lab, target)) - there
    sent = lab.ask(target, "And what was it?", session=_resumed(target, done.session, new))

    assert exchanges(sent) == [*wanted, ("text", "And what was it?")], json.dumps(sent)[-6000:]
    [back] = import_conversations([new], ConversationLibrary(tmp_path / "back"))
    assert back.id is not None
    with ConversationLibrary(tmp_path / "back").open(back.id, read_only=True) as store:
        assert exchanges(store.get_messages()) == [*wanted, ("text", "And what was it?"), ("text", ANSWER)]


FORMS = {"claude-code": "claude", "codex": "openai-responses", "gemini-cli": "gemini", "pi": "claude"}
HISTORIES = [path for folder in ("claude-code", "pi") for path in corpora(folder)]


def blocks(messages: Sequence[dict[str, Any]], provider: str) -> list[tuple[str, str]]:
    """Texts, calls with their arguments and results, in order, whichever provider's form they are in."""
    found = []
    for turn in to_neutral(messages, provider):
        for block in turn.blocks:
            if isinstance(block, Text) and block.text.strip():
                found.append(("text", block.text.strip()))
            elif isinstance(block, Call):
                found.append(("call", json.dumps(block.arguments, sort_keys=True)))
            elif isinstance(block, Result):
                found.append(("result", block.text.strip()))
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_program_continues_with_a_history_that_nobody_here_wrote(
    lab: Lab, path: Path, target: str, tmp_path: Path
) -> None:
    """F7: real sessions, one of them of 900 messages: all that was said is sent, in order, each call with its result."""
    library = ConversationLibrary(tmp_path / "chats")
    [report] = import_conversations([path], library)
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        messages, provider = store.get_messages(), store.get_metadata().provider
    done = export(library, report.id, to=target, cwd=lab.work, environ={"HOME": str(lab.home)})
    assert done.session is not None

    sent = blocks(
        lab.ask(target, "And what was it?", session=_resumed(target, done.session, done.paths[-1])), FORMS[target]
    )

    form = FORMS[target]
    wanted = blocks(messages_of(to_neutral(messages, provider or "openai"), form).messages, form)
    if target == "codex":  # it cuts long results itself
        wanted = [one for one in wanted if one[0] != "result"]
    if target == "gemini-cli":  # it does not send what looks like a command to itself
        commands = [text for kind, text in wanted if kind == "text" and text.startswith(("/", "?"))]
        assert {loss.kind: loss.count for loss in done.losses}.get("commands", 0) == len(commands)
        wanted = [one for one in wanted if one[1] not in commands]
    assert [one for one in sent if one in set(wanted)] == wanted
    kinds = [kind for kind, _ in sent]
    assert kinds.count("call") == kinds.count("result") >= [kind for kind, _ in wanted].count("call")


def _name_of(program: str, report: ImportReport, path: str) -> str:
    assert report.session is not None
    return _resumed(program, report.session, path)


def _resumed(program: str, session: str, path: str) -> str:
    """How a session is named on the program's command line."""
    return path if program == "pi" else session


def test_codex_lists_what_was_written_for_it(lab: Lab, tmp_path: Path) -> None:
    """Its newest versions list from a database of their own, by provider. Ours is in that list, though it names no provider and has no row.

    Public report: pchalasani/claude-code-tools#143.
    """
    lab.ask("codex", QUESTION)  # its database is there
    library = ConversationLibrary(tmp_path / "chats")
    said = [{"role": "user", "content": "Who wrote Hamlet?"}, {"role": "assistant", "content": "Shakespeare."}]
    with library.create(provider="openai", messages=said) as conversation:
        done = export(conversation, to="codex", cwd=lab.work, environ={"HOME": str(lab.home)})
    server = subprocess.Popen(
        [str(command("codex")), "app-server"],
        cwd=lab.work,
        env=lab.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdin is not None
        assert server.stdout is not None
        client = {"clientInfo": {"name": "lab", "title": "lab", "version": "1"}}
        for number, (method, params) in enumerate([("initialize", client), ("thread/list", {})]):
            server.stdin.write(json.dumps({"id": number, "method": method, "params": params}) + "\n")
            server.stdin.flush()
            answer = next(value for value in map(json.loads, server.stdout) if value.get("id") == number)
        assert [(one["id"], one["preview"]) for one in answer["result"]["data"]] == [
            (done.session, "Who wrote Hamlet?")
        ]
    finally:
        server.kill()
        server.communicate()
