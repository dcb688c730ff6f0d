"""An import is not alone in its library: other imports, earlier ones, and whatever else the process does.

Each of these was found by reading what an import does when something happens between two of its steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import everything, imported, line, notebook
from transcript_store import ConversationLibrary, CorruptTranscriptError, StorageError
from transcript_store.importing import import_conversations
from transcript_store.sources import open_parts
from transcript_store.testing import SimulatedFileSystem

pytestmark = pytest.mark.usefixtures("notebooks")


def session(folder: Path, name: str, *more: str) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text(notebook(name) + line(say=name) + "".join(more))
    return path


def damage(conversation: Path) -> None:
    transcript = conversation / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(b'"content"', b'"comment"'))


MEANWHILE: dict[str, tuple[Callable[[Path, Path], object], str, str | None]] = {
    "nothing": (lambda source, made: None, "unchanged", None),
    "the source is gone": (lambda source, made: source.unlink(), "refused", "cannot be opened"),
    "the source has another session": (
        lambda source, made: session(source.parent, "other").replace(source),
        "refused",
        "another import created it just now, and the source holds it no more",
    ),
    "what it made is damaged": (lambda source, made: damage(made), "refused", "its hash does not match"),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_another_import_creates_the_conversation_before_the_commit(
    what: str, tmp_path: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at again, once. It was looked at for ever where that said nothing of the session: the import never ended."""
    happens, action, reason = MEANWHILE[what]
    one, two = session(tmp_path, "one"), session(tmp_path, "two")
    library.create().close()  # so that it is looked for before it is created
    looks, others = itertools.count(), [library]

    def redact(message: dict[str, Any]) -> dict[str, Any]:
        """Called as a session is added; with the second one, another process is at work just then."""
        if message.get("content") == "two" and others:
            report = imported(one, others.pop())
            happens(one, Path(library.directory) / str(report.id))
        return message

    def parts(path: str) -> Any:
        assert next(looks) < 9, "it is read again and again"
        return open_parts(path)

    monkeypatch.setattr("transcript_store.importing._reading.open_parts", parts)  # where each look at a source begins
    reports = list(import_conversations([one, two], ConversationLibrary(library.directory, redact=redact)))
    assert (reports[0].action, reports[-1].action) == (action, "created"), [each.reason for each in reports]
    assert reason is None or reason in str(reports[0].reason)


def test_a_library_that_is_no_directory_here_is_asked_what_it_holds(tmp_path: Path) -> None:
    """It was taken for empty, so what stands under a former id was not looked for: one session became two conversations."""
    source = tmp_path / "s.jsonl"
    source.write_text(line(role="system", content="Be kind."))
    library = ConversationLibrary("/library", file_system=SimulatedFileSystem())
    first = imported(source, library)
    source.write_text(source.read_text() + line(role="user", content="hi"))
    assert (imported(source, library).action, imported(source, library).id) == ("grew", first.id)
    assert len(everything(library)) == 1


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_library_that_is_a_file_is_an_error_of_ours(dry_run: bool, tmp_path: Path) -> None:
    source = session(tmp_path, "one")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="move away the file"):
        list(import_conversations([source], ConversationLibrary(tmp_path / "file"), dry_run=dry_run))


def test_a_report_holds_no_session(tmp_path: Path, library: ConversationLibrary) -> None:
    """The error in it had the frames that it passed, and with them all that was read: 3 MB for a source of 1 MB."""
    source = session(tmp_path, "one")
    damage(Path(library.directory) / str(imported(source, library).id))
    session(tmp_path, "one", line(say="more"))
    (report,) = import_conversations([source], library)
    assert isinstance(report.error, CorruptTranscriptError)
    error = report.error
    assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)
