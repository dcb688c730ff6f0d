"""Secrets on top of a page: what a redaction took out leaves through no door unless its generation is named.

Reports of the kind: NousResearch/hermes-agent#90369 (a title escapes ``export --redact``), NousResearch/hermes-agent#82895 and
nesquena/hermes-webui#243 (exports and answers with what was redacted elsewhere).

A canary stands in a session with three compactions, in each place in which a session can have one. The session is imported, and
imported again without the canary. Then every command, every export, every call that reads, every tool and every page is tried. The
tables below name all of them; a new door fails until somebody says how it is opened.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from tests.kit.trees import bytes_below
from tests.view.server import serving
from transcript_store import ConversationLibrary, ConversationStore, salvage, snapshot_of
from transcript_store.cli import _COMMANDS, main
from transcript_store.cli.show import news
from transcript_store.exporting import ExportError, export, targets
from transcript_store.import_notes import first_shown
from transcript_store.importing import import_conversations
from transcript_store.mcp import LibraryTools
from transcript_store.redaction import SecretRedactor
from transcript_store.search import SearchIndex
from transcript_store.view import render_page

CANARY = "CANARY-4711"
REDACT = SecretRedactor(patterns=[CANARY])
LIVE = 7
"""Generations 0 to 3 were imported with the canary, 4 to 7 without it."""

SESSION = "00000003-0000-4000-8000-000000000003"


def _line(number: int, kind: str, message: Any = None, *, behind: bool = True, **more: Any) -> str:
    members = {
        "parentUuid": _uuid(number - 1) if behind else None,
        "isSidechain": False,
        "cwd": "/tmp/p",
        "sessionId": SESSION,
        "version": "2.1.278",
        "type": kind,
        "uuid": _uuid(number),
        "timestamp": f"2026-09-01T10:00:{number:02}.000Z",
        **({} if message is None else {"message": message}),
    }
    return json.dumps({**members, **more}) + "\n"


def _uuid(number: int) -> str:
    return f"00000bb9-0000-4000-8000-{number:012}"


def session(compactions: int = 3) -> str:
    """Rounds of a prompt with the canary, a call and its result, and between two rounds a compaction whose summary has it too."""
    lines = []
    number = 1
    for round_ in range(compactions + 1):
        if round_:
            boundary = {
                "subtype": "compact_boundary",
                "content": "Conversation compacted",
                "logicalParentUuid": _uuid(number - 1),
            }
            lines.append(_line(number, "system", behind=False, **boundary))
            said = {"role": "user", "content": f"This session is being continued. The key was {CANARY}."}
            lines.append(_line(number + 1, "user", said, isCompactSummary=True))
            number += 2
        lines.append(
            _line(
                number, "user", {"role": "user", "content": f"Round {round_}: the key is {CANARY}"}, behind=number > 1
            )
        )
        call = {"type": "tool_use", "id": f"toolu_{round_}", "name": "Bash", "input": {"command": f"echo {CANARY}"}}
        reply = {"id": f"msg_{round_}", "type": "message", "role": "assistant", "model": "claude-x", "content": [call]}
        lines.append(_line(number + 1, "assistant", reply))
        result = {"type": "tool_result", "tool_use_id": f"toolu_{round_}", "content": CANARY}
        lines.append(_line(number + 2, "user", {"role": "user", "content": [result]}))
        number += 3
    lines.append(json.dumps({"type": "summary", "summary": f"About {CANARY}", "leafUuid": _uuid(number - 1)}) + "\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def redacted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A library whose one conversation was redacted after it had been imported as it was; and the conversation's id."""
    folder = tmp_path_factory.mktemp("redacted")
    source = folder / f"{SESSION}.jsonl"
    source.write_text(session())
    library = ConversationLibrary(folder / "library")
    (first,) = import_conversations([source], library)
    (second,) = import_conversations([source], library, redact=REDACT)
    assert (first.action, second.action, second.id) == ("created", "replaced", first.id)
    assert second.id is not None
    with library.open(second.id, read_only=True) as store:
        assert store.get_metadata().generation == LIVE
        for generation in range(LIVE + 1):
            held = CANARY in repr(store.get_records(generation=generation))
            assert held == (generation < 4)
    return Path(library.directory), second.id


@pytest.fixture
def there(redacted: tuple[Path, str], tmp_path: Path) -> tuple[Path, str]:
    """A copy of it, to be used up."""
    library, conversation = redacted
    return Path(shutil.copytree(library, tmp_path / "library")), conversation


