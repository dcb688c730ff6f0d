"""Sessions that start with the same prompt are distinguished by later messages.

An earlier version knew a session of plain JSON lines by its first line, and so is one known in which nothing was said yet. What
is on record by such an id is gone on with there, and is no other source's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import everything, imported, line
from transcript_store import ConversationLibrary
from transcript_store.formats import SessionPlan, Source
from transcript_store.formats._jsonl import JsonLines  # the reader whose ids changed: the earlier one is made of it
from transcript_store.importing import import_conversations
from transcript_store.redaction import SecretRedactor

PROMPT = line(role="system", content="You are kind.")


def said(text: str) -> str:
    return line(role="user", content=text)


def session(folder: Path, name: str, *lines: str) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(lines))
    return path


@pytest.fixture
def by_first_lines(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Import as the earlier version did."""
    plans = JsonLines.plans

    def earlier(reader: JsonLines, source: Source) -> Iterable[SessionPlan]:
        for plan in plans(reader, source):
            yield replace(plan, session=str(plan.former_session), former_session=None)

    def run(*arguments: Any, **options: Any) -> list[Any]:
        with monkeypatch.context() as patch:
            patch.setattr(JsonLines, "plans", earlier)
            return list(import_conversations(*arguments, **options))

    return run


@pytest.mark.parametrize("prompt", [PROMPT, line(role="developer", content="Be kind."), PROMPT + line(event="begun")])
def test_sessions_with_one_prompt_are_conversations_of_their_own(
    prompt: str, tmp_path: Path, library: ConversationLibrary
) -> None:
    sessions = [session(tmp_path, name, prompt, said(name)) for name in ("a", "b")]
    reports = list(import_conversations(sessions, library))
    assert [report.action for report in reports] == ["created", "created"]
    for path in sessions:
        path.write_text(path.read_text() + line(role="assistant", content="Yes?"))
    again = list(import_conversations(sessions, library))
    assert [(report.action, report.id) for report in again] == [("grew", report.id) for report in reports]


def test_a_line_that_gets_its_end_later_stays_the_same(tmp_path: Path, library: ConversationLibrary) -> None:
    path = session(tmp_path, "a", said("Hello").rstrip())
    first = imported(path, library)
    path.write_text(said("Hello") + said("Are you there?"))
    assert (imported(path, library).id, len(everything(library))) == (first.id, 1)


def test_a_session_in_which_nothing_was_said_yet_continues_where_it_is(
    tmp_path: Path, library: ConversationLibrary
) -> None:
    """Its beginning is everybody's, so the other one that goes on from it, and stands elsewhere, is another conversation."""
    silent, other = session(tmp_path, "a", PROMPT), session(tmp_path, "b", PROMPT, said("b"))
    first = imported(silent, library)
    assert imported(other, library).action == "created"
    silent.write_text(PROMPT + said("a"))
    assert [(report.action, report.id) for report in import_conversations([silent, other], library)] == [
        ("grew", first.id),
        ("unchanged", imported(other, library).id),
    ]
    assert imported(session(tmp_path, "copy of a", PROMPT, said("a")), library).id == first.id
    assert len(everything(library)) == 2


def test_what_an_earlier_version_imported_is_continued(
    tmp_path: Path, library: ConversationLibrary, by_first_lines: Callable[..., list[Any]]
) -> None:
    """One session under the shared id, the next one as its copy; a third comes with this version."""
    one, two = (session(tmp_path, name, PROMPT, said(name)) for name in "ab")
    before = by_first_lines([one, two], library, diverged="fork")
    again = list(import_conversations([one, two], library))
    assert [(each.action, each.id) for each in again] == [("unchanged", each.id) for each in before]
    moved = one.rename(tmp_path / "moved.jsonl")
    for path in (moved, two):
        path.write_text(path.read_text() + said("more"))
    third = session(tmp_path, "c", PROMPT, said("c"))
    again = list(import_conversations([third, moved, two], library))
    assert [each.action for each in again] == ["created", "grew", "grew"]
    assert [each.id for each in again[1:]] == [each.id for each in before]
    assert again[0].id not in {each.id for each in before}
    moved.unlink()  # and its conversation stays as it is, whatever comes of the others that share its id
    two.write_text(PROMPT + said("rewritten"))
    assert [(each.action, each.id) for each in import_conversations([two], library)] == [("replaced", before[1].id)]
    assert len(everything(library)) == 3


def test_f5_where_somebody_continued_with_it_the_copy_that_was_made_then_is_kept_up(
    tmp_path: Path, library: ConversationLibrary, by_first_lines: Callable[..., list[Any]]
) -> None:
    path = session(tmp_path, "a", PROMPT, said("a"))
    (first,) = by_first_lines([path], library)
    with library.open(first.id) as conversation:
        conversation.append_message({"role": "user", "content": "mine"})
    path.write_text(path.read_text() + said("theirs"))
    (copy,) = by_first_lines([path], library, diverged="fork")
    path.write_text(path.read_text() + said("more of theirs"))
    assert (imported(path, library).action, imported(path, library).id) == ("grew", copy.id)
    assert len(everything(library)) == 2


def test_what_was_redacted_under_the_shared_id_refuses_nobody_elses_session(
    tmp_path: Path, library: ConversationLibrary, by_first_lines: Callable[..., list[Any]]
) -> None:
    """Each new session with that prompt was refused, and its user was told to delete the other one's conversation."""
    one, two = (session(tmp_path, name, PROMPT, said(name)) for name in "ab")
    (before,) = by_first_lines([one], library, redact=SecretRedactor())
    assert imported(two, library).action == "created"
    one.write_text(one.read_text() + said("more"))
    report = imported(one, library)
    assert (report.action, str(before.id) in str(report.reason)) == ("refused", True)
    one.rename(tmp_path / "moved.jsonl")  # whose it is cannot be told any more: nothing is brought in with its secrets
    assert imported(session(tmp_path, "c", PROMPT, said("c")), library).action == "refused"
    assert len(everything(library)) == 2


@pytest.mark.parametrize("goes_on", ["\n", "\n" + line(role="user", content="a")])
def test_a_prompt_that_is_still_being_written(goes_on: str, library: ConversationLibrary, tmp_path: Path) -> None:
    """F2: its line end comes with the next message, or before; the session is the same."""
    source = session(tmp_path, "s", PROMPT.removesuffix("\n"))
    first = imported(source, library)
    source.write_text(source.read_text() + goes_on)
    assert imported(source, library).id == first.id
    assert len(everything(library)) == 1
