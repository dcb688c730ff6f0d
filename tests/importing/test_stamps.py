"""Unchanged sources are not read again. Stamps only save time: they are derived, and may be deleted or wrong."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import files_of, imported, line, notebook
from transcript_store import ConversationLibrary, ConversationStore, StorageError
from transcript_store.importing import ImportReport
from transcript_store.sources import FoundSource, find_sources

pytestmark = pytest.mark.usefixtures("notebooks")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    path.write_text(notebook() + line(say="a", at="2026-01-01T00:00:00Z"))
    os.utime(path, (1, 1))  # long ago: what was written just now may be written again in the same tick of the clock
    return path


def again(source: Path, library: ConversationLibrary) -> ImportReport:
    return imported(source, library, cache=Path(library.directory).with_name("cache"))


def unread(source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether an import leaves the source closed."""
    opened: list[object] = []
    real = os.open

    def spy(path: object, *arguments: int, **named: int) -> int:
        opened.append(path)
        return real(path, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", spy)
        assert again(source, library).action == "unchanged"
    return str(source) not in opened


def test_what_did_not_change_is_not_opened(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the source nor the conversation; the report has the same counts as before."""
    first = again(source, library)
    before = files_of(source.parent)
    assert unread(source, library, monkeypatch)
    second = again(source, library)
    assert (second.id, second.lines, second.messages) == (first.id, first.lines, first.messages)
    assert files_of(source.parent) == before


def test_what_changed_is_read(source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source, or the conversation; one that was deleted comes back if that is asked for; a file that was written just now has no stamp."""
    report = again(source, library)
    assert report.id is not None
    with library.open(report.id) as store:
        store.append_message({"role": "assistant", "content": "b"})
    assert not unread(source, library, monkeypatch)
    assert unread(source, library, monkeypatch)
    with source.open("a") as file:
        file.write(line(say="c"))
    assert again(source, library).action == "diverged"
    assert again(source, library).action == "diverged", "what is not well is said each time"
    library.delete(report.id)
    assert again(source, library).action == "deleted"
    cache = Path(library.directory).with_name("cache")
    assert imported(source, library, cache=cache, again=True).action == "created"
    assert not unread(source, library, monkeypatch)


@pytest.mark.parametrize("asked", [{}, {"again": True}])
def test_what_was_deleted_on_a_backend_stays_deleted(source: Path, asked: dict[str, bool]) -> None:
    """A backend does not take an id again: each later import had called the session refused, and ended with exit code 1."""
    pytest.importorskip("transcript_store.backends", reason="the package without its backends")
    from transcript_store.testing import SimulatedBackend  # which goes with them

    library = ConversationLibrary(SimulatedBackend())
    report = imported(source, library)
    assert report.id is not None
    library.delete(report.id)
    gone = imported(source, library, **asked)
    assert (gone.action, gone.id) == ("deleted", report.id)


def test_the_fork_of_a_deleted_original_grows_on_a_backend(source: Path) -> None:
    """As in a directory: its lines had been left out, and nothing was said."""
    pytest.importorskip("transcript_store.backends", reason="the package without its backends")
    from transcript_store.testing import SimulatedBackend

    library = ConversationLibrary(SimulatedBackend())
    original = imported(source, library)
    with library.open(str(original.id)) as store:
        store.append_message({"role": "assistant", "content": "of the library"})
    for said in ("b", "c"):
        with source.open("a") as file:
            file.write(line(say=said))
        fork = imported(source, library, diverged="fork")
        if said == "b":
            library.delete(str(original.id))
    assert fork.action == "grew"
    with library.open(str(fork.id), read_only=True) as store:
        assert [message["content"] for message in store.get_messages()] == ["a", "b", "c"]


def test_a_conversation_of_another_user_stops_no_other_session(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imported once with sudo, say; it had ended each later import. A library that this user may not write to still ends it."""
    library.create().close()
    first = again(source, library)
    true_open = ConversationLibrary.open

    def refuse(self: ConversationLibrary, id: str, **options: Any) -> ConversationStore:
        if id == first.id:
            raise StorageError(errno=errno.EACCES, strerror="Permission denied", path=id, doing="read it")
        return true_open(self, id, **options)

    monkeypatch.setattr(ConversationLibrary, "open", refuse)
    with source.open("a") as file:
        file.write(line(say="more"))
    report = again(source, library)
    assert (report.action, "Permission denied" in str(report.reason)) == ("refused", True)
    shutil.rmtree(Path(library.directory) / str(first.id))
    with pytest.raises(StorageError):
        again(source, library)


def test_a_session_beyond_a_limit_on_one_file_stops_no_other(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `ulimit -f` the system refuses the longest sessions only, in an import of many and in one that is continued."""
    first = again(source, library)
    true_open = ConversationLibrary.open

    def refuse(self: ConversationLibrary, id: str, **options: Any) -> ConversationStore:
        if id == first.id:
            raise StorageError(errno=errno.EFBIG, strerror="File too large", path=id, doing="append")
        return true_open(self, id, **options)

    monkeypatch.setattr(ConversationLibrary, "open", refuse)
    with source.open("a") as file:
        file.write(line(say="more"))
    report = again(source, library)
    assert (report.action, "File too large" in str(report.reason)) == ("refused", True)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"version": 1, "library": 3}', None])
def test_stamps_that_are_damaged_or_gone_cost_time_only(
    source: Path, library: ConversationLibrary, data: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in the file, the import is as it would be without it; and writes it anew."""
    again(source, library)
    (stamps,) = Path(library.directory).with_name("cache").iterdir()
    assert stamps.stat().st_mode & 0o777 == 0o600
    stamps.unlink() if data is None else stamps.write_bytes(data)
    assert not unread(source, library, monkeypatch)
    assert unread(source, library, monkeypatch)


@pytest.mark.parametrize("known", [3, None, "", "{", "[]", "[[1,2,3,4],[],null]", [[1, 2, 3, 4], [], None]])
def test_a_stamp_that_is_damaged_costs_time_only(
    source: Path, library: ConversationLibrary, known: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is said of one source in a file that is whole, the source is read, and is known from then on."""
    again(source, library)
    (stamps,) = Path(library.directory).with_name("cache").iterdir()
    document = json.loads(stamps.read_text())
    assert [*document["sources"]] == [str(source)]
    stamps.write_text(json.dumps({**document, "sources": {str(source): known}}))
    assert not unread(source, library, monkeypatch)
    assert unread(source, library, monkeypatch)


def test_a_dry_run_keeps_nothing(source: Path, library: ConversationLibrary) -> None:
    """A session that would be created is not taken for one that is there."""
    cache = Path(library.directory).with_name("cache")
    assert imported(source, library, cache=cache, dry_run=True).action == "created"
    assert not cache.exists()
    assert imported(source, library, cache=cache).action == "created"


def test_the_stamps_of_a_library_that_is_gone_go(source: Path, library: ConversationLibrary) -> None:
    """The next import into any library removes them, and what a killed one left; nothing else in the folder."""
    folder = Path(library.directory).with_name("cache")
    gone = ConversationLibrary(source.parent / "gone")
    for one in (library, gone, ConversationLibrary(source.parent / os.fsdecode(b"gone \xff"))):
        imported(source, one, cache=folder)
    kept = {path.name for path in folder.iterdir()}
    old, new = (folder / f"imports-{'0' * 32}.json.{digit * 16}" for digit in "12")
    others = [folder / "imports-mine.json", folder / f"imports-{'1' * 32}.json"]
    for path in (old, new, *others):
        path.write_text('{"library": "/nowhere"}')
    os.utime(old, (1, 1))
    (stamps,) = (name for name in kept if f'"{gone.directory}"' in (folder / name).read_text())
    for directory in (gone.directory, source.parent / os.fsdecode(b"gone \xff")):
        shutil.rmtree(directory)
    with source.open("a") as file:
        file.write(line(say="b"))
    os.utime(source, (2, 2))
    again(source, library)
    left = {path.name for path in folder.iterdir()}
    assert left == kept - {stamps} | {new.name, *(path.name for path in others)}


def test_many_are_imported_at_once_and_reported_in_order(tmp_path: Path, library: ConversationLibrary) -> None:
    """Twenty sessions, four of which have one id: each is once there, and reports come in the order of the sources."""
    from transcript_store.importing import import_conversations

    for number in range(20):
        (tmp_path / f"{number:02}.jsonl").write_text(
            notebook(f"s{number % 17}") + line(say="a", at="2026-01-01T00:00:00Z")
        )
    found = [one for one in find_sources(tmp_path) if isinstance(one, FoundSource)]
    reports = list(import_conversations(found, library))
    assert [report.source for report in reports] == [one.path for one in found]
    assert {report.action for report in reports} == {"created", "unchanged"}
    assert len(library.list()) == 17


def test_a_middle_that_was_rewritten_to_the_same_length_is_read(source: Path, library: ConversationLibrary) -> None:
    """In place, and its mtime put back: size, mtime and inode are what they were, and only the ctime is not."""
    again(source, library)
    before, text = source.stat(), source.read_text()
    with source.open("r+") as file:
        file.write(text.replace('"a"', '"b"'))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size
    assert source.read_text() != text
    assert again(source, library).action == "replaced"


def test_the_folder_of_the_stamps_may_begin_with_a_tilde(source, tmp_path, monkeypatch):
    """And no folder that is called ~ is made where the program runs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    imported(source, ConversationLibrary("~/library"), cache="~/cache")
    assert (tmp_path / "home/cache").is_dir()
    assert not (tmp_path / "~").exists()
