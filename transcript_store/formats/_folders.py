"""Sessions that are a folder of small files, read as one file of lines: the file that stands for the folder, and the files with its
lines.

A file is one line, an array is a line for each of its objects, and a file of lines is those. A reader and ``--to original`` get the
lines of all of them, in the order of :attr:`FolderLayout.parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from transcript_store.formats._document import parse_object
from transcript_store.formats._members import Json, obj, text_in

ReadBeside = Callable[[str], bytes | None]
"""Reads a file by its path below the folder; None if it is missing or too long."""
NamesIn = Callable[[str], list[str]]
"""The names of the files in a folder below it, sorted."""


class FolderLayout(NamedTuple):
    """How one program lays a session out."""

    anchor: str
    """The file that stands for the folder: the program writes it at every change of the session."""
    beside: tuple[str, ...]
    """Files and folders beside the anchor that are not sessions. If the first is a folder, its files are parts."""
    parts: Callable[[ReadBeside, NamesIn], Iterable[str]]
    """The paths of its parts, in order. Each has to be there: a session of which a part is missing is refused."""


def _none(_: ReadBeside, _names: NamesIn) -> tuple[str, ...]:
    return ()


def _of_openhands(_: ReadBeside, names: NamesIn) -> Iterator[str]:
    for name in names("events"):
        if name.startswith("event-") and name.endswith(".json"):
            yield f"events/{name}"


def _of_vibe(read: ReadBeside, names: NamesIn) -> Iterator[str]:
    """The parts of the generation that ``CURRENT`` names: the person's view, the model's, and later events."""
    generation = text_in(_object(read("CURRENT")), "generation")
    if not _is_name(generation):
        return
    folder = f"generations/{generation}"
    manifest = _object(read(f"{folder}/manifest.json"))
    for state in ("projection_state", "checkpoint"):
        chunks = obj(manifest.get(state)).get("chunks")
        yield from (f"chunks/{one}.json" for one in (chunks if isinstance(chunks, list) else ()) if _is_name(one))
    yield from (f"{folder}/{name}" for name in names(folder) if name == "checkpoint.json")
    journal = text_in(obj(manifest.get("recovery_journal_segment")), "path").rpartition("/")[2]
    yield from (f"journal/{name}" for name in names("journal") if name == journal)


def _object(raw: bytes | None) -> Json:
    return parse_object(raw or b"") or {}


def _is_name(given: object) -> bool:
    """True for the name of one file: text of a foreign file is not a path."""
    return isinstance(given, str) and given not in ("", ".", "..") and {"/", "\\", "\0"}.isdisjoint(given)


_BESIDE_GROKS_UPDATES = (
    *("chat_history.jsonl", "compaction_checkpoints", "summary.json", "plan.json", "rewind_points.jsonl"),
    *("signals.json", "feedback.jsonl"),
)
"""Grok Build's session is one file: the others repeat it, or are read with it."""
LAYOUTS: tuple[FolderLayout, ...] = (
    FolderLayout("base_state.json", ("events", "TASKS.json"), _of_openhands),
    FolderLayout("updates.jsonl", _BESIDE_GROKS_UPDATES, _none),
    FolderLayout("CURRENT", ("generations", "chunks", "journal", "meta.json", "scheduled-loops.json"), _of_vibe),
)
