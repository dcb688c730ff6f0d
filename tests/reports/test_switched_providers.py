"""A session whose model is switched to another provider's goes on: its messages have the form of the last one.

The report (loocor/codmate#33, "lets users switch models mid-session"): a session of pi was imported, the user chose a model of
another provider, and from then on each import said "diverged", though nobody had changed anything here.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import files_of
from transcript_store import ConversationLibrary, verify
from transcript_store.exporting import export
from transcript_store.importing import ImportReport, import_conversations

APIS = {"openai": "openai-responses", "anthropic": "anthropic-messages", "google": "google-generative-ai"}
FORMS = {"openai": "openai", "anthropic": "claude", "google": "gemini", "openrouter": "openai-compatible"}
SESSION = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-09-01T10:00:00.000Z", "cwd": "/tmp/p"}


class Session:
    """A file that pi writes, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = 0
        path.write_text(json.dumps(SESSION) + "\n")

    def add(self, kind: str, **members: Any) -> None:
        self._count += 1
        parent = None if self._count == 1 else f"e{self._count - 1}"
        at = f"2026-09-01T10:{self._count:02}:00.000Z"
        line = {"type": kind, "id": f"e{self._count}", "parentId": parent, "timestamp": at, **members}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def choose(self, provider: str) -> None:
        self.add("model_change", provider=provider, modelId=f"model of {provider}")

    def ask(self, text: str) -> None:
        self.add("message", message={"role": "user", "content": [{"type": "text", "text": text}]})

    def reply(self, provider: str, text: str, **members: Any) -> None:
        content = [
            {"type": "thinking", "thinking": f"how to say {text}", "thinkingSignature": "c2ln"},
            {"type": "text", "text": text},
        ]
        reply = {
            "role": "assistant",
            "content": content,
            "api": APIS.get(provider, "openai-completions"),
            "provider": provider,
            "model": f"model of {provider}",
            "stopReason": "stop",
        }
        self.add("message", message=reply | members)

    def turn(self, provider: str, number: int) -> None:
        self.ask(f"question {number}")
        self.reply(provider, f"answer {number}")

    def compact(self) -> None:
        self.add("compaction", summary="what was said", firstKeptEntryId=f"e{self._count}", tokensBefore=1)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "s.jsonl")


def imported(library: ConversationLibrary, *sources: Path) -> ImportReport:
    *_, report = import_conversations(sources, library)
    return report


def look(library: ConversationLibrary, id: str) -> tuple[str | None, list[Any]]:
    with library.open(id, read_only=True) as store:
        return store.get_metadata().provider, [(r.message, r.at) for r in store.iter_records() if r.message]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "providers",
    [
        ("openai", "anthropic"),
        ("anthropic", "google", "openai"),
        ("google", "openai", "openrouter", "anthropic", "anthropic"),
        ("openrouter", "openai", "google", "google"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("compacts", [False, True], ids=["", "compacts"])
def test_it_ends_as_a_whole_import_does(
    providers: tuple[str, ...], compacts: bool, session: Session, library: ConversationLibrary, tmp_path: Path
) -> None:
    """After each step the bytes come out, and a second import writes nothing; after each reply: the messages, times and
    provider of the whole session.
    """
    for number, provider in enumerate(providers):
        for step in ("choose", "ask", "reply"):
            match step:
                case "choose":
                    session.choose(provider)
                    if number == 0:
                        continue  # nothing was said yet
                case "ask":
                    session.ask(f"question {number}")
                case "reply":
                    session.reply(provider, f"answer {number}")
                    if compacts:
                        session.compact()
            report = imported(library, session.path)
            assert report.action in ("created", "grew", "replaced"), report.reason
            assert report.id is not None
            stream = io.BytesIO()
            export(library, report.id, to="original", output=stream)
            assert stream.getvalue() == session.path.read_bytes()
            before = files_of(Path(library.directory))
            assert imported(library, session.path).action == "unchanged"
            assert files_of(Path(library.directory)) == before
        whole = ConversationLibrary(tmp_path / f"whole-{number}")
        expected = imported(whole, session.path)
        assert look(library, str(report.id)) == look(whole, str(report.id))
        assert (report.losses, report.messages) == (expected.losses, expected.messages)
    assert look(library, str(report.id))[0] == FORMS[providers[-1]]
    assert verify(f"{library.directory}/{report.id}").is_intact
    if len({FORMS[name] for name in providers}) > 2:
        assert [loss.kind for loss in report.losses] == ["thinking"]


def test_what_you_continued_with_here_is_never_overwritten(session: Session, library: ConversationLibrary) -> None:
    """F5 holds for a switch too: it is told, and the fork has it."""
    session.turn("openai", 1)
    its_id = str(imported(library, session.path).id)
    with library.open(its_id) as store:
        store.append_message({"role": "user", "content": "here"})
    session.turn("anthropic", 2)
    assert imported(library, session.path).action == "diverged"
    assert look(library, its_id)[0] == "openai"
    (fork,) = import_conversations([session.path], library, diverged="fork")
    assert (fork.action, look(library, str(fork.id))[0]) == ("created", "claude")


def test_a_copy_from_before_the_switch(session: Session, library: ConversationLibrary, tmp_path: Path) -> None:
    """A backup of the file, imported before or after the session: nothing is diverged, and nothing is taken back."""
    session.turn("openai", 1)
    session.turn("openai", 2)
    copy = tmp_path / "backup.jsonl"
    copy.write_bytes(session.path.read_bytes())
    session.turn("anthropic", 3)
    assert imported(library, session.path).action == "created"
    assert imported(library, copy).action == "unchanged"
    other = ConversationLibrary(tmp_path / "other")
    assert imported(other, copy).action == "created"
    report = imported(other, session.path)
    assert (report.action, report.messages) == ("replaced", 6)
    assert [imported(other, path).action for path in (copy, session.path)] == ["unchanged", "unchanged"]
    assert look(other, str(report.id)) == look(library, str(report.id))


def test_another_session_of_the_same_id_is_still_told(
    session: Session, library: ConversationLibrary, tmp_path: Path
) -> None:
    session.turn("openai", 1)
    other = Session(tmp_path / "other.jsonl")
    other.turn("anthropic", 7)
    assert imported(library, session.path).action == "created"
    report = imported(library, other.path)
    assert (report.action, "is another session" in str(report.reason)) == ("diverged", True)
