"""What the tests of the import share: a format with generations, sources of it, and what is to be seen of a library."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from transcript_store import ConversationLibrary, Record
from transcript_store.exporting import export
from transcript_store.formats import READERS, PlannedRecord, SessionPlan, Source, SourceHead, SourceLines, pack_line
from transcript_store.formats._rows import text_beside
from transcript_store.import_notes import note_of
from transcript_store.importing import ImportReport, import_conversations


class Notebook:
    """A format for tests: ``{"session"}`` begins one; ``{"say"}`` is a message; ``{"compact"}`` begins a generation with a summary.

    ``{"title"}`` is an event that names the session, and so does a file ``title.txt`` beside it. Anything else is an event.
    """

    name = "notebook"

    def recognizes(self, head: SourceHead) -> bool:
        return bool(head.objects) and "notebook" in head.objects[0]

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        lines = SourceLines(source)
        session, title, count = "", None, 1
        for line in lines:
            value = line.value or {}
            session = session or str(value.get("notebook", ""))
            title = value.get("title", title)
            count += "compact" in value
        title = text_beside(source, "title.txt").decode() or title
        labels = {} if title is None else {"title": title}
        yield SessionPlan(
            format=self.name,
            session=session,
            lines=lines.count,
            generations=tuple(partial(self._entries, source, number) for number in range(count)),
            provider="claude",
            labels=labels,
            findings=tuple(lines.findings),
            tail=lines.tail,
        )

    def _entries(self, source: Source, wanted: int) -> Iterator[PlannedRecord]:
        number = 0
        for line in SourceLines(source):
            value = line.value or {}
            number += "compact" in value
            if number != wanted:
                continue
            said = value.get("say", value.get("compact"))
            message = None if said is None else {"role": value.get("role", "user"), "content": said}
            packed = pack_line(line.number, line.raw, line.value, message)
            yield PlannedRecord(message, {"source": {"lines": [packed]}}, value.get("at"), (line.number,))


def line(**members: Any) -> str:
    return json.dumps(members) + "\n"


def notebook(session: str = "s1") -> str:
    return line(notebook=session)


def use_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the import know the format of the tests too."""
    monkeypatch.setattr("transcript_store.importing.READERS", (Notebook(), *READERS))


def imported(source: Path | Iterable[Any], library: ConversationLibrary, **options: Any) -> ImportReport:
    """Import what has one session; returns its report."""
    (report,) = import_conversations([source] if isinstance(source, Path) else source, library, **options)
    return report


def everything(library: ConversationLibrary) -> dict[str, list[list[tuple[Any, ...]]]]:
    """Each conversation's generations, record by record, without what the clock decides: two equal imports look equal."""
    found = {}
    for summary in library.list():
        assert summary.damage is None
        assert summary.id is not None
        with library.open(summary.id, read_only=True) as store:
            found[summary.id] = [
                [_plain(record) for record in store.iter_records(generation=generation)]
                for generation in range(store.get_metadata().generation + 1)
            ] + [[("labels", tuple(sorted(store.get_metadata().labels.items())))]]
    return found


def _plain(record: Record) -> tuple[Any, ...]:
    note = note_of(record)
    extra = record.extra if note is None else {"import": {**note, "at": "…"}}
    return record.at, json.dumps(record.message), json.dumps(extra)


def files_of(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a folder: its inode, the time of its last change, and its bytes."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def exported_original(library: ConversationLibrary, id: str) -> bytes:
    """The source of an imported conversation, as ``export --to original`` writes it."""
    stream = io.BytesIO()
    export(library, id, to="original", output=stream)
    return stream.getvalue()