# What each command is given: {l} the library, {c} the conversation's folder, {i} its id, {o} a folder for what is written.
ASKED: dict[str, list[str]] = {
    "chat": ["chat {c} --provider claude --model claude-x"],
    "record": ["record {c}"],
    "show": ["show {c}", "show {c} --full", "show {c} --json", "show {c} --last 3", "show {c} --messages", "show {c} --salvage"],
    "list": ["list {l}", "list {l} --json"],
    "search": [f"search {CANARY} {{l}}", f"search 'in:all {CANARY}' {{l}}", f"search the {{l}} --regex {CANARY}", "search key {l} --json"],
    "index": ["index {l}", "index {l} --json"],
    "import": ["import {o} --into {l}"],
    "mcp": ["mcp {l}"],
    "view": ["view {c} --output {o}/page.html", "view {c} --output {o}/plain.html --plain", "view {c} --generation 5 --output {o}/5.html"],
    "serve": [],  # below, as a process
    "export": [],  # below, each form
    "usage": ["usage {l}", "usage {l} --by session --json"],
    "keep": [],  # it imports, as import does
    "session": [],  # of other programs' files
    "backup": [],  # as ship: a copy, archive and all
    "restore": [],
    "ship": [],  # a copy, byte for byte, archive and all, as a copy of the folder is: docs/secrets.md says so
    "bisect": ["bisect {c} -- sh -c 'cat $0/transcript.jsonl >>{o}/seen; exit 1'"],
    "fork": ["fork {c} --into {o}/forks", "fork {c} --into {o}/forks --json"],
    "rename": ["rename {c} Another"],
    "delete": ["delete {c} --yes"],
    "prune": ["prune {l} --keep-generations 0 --dry-run", "prune {l} --older-than 0d --dry-run --json"],
    "generations": ["generations {c}", "generations {c} --json"],
    "secrets": [
        "secrets {l} --no-programs --redact-pattern CANARY-[0-9]*",
        "secrets {l} --no-programs --redact-pattern CANARY-[0-9]* --json",
        "secrets {l} --forget --yes --redact-pattern CANARY-[0-9]*",
    ],
    "verify": ["verify {c}", "verify {c} --json"],
    "repair": ["repair {c}", "repair {c} --json"],
    "head": ["head {c}", "head {c} --json"],
    "snapshot": ["snapshot save {c} --store {o}/snapshots && snapshot list --store {o}/snapshots"],
    "seal": ["new-key {o}/key && seal {c} --key-file {o}/key && show {c} --key-file {o}/key"],
    "unseal": ["new-key {o}/key && seal --keep-plain {c} --key-file {o}/key && unseal {c} --key-file {o}/key && view {c} --output {o}/page.html"],
    "shred": ["new-key {o}/key && seal {c} --key-file {o}/key && shred {c} --yes"],
    "rotate-key": ["new-key {o}/key && new-key {o}/other && seal {c} --key-file {o}/key && rotate-key {l} --key-file {o}/key --new-key-file {o}/other"],
    "new-key": ["new-key {o}/another"],
    "writers": ["writers {l}", "writers {l} --json"],
    "doctor": [],  # of a directory, and no conversation
    "programs": [],  # the same wherever it is asked
    "demo": [],  # conversations of its own
}  # fmt: skip


def test_every_command_is_asked() -> None:
    assert set(ASKED) == set(_COMMANDS)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("command", [line for lines in ASKED.values() for line in lines])
