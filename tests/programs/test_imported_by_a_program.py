"""OpenCode, Kilo and Copilot CLI as they are shipped: what each wrote comes in, and each takes what we wrote by its own command.

What counts is that the program lists the session, and that the request which it then sends carries all that was said.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.programs.exchanges import QUESTION, exchanges, imported, sessions
from tests.programs.lab import ANSWER, PROGRAMS, WITH_DATABASE, WITH_IMPORT, Lab
from transcript_store import ConversationLibrary, verify
from transcript_store.exporting import export

pytestmark = pytest.mark.long


@pytest.mark.parametrize("program", WITH_DATABASE)
def test_a_session_in_a_database_comes_in_whole_and_grows(lab: Lab, program: str, tmp_path: Path) -> None:
    """F1, F2, F6: the program's own session, then one turn more in it; the database is read where it is."""
    lab.ask(program, QUESTION)
    [path] = sessions(lab, program)
    before = Path(path).stat()
    library = ConversationLibrary(tmp_path / "chats")
    [report] = imported(lab, program, library)
    assert (report.action, report.format, report.findings) == ("created", program, ()), report
    assert Path(path).stat().st_mtime_ns == before.st_mtime_ns
    assert report.id is not None
    assert verify(tmp_path / "chats" / report.id).is_intact
    with library.open(report.id, read_only=True) as store:
        assert [kind for kind, _ in exchanges(store.get_messages())] == ["text", "call", "result", "text"]
        assert store.get_metadata().labels["cwd"] == str(lab.work)
    [again] = imported(lab, program, library)
    assert again.action == "unchanged"

    lab.ask(program, "And once more, please.", session=report.session)
    [grown] = imported(lab, program, library)
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
        assert len(store.generations()) == 1


@pytest.mark.parametrize("target", WITH_IMPORT)
@pytest.mark.parametrize("source", PROGRAMS)
def test_a_program_takes_a_session_of_another_by_its_own_command(
    lab: Lab, source: str, target: str, tmp_path: Path
) -> None:
    """F7, F8: listed, resumed, and the request has what the other said, the call with its result; and it comes in from there again."""
    lab.ask(source, QUESTION)
    library = ConversationLibrary(tmp_path / "chats")
    [report] = imported(lab, source, library)
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        wanted = exchanges(store.get_messages())

    done = export(library, report.id, to=target, cwd=lab.work, environ={"HOME": str(lab.home)})
    assert done.command is not None
    assert done.paths[-1] in done.command
    if target == "copilot":
        session = json.loads(lab.run(target, "sessions", "import", "--output", "json", done.paths[-1]))["sessionId"]
    else:
        session = done.command.rpartition(" ")[2]
        lab.run(target, "import", done.paths[-1])
        assert session in lab.run(target, "session", "list")
        asked_again = {one.session: one for one in imported(lab, target, ConversationLibrary(tmp_path / "nothing"))}
        assert (asked_again[session].action, asked_again[session].id) == ("unchanged", None), "it is this library's own"
    sent = lab.ask(target, "And what was it?", session=session)
    assert exchanges(sent) == [*wanted, ("text", "And what was it?")], json.dumps(sent)[-6000:]

    back = {one.session: one.id for one in imported(lab, target, ConversationLibrary(tmp_path / "back"))}
    with ConversationLibrary(tmp_path / "back").open(str(back[session]), read_only=True) as store:
        assert exchanges(store.get_messages()) == [*wanted, ("text", "And what was it?"), ("text", ANSWER)]
