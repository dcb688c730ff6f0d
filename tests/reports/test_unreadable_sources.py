"""One source that cannot be read does not end an import: it is refused with its reason, and the others are imported.

The report: a disk gave EIO for one of three files; the import ended with "Input/output error", and neither of the two readable
files was imported.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import zipfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import a_cache_of_its_own, cli  # noqa: F401 (fixtures)
from tests.cli.helpers import Cli
from transcript_store import ConversationLibrary
from transcript_store.formats import READERS, SessionPlan, Source, SourceHead
from transcript_store.importing import ImportReport, import_conversations

GOOD = b'{"role":"user","content":"%s"}\n'


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    for name in ("a", "m", "z"):
        (folder / f"{name}.jsonl").write_bytes(GOOD % name.encode())
    return folder


def imported(sources: Path, library: ConversationLibrary, **options: Any) -> dict[str, ImportReport]:
    return {Path(report.source).name: report for report in import_conversations([sources], library, **options)}


def refused_alone(sources: Path, tmp_path: Path, reason: str, name: str = "m.jsonl") -> None:
    """The source of this name is refused with this reason, and both others are imported; a second import says the same."""
    library = ConversationLibrary(tmp_path / "library")
    for expected in ("created", "unchanged"):
        reports = imported(sources, library)
        assert {name: report.action for name, report in reports.items()} == {
            "a.jsonl": expected,
            name: "refused",
            "z.jsonl": expected,
        }
        assert reason in str(reports[name].reason)
    assert len(list(library.list())) == 2


@pytest.mark.parametrize(
    ("number", "nth"), [(errno.EIO, 0), (errno.EIO, 1), (errno.EIO, 7), (errno.ESTALE, 0), (errno.ENOMEM, 2)]
)
def test_a_read_that_the_system_refuses(
    number: int, nth: int, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first read, or in the middle of a file that is too large to be held."""
    monkeypatch.setattr("transcript_store.sources._files._HELD_BYTES", 1 << 16)
    bad = sources / "m.jsonl"
    bad.write_bytes(GOOD % (b"x" * 30_000) * 20)
    inode, pread, counts = bad.stat().st_ino, os.pread, [0]

    def failing(handle: int, size: int, offset: int) -> bytes:
        if os.fstat(handle).st_ino == inode:
            counts[0] += 1
            if counts[0] > nth:
                raise OSError(number, os.strerror(number))
        return pread(handle, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    refused_alone(sources, tmp_path, os.strerror(number))


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "may not take enough memory"),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "UnicodeDecodeError"),
        (SystemExit(3), "SystemExit"),
        (KeyError("role"), "KeyError"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("where", ["recognizes", "plans", "entries"])
def test_whatever_a_reader_raises(
    error: BaseException, reason: str, where: str, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in a reader, one of an added package too."""

    class Failing:
        name = "failing"

        def recognizes(self, head: SourceHead) -> bool:
            is_its_own = b'"m"' in head.start
            if is_its_own and where == "recognizes":
                raise error
            return is_its_own

        def plans(self, source: Source) -> Iterable[SessionPlan]:
            if where == "plans":
                raise error

            def entries() -> Any:
                raise error

            yield SessionPlan(self.name, "m", 1, (entries,))

    monkeypatch.setattr("transcript_store.importing.READERS", (Failing(), *READERS))
    if where != "recognizes":
        refused_alone(sources, tmp_path, reason)
        return
    reports = list(import_conversations([sources], ConversationLibrary(tmp_path / "library")))
    assert [report.action for report in reports] == ["created", "refused", "created", "created"]  # read by the next one
    assert reason in str(reports[1].reason)


def zip_cut(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", b"[]" * 5000)
    path.write_bytes(path.read_bytes()[:-30])


def database_damaged(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE agent_messages (session_id, message_data, id)")
        connection.executemany("INSERT INTO agent_messages VALUES (?, ?, ?)", [("s", "x" * 900, n) for n in range(50)])
    data = bytearray(path.read_bytes())
    data[100:8000] = os.urandom(7900)
    path.write_bytes(data)


@pytest.mark.parametrize("make", [zip_cut, database_damaged])
def test_a_source_that_is_damaged(make: Callable[[Path], None], sources: Path, tmp_path: Path) -> None:
    """An archive that was cut, a database with a damaged page."""
    name = "m.zip" if make is zip_cut else "m.sqlite"
    (sources / "m.jsonl").unlink()
    make(sources / name)
    refused_alone(sources, tmp_path, "", name)


def test_a_bad_page_of_a_database_costs_the_sessions_on_it(tmp_path: Path) -> None:
    """The sessions after the first unreadable one were not imported. Those left out are named, at each import."""
    path = tmp_path / "sessions.db"
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, working_dir, created_at, updated_at)")
        writer.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id, role, content_json, created_timestamp)"
        )
        writer.execute("CREATE INDEX of_session ON messages (session_id)")
        for number in range(1, 10):
            writer.execute("INSERT INTO sessions VALUES (?, 'n', ?, ?)", (f"s{number}", f"2026-09-0{number}", ""))
            said = '[{"type":"text","text":"%s"}]' % ("zebra" * 600)
            writer.execute("INSERT INTO messages VALUES (?, ?, 'user', ?, 1788256800)", (number, f"s{number}", said))
    data = bytearray(path.read_bytes())
    place = data.index(b"zebra" * 600, len(data) // 2) // 4096 * 4096
    data[place : place + 4096] = b"\x55" * 4096
    path.write_bytes(data)
    library = ConversationLibrary(tmp_path / "library")
    reports = list(import_conversations([path], library))
    actions = [report.action for report in reports]
    assert (actions.count("created"), actions.count("refused")) == (8, 1)
    (refused,) = (report for report in reports if report.action == "refused")
    assert "the session s" in str(refused.reason)
    assert "was left out: the database cannot be read" in str(refused.reason)
    again = [report.action for report in import_conversations([path], library)]
    assert (again.count("unchanged"), again.count("refused")) == (8, 1)


def test_a_file_that_vanishes_does_not_hide_the_others_of_its_folder(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted between the listing of its folder and the look at it."""
    entries = list(os.scandir(sources))
    scandir = os.scandir

    class Listed:
        def __enter__(self) -> Any:
            return iter(sorted(entries, key=lambda entry: entry.name != "m.jsonl"))

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda path=".": Listed() if str(path) == str(sources) else scandir(path))
    (sources / "m.jsonl").unlink()
    reports = imported(sources, ConversationLibrary(tmp_path / "library"))
    assert {name: report.action for name, report in reports.items()} == {"a.jsonl": "created", "z.jsonl": "created"}


@pytest.mark.usefixtures("a_cache_of_its_own")
def test_a_named_path_that_cannot_be_looked_at_is_refused_alone(cli: Cli, sources: Path, tmp_path: Path) -> None:  # noqa: F811
    """A name that is too long, links in a circle, a file that is gone, a FIFO; in Python also a path with a NUL byte."""
    (sources / "circle").symlink_to(sources / "circle")
    os.mkfifo(sources / "fifo")
    odd = [str(sources / name) for name in ("x" * 300, "circle/a", "gone", "circle", "fifo")]
    good = [str(sources / "a.jsonl"), str(sources / "z.jsonl")]
    code, out, err = cli("import", "-v", *odd, *good, "--into", str(tmp_path / "library"))
    assert (code, out.count("created ")) == (1, 2)
    assert [name for name in odd if f"{name}: refused: " not in err] == []
    reports = [*import_conversations([*odd, "a\0b", *good], ConversationLibrary(tmp_path / "library"))]
    assert sorted(report.action for report in reports) == ["refused"] * 6 + ["unchanged"] * 2


def test_an_encrypted_member_is_refused_in_a_plain_sentence(sources: Path, tmp_path: Path) -> None:
    """The others of its archive are imported."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in "abc":
            archive.writestr(f"{name}.jsonl", f'{{"role": "user", "content": "{name}"}}\n')
    data = bytearray(path.read_bytes())
    second = data.index(b"b.jsonl"), data.rindex(b"b.jsonl")
    data[second[0] - 30 + 6] |= 1
    data[second[1] - 46 + 8] |= 1
    path.write_bytes(data)
    reports = list(import_conversations([path], ConversationLibrary(tmp_path / "library")))
    assert [report.action for report in reports] == ["created", "refused", "created"]
    assert reports[1].reason == "is encrypted: unpack it with its password, and import what comes out"
