"""`show` of an imported conversation: it prints the messages, counts the rest, and can show that too."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, damage, lines, obeyed
from transcript_store import ConversationLibrary, ConversationStore

pytestmark = pytest.mark.usefixtures("a_cache_of_its_own")

SHARED = os.environ.get("TRANSCRIPT_STORE_SHARED")
HI, HELLO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
SETTING = {"type": "setting", "id": 1}


@pytest.fixture
def imported(cli: Cli, tmp_path: Path) -> str:
    """A session with messages between which stands what no model is sent."""
    source = tmp_path / "s.jsonl"
    unsent = {"kind": "reply", "message": HELLO, "error": "429"}
    source.write_bytes(lines(HI, *[SETTING] * 3, unsent, HELLO, {"type": "\x1b[2J" + "x" * 99}) + b"{torn\n")
    assert cli("import", str(source), "--into", str(tmp_path / "chats")).code == 0
    return ConversationLibrary(tmp_path / "chats").list()[0].directory


def body(shown: str) -> str:
    """What is printed behind the description, without the times."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME", shown[shown.index("\n\n") + 1 :])


def test_events_that_stand_together_are_one_line(cli: Cli, imported: str) -> None:
    """Their numbers, their count, what they are in the source's own words; no packed line between the messages."""
    shown = cli("show", imported).out
    assert obeyed(shown) == set()
    assert (
        body(shown)
        == f"""
#1  user  TIME  30 B
    hi

#2–5  4 events  TIME  3 setting, 1 reply (assistant)

#6  assistant  TIME  38 B
    hello

#7–8  2 events  TIME  1 \\x1b[2J{"x" * 36}…, 1 text that is not a JSON object

#9  event  TIME  imported from jsonl, s.jsonl, 8 lines, 1 finding
"""
    )


def test_messages_alone(cli: Cli, imported: str) -> None:
    """--messages leaves the events out, counts --last in messages, and means the same with --json and --salvage."""
    assert "event  " not in body(cli("show", imported, "--messages").out)
    assert body(cli("show", imported, "--messages", "--last", "1").out).startswith("\n#6  assistant")
    for words in (("--json",), ("--json", "--salvage")):
        shown = cli("show", imported, "--messages", *words).out.splitlines()
        assert [json.loads(line)["message"] for line in shown] == [HI, HELLO]


def test_nothing_is_out_of_reach(cli: Cli, imported: str) -> None:
    """--full prints the lines of the source as before, and --json each record as it is stored."""
    full = cli("show", imported, "--full").out
    assert full.count('"source": {"lines": [{"n": ') == 8
    assert full.count("\n#") == 9
    with ConversationStore(imported, read_only=True) as store:
        store.load()
        stored = [(record.seq, record.message, record.extra) for record in store.get_records()]
    shown = [json.loads(line) for line in cli("show", imported, "--json").out.splitlines()]
    assert [(one["seq"], one["message"], one["extra"]) for one in shown] == stored


def test_an_event_of_somebody_else_is_shown_whole(cli: Cli, imported: str) -> None:
    """Only what an import kept is shortened: whatever has another form, or a member more, is its owner's."""
    with ConversationStore(imported) as store:
        store.load()
        store.append_event({"source": {"lines": [{"n": 1, "line": SETTING}]}, "note": "mine"})
        store.append_event({"source": "a book"})
        store.append_event({"import": {"format": 7}})
    shown = body(cli("show", imported, "--last", "3").out)
    assert '{"note": "mine"}' in shown
    assert '{"source": "a book"}' in shown
    assert '{"import": {"format": 7}}' in shown


def test_a_damaged_import_keeps_its_places(cli: Cli, imported: str) -> None:
    """--salvage --messages leaves out events, and never a place that cannot be read."""
    damage(Path(imported), b'"id":1', b'"id":2')
    code, shown, _ = cli("show", imported, "--salvage", "--messages")
    assert (code, "damaged" in shown or "cannot be read" in shown) == (1, True)


@pytest.mark.skipif(SHARED is None, reason="TRANSCRIPT_STORE_SHARED is not set")
def test_a_real_session_reads_as_a_conversation(cli: Cli, tmp_path: Path) -> None:
    """Of a real session of pi less than a twentieth of the headings are events; all of its messages are shown."""
    source = Path(SHARED or "", "corpora/pi/large-session.jsonl")
    assert cli("import", str(source), "--into", str(tmp_path / "chats")).code == 0
    shown = body(cli("show", str(tmp_path / "chats/last")).out)
    headings = re.findall(r"(?m)^#.*", shown)
    events = [heading for heading in headings if " event" in heading]
    assert (len(headings) - len(events), '"source"' in shown) == (899, False)
    assert len(events) * 20 < len(headings)