def test_no_command_says_it(
    command: str,
    there: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nor stands it in a file that the command wrote."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    library, conversation = there
    written = tmp_path / "written"
    written.mkdir()
    names = {"l": library, "c": library / conversation, "i": conversation, "o": written}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    for each in command.split(" && "):
        assert main([word.format(**names) for word in shlex.split(each)]) in (0, 1), each
    said = "".join(capfd.readouterr())
    if command.startswith("search"):
        said = said.replace(CANARY, "", 1) if "--json" not in command else said  # it may repeat the query
    assert CANARY not in said
    assert CANARY.encode() not in bytes_below(written)


@pytest.mark.parametrize("to", targets())
def test_no_export_has_it(to: str, redacted: tuple[Path, str], tmp_path: Path) -> None:
    """In every form, those of other programs too; the original is refused."""
    library, conversation = redacted
    output = tmp_path / "written" / ("out" if to in ("original", "jsonl", "markdown", "html") else "")
    with pytest.raises(ExportError, match="was redacted") if to == "original" else contextlib.nullcontext():
        export(ConversationLibrary(library), conversation, to=to, output=output, cwd=tmp_path)
    assert CANARY.encode() not in bytes_below(tmp_path)
    assert any(tmp_path.rglob("*")) or to == "original"


def test_a_page_says_what_it_leaves_out_and_how_it_is_shown(redacted: tuple[Path, str]) -> None:
    """And what is named is shown: that generation, and none of the others."""
    library, conversation = redacted
    page = b"".join(render_page(library / conversation)).decode()
    assert "4 earlier generations (0, 1, 2, 3) may hold secrets that were taken out later" in page
    assert "Compacted or retracted" in page  # generations 4 to 6 are still there
    named = b"".join(render_page(library / conversation, generation=1)).decode()
    assert f"Round 1: the key is {CANARY}" in named
    assert "Round 0" not in named


CALLS: dict[str, Callable[[ConversationStore], Any]] = {
    "get_messages": lambda store: store.get_messages(),
    "get_records": lambda store: store.get_records(),
    "iter_records": lambda store: list(store.iter_records()),
    "generations": lambda store: store.generations(),
    "get_metadata": lambda store: (store.get_metadata(), store.get_metadata(at_start=True)),
    "id": lambda store: store.id,
    "features": lambda store: store.features,
    "position": lambda store: store.position,
    "record_count": lambda store: store.record_count,
    "head": lambda store: store.head,
    "state": lambda store: store.state(),
    "frozen": lambda store: list(_held(store)),
    "recovery": lambda store: store.recovery,
    "is_fully_verified": lambda store: store.is_fully_verified,
    "torn_tail": lambda store: store.torn_tail,
    "refresh": lambda store: store.refresh(),
    "title": lambda store: store.title,
    "usage": lambda store: store.usage(),
    "directory": lambda store: store.directory,
    "exists": lambda store: store.exists(),
    "max_line_bytes": lambda store: store.max_line_bytes,
    "redacts": lambda store: store.redacts,
}
WRITES = {
    "append_message", "append_messages", "append_event", "retract", "replace_transcript", "keep_records", "update_metadata", "set_title", "retract_turn",
    "delete_generation", "purge_quarantine", "initialize", "load", "load_or_initialize", "close", "seal", "unseal", "rotate_key", "restore", "on_close",
}  # fmt: skip
"""What takes values and gives none that were stored."""


def _held(store: ConversationStore) -> Iterator[Any]:
    with store.frozen() as held:
        yield held.metadata
        yield list(held.records)


def test_no_call_that_reads_gives_it(redacted: tuple[Path, str]) -> None:
    """Of a store: every public name is in one of the two tables."""
    names = {name for name, _ in inspect.getmembers(ConversationStore) if not name.startswith("_")}
    assert names - WRITES - set(CALLS) == set()
    library, conversation = redacted
    with ConversationLibrary(library).open(conversation, read_only=True) as store:
        for name in names & set(CALLS):
            assert CANARY not in repr(CALLS[name](store)), name
        assert CANARY not in repr(snapshot_of(store))
        assert first_shown(store) == 4
    assert CANARY not in repr(salvage(library / conversation))


def test_no_list_search_or_tool_of_an_agent_finds_it(redacted: tuple[Path, str], tmp_path: Path) -> None:
    library, conversation = redacted
    assert CANARY not in repr(list(ConversationLibrary(library).iter_list()))
    with SearchIndex(library, cache=tmp_path) as index:
        index.update()
        for query in (CANARY, f"in:all {CANARY}", '"CANARY"', "4711"):
            assert CANARY not in repr(index.search(query).hits), query
        assert CANARY not in repr(index.list())
    with LibraryTools(library, cache=tmp_path / "agent") as past:
        tools = {name for name, _ in inspect.getmembers(past, callable) if not name.startswith("_")} - {"close"}
        answers = {
            "list_conversations": past.list_conversations,
            "search_conversations": lambda: past.search_conversations(CANARY)["hits"],
            "read_conversation": lambda: past.read_conversation(conversation),
            "read_record": lambda: [past.read_record(conversation, seq) for seq in (2, 3, 4)],
        }
        assert tools == set(answers)
        for name, ask in answers.items():
            assert CANARY not in repr(ask()), name


def test_no_page_that_is_served_has_it(redacted: tuple[Path, str], tmp_path: Path) -> None:
    """Nor any page that one leads to: all links are followed."""
    pytest.importorskip("uvicorn", reason="needs the extra `view`")
    with serving(redacted[0], tmp_path / "cache") as server:
        seen: dict[str, bytes] = {}
        waiting = [f"/{server.token}/"]
        while waiting:
            target = waiting.pop()
            if target in seen:
                continue
            seen[target] = server.get(target=target).body
            base = target.partition("?")[0]
            links = re.findall(rb'href="([^"#]+)"', seen[target])
            waiting += [urljoin(base, link.decode().replace("&amp;", "&")) for link in links]
        assert len(seen) > 4  # the list, the live page, and generations that may be shown
        for target, body in seen.items():
            assert CANARY.encode() not in body, target
        assert not any(f"generation={number}" in target for target in seen for number in range(4))
        found = server.get(f"?q={CANARY}").body
        assert found.count(CANARY.encode()) <= 2  # the query, repeated


def _page(store: ConversationStore) -> str:
    return b"".join(render_page(store.directory)).decode()


def _said(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_a_redaction_that_takes_out_more_hides_what_an_earlier_one_left(tmp_path: Path) -> None:
    """Redacted by the known forms, and then by a pattern too: the generation in between still has what the pattern is for."""
    source = tmp_path / f"{SESSION}.jsonl"
    source.write_text(session(0).replace("echo", "echo ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d"))
    library = ConversationLibrary(tmp_path / "library")
    for redact in (None, SecretRedactor(), REDACT):
        (report,) = import_conversations([source], library, redact=redact)
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        assert first_shown(store) == store.get_metadata().generation == 2
        assert CANARY not in _page(store)


@pytest.mark.parametrize("times", [None, ["2026-01-01T00:00:00Z"] * 2])
def test_a_replace_that_takes_secrets_out_hides_what_was_before(tmp_path: Path, times: list[str] | None) -> None:
    """Without any import, as docs/secrets.md says how it is done; and what is compacted afterwards is shown as ever."""
    path = tmp_path / "conversation"
    with ConversationStore(path) as store:
        store.initialize(messages=[*_said("The first."), *_said(f"It is {CANARY}.")])
        store.replace_transcript(store.get_messages())
    with ConversationStore(path, redact=REDACT) as store:
        store.load()
        store.replace_transcript(store.get_messages(), times=times)
        store.append_message(*_said(f"And {CANARY} again."))
        store.replace_transcript(_said("A summary."))
        assert first_shown(store) == 2
        page = _page(store)
        assert CANARY not in page
        assert "The first." in page


def test_a_generation_that_is_gone_may_have_been_the_redaction(tmp_path: Path) -> None:
    """The generation that notes the redaction was deleted, and a replace that knows of none followed: what is older stays hidden."""
    path = tmp_path / "conversation"
    with ConversationStore(path) as store:
        store.initialize(messages=_said(f"It is {CANARY}."))
    with ConversationStore(path, redact=REDACT) as store:
        store.load()
        store.replace_transcript(store.get_messages())
    with ConversationStore(path) as store:
        store.load()
        store.replace_transcript(_said("A summary."))
        assert first_shown(store) == 1
        store.delete_generation(1)
        assert first_shown(store) == 2
        assert CANARY not in _page(store)


def test_a_conversation_that_never_stored_a_secret_hides_nothing(tmp_path: Path) -> None:
    """With ``redact=`` from its first message, through compactions that keep records, drop them, and are told of secrets later."""
    with ConversationStore(tmp_path / "conversation", redact=REDACT) as store:
        store.initialize(messages=[*_said("Nothing yet."), *_said("Go on.")])
        store.keep_records([2])
        store.append_message(*_said(f"It is {CANARY}."))
        store.keep_records([2])
        store.append_message(*_said(f"It was {CANARY}."))
        store.replace_transcript(_said("A summary."))
        store.append_message(*_said(f"It is {CANARY}."))
        assert first_shown(store) == 0
        assert "Nothing yet." in _page(store)


def test_show_follow_hides_records_from_before_a_redaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``show --follow`` tells what was appended before a replace: not if that replace took secrets out."""
    monkeypatch.setattr("transcript_store.cli.show._POLL_SECONDS", 0)
    path = tmp_path / "conversation"
    with ConversationStore(path) as store:
        store.initialize(messages=_said("First."))
    with ConversationStore(path, read_only=True) as reader:
        reader.load()
        told = news(reader)
        with ConversationStore(path) as store:
            store.load()
            store.append_message(*_said(f"It is {CANARY}."))
        with ConversationStore(path, redact=REDACT) as store:
            store.load()
            store.replace_transcript(store.get_messages())
        first, second, third = (next(told) for _ in range(3))
    assert first.records == ()
    assert "secrets were removed" in str(first.event)
    assert second.event is not None
    assert CANARY not in repr(third.records)
    assert len(third.records) == 2
