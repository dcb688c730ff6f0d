"""One file with many conversations: an interrupted run is repeated, and damage is reported.

The night's copy was a tar file, written anew each night, and the night in which the power went there was half of one.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.backends.shipped import FOLDER, ID, KEY, LIBRARY, files_in, history, library_on, with_a_history
from tests.kit.messages import user_message
from transcript_store import (
    ConversationLibrary,
    ConversationLockedError,
    CorruptTranscriptError,
    KeyNeededError,
    NotSealedError,
    StorageError,
    WrongKeyError,
)
from transcript_store._log import scan
from transcript_store._os.directory import Folder
from transcript_store.backends import BackupFile, NotShipped, Restored, _backup_file, backup_library, restore_library
from transcript_store.redaction import SecretRedactor
from transcript_store.testing import FileSystemCall, SimulatedFileSystem, SimulatedStop

Disk = SimulatedFileSystem
FILE = "/copies/chats.backup"
KEYS = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


def backed_up(disk: Disk, key: bytes | None = None, source: str = LIBRARY, **options: Any) -> list[Restored]:
    with BackupFile(FILE, writes=True, encryption_key=key, file_system=disk) as backup:
        return whole(backup_library(source, backup, file_system=disk, **options))


def whole(reports: Any) -> list[Restored]:
    found = [*reports]
    assert not [each.error for each in found if isinstance(each, NotShipped)]
    return found


def brought_back(disk: Disk, key: bytes | None = None, to: str = "/back") -> list[Restored]:
    with BackupFile(FILE, encryption_key=key, file_system=disk) as backup:
        return whole(restore_library(backup, to, file_system=disk))


# ---- there and back --------------------------------------------------------------------------------------------------------


@KEYS
def test_a_conversation_of_any_moment_comes_back_to_the_byte(key: bytes | None) -> None:
    """Generations, deletions, retractions; backed up again after each step, only what is new is written."""
    disk, sizes = Disk(), [0]

    def at_each() -> None:
        backed_up(disk, key)
        sizes.append(len(disk.tree()[FILE] or b""))
        assert not any(report.is_changed for report in backed_up(disk, key))
        assert len(disk.tree()[FILE] or b"") == sizes[-1]
        brought_back(disk, key, f"/back{len(sizes)}")
        assert files_in(disk, f"/back{len(sizes)}/{ID}") == files_in(disk, FOLDER)

    history(disk, None, at_each)
    assert all(before < after for before, after in pairwise(sizes))
    whole_size = sum(len(data) for data in files_in(disk, FOLDER).values())
    assert sizes[-1] < (4 if key else 3) * whole_size + 4_000


def test_sealed_conversations_come_back_with_their_keys() -> None:
    """As they are; without the keys where that is asked for, and then the report says so."""
    disk = with_a_history(KEY)
    (report,) = backed_up(disk)
    assert not report.key_is_missing
    brought_back(disk)
    assert files_in(disk, f"/back/{ID}") == files_in(disk, FOLDER)
    with library_on(disk, KEY).open(ID) as conversation:
        conversation.append_message(user_message("more"))
    ConversationLibrary(LIBRARY, file_system=disk, encryption_key=bytes(32), retired_keys=[KEY]).rotate_key()
    backed_up(disk)
    brought_back(disk, to="/later")
    assert files_in(disk, f"/later/{ID}") == files_in(disk, FOLDER)
    disk.unlink(disk.open_directory("/copies"), "chats.backup")
    (report,) = backed_up(disk, with_key=False)
    assert report.key_is_missing


def test_two_continuations_are_both_in_the_backup() -> None:
    """A library was rolled back and continued: the file has both histories, and restores both."""
    disk = Disk()
    with library_on(disk).create(id=ID, messages=[user_message("a")]):
        pass
    earlier = disk.copy()
    with library_on(disk).open(ID) as conversation:
        conversation.append_message(user_message("b"))
    backed_up(disk)
    earlier.make_directory(earlier.open_directory("/"), "copies")
    earlier.write_file(FILE, disk.tree()[FILE] or b"")
    assert not any(report.is_changed for report in backed_up(earlier))  # all of it is in the file
    with library_on(earlier).open(ID) as conversation:
        conversation.append_message(user_message("c"))
    backed_up(earlier)
    first, second = brought_back(earlier)
    assert (first.id, first.copy_of, second.copy_of) == (ID, None, ID)
    library = ConversationLibrary("/back", file_system=earlier)
    texts = set()
    for summary in library.list():
        with library.open(str(summary.id), read_only=True) as conversation:
            texts.add(tuple(message["content"] for message in conversation.get_messages()))
    assert texts == {("a", "b"), ("a", "c")}


def test_a_redacted_copy_names_its_original_and_changes_nothing_beside_it() -> None:
    """It has an id of its own, the original's id and head; more of the original is more of the copy."""
    disk, secret = Disk(), "ghp_" + "a1B2" * 9
    with library_on(disk).create(
        id=ID, model=f"m-{secret}", messages=[user_message(f"token {secret}")], labels={"title": f"on {secret}"}
    ) as original:
        original.append_messages([user_message("one"), user_message(f"again {secret}")])
    (report,) = whole(backup_library(LIBRARY, "/public", redact=SecretRedactor(), file_system=disk))
    with library_on(disk).open(ID) as original:
        original.append_message(user_message("two"))
        head = original.head
    (again,) = whole(backup_library(LIBRARY, "/public", redact=SecretRedactor(), file_system=disk))
    assert (again.id, again.added_records) == (report.id, 1)
    before = files_in(disk, FOLDER)
    whole(restore_library("/public", LIBRARY, file_system=disk))
    assert files_in(disk, FOLDER) == before
    assert not any(one.is_changed for one in whole(restore_library("/public", LIBRARY, file_system=disk)))
    with library_on(disk).open(report.id, read_only=True) as copy:
        origin = copy.get_metadata().forked_from or {}
        assert (origin["conversation"], origin["seq"], origin["head"]) == (ID, 4, head)
        assert len(copy.get_messages()) == 4
    assert secret not in str(files_in(disk, f"{LIBRARY}/{report.id}"))


# ---- keys, locks, and what is no backup ------------------------------------------------------------------------------------


def test_a_sealed_file_shows_nothing_and_needs_its_key() -> None:
    """No text of it, not even the ids; without the key and with another one it is refused, and a plain one is not added to with a key."""
    disk = with_a_history()
    backed_up(disk, KEY)
    data = disk.tree()[FILE] or b""
    assert ID.encode() not in data
    assert b"first" not in data
    with pytest.raises(KeyNeededError):
        BackupFile(FILE, file_system=disk)
    with pytest.raises(WrongKeyError):
        BackupFile(FILE, encryption_key=bytes(32), file_system=disk)
    disk.write_file(FILE, b"")
    backed_up(disk)
    with pytest.raises(NotSealedError):
        BackupFile(FILE, writes=True, encryption_key=KEY, file_system=disk)


@KEYS
def test_no_frame_can_be_left_out_moved_or_changed(key: bytes | None) -> None:
    """F3: a writer is refused; a reader gets an error, and everything before the damage."""
    disk = with_a_history()
    with library_on(disk).create(messages=[user_message("another")]):
        pass
    backed_up(disk, key)
    data = disk.tree()[FILE] or b""
    frames = [at for at in range(len(data)) if data.startswith(b'{"frame":', at) and data[at - 1 : at] == b"\n"]
    first, second, third = frames[1:4]
    for changed in (
        data[:first] + data[second:],
        data[:first] + data[second:third] + data[first:second] + data[third:],
        data[: first + 120] + b"?" + data[first + 121 :],
    ):
        disk.write_file(FILE, changed)
        with BackupFile(FILE, encryption_key=key, file_system=disk) as backup:
            assert backup.damage is not None
            assert not backup.is_complete
        with pytest.raises(CorruptTranscriptError):
            BackupFile(FILE, writes=True, encryption_key=key, file_system=disk)
        assert disk.tree()[FILE] == changed


def test_two_at_once_and_what_is_no_backup() -> None:
    """The second run gets an error that names the first. Another file, a folder, a later version: refused, and not touched."""
    disk = with_a_history()
    with BackupFile(FILE, writes=True, file_system=disk), pytest.raises(ConversationLockedError):
        BackupFile(FILE, writes=True, file_system=disk.another_process())
    disk.write_file("/copies/notes.txt", b"of nobody's\n")
    for writes in (False, True):
        with pytest.raises(CorruptTranscriptError, match="not a backup"):
            BackupFile("/copies/notes.txt", file_system=disk, writes=writes)
        with pytest.raises(CorruptTranscriptError):
            BackupFile("/copies", file_system=disk, writes=writes)
    assert disk.tree()["/copies/notes.txt"] == b"of nobody's\n"


def test_a_stream_that_broke_is_told_and_what_is_whole_in_it_comes_back(tmp_path: Path) -> None:
    """F2: at each length it is whole, or it says that it is cut; no conversation comes back in part."""
    library = ConversationLibrary(tmp_path / "chats")
    counts = {}
    for number in range(3):
        with library.create(messages=[user_message(f"{number} {each}") for each in range(number + 1)]) as conversation:
            counts[conversation.id] = number + 1
    stream = io.BytesIO()
    with BackupFile.to_stream(stream) as backup:
        whole(backup_library(library.directory, backup))
    data = stream.getvalue()
    seen = set()
    for length in [*range(200, len(data), 331), len(data)]:
        with BackupFile.from_stream(io.BytesIO(data[:length]), tmp_path) as backup:
            assert backup.is_complete == (length == len(data))
            target = tmp_path / f"back-{length}"
            reports = whole(restore_library(backup, target))
            assert all(report.record_count == counts[report.id] for report in reports)
            seen.add(len(reports))
    assert seen == {0, 1, 2, 3}
    with pytest.raises(CorruptTranscriptError):
        BackupFile.from_stream(io.BytesIO(b"ssh: connection refused\n"), tmp_path)


def test_a_file_that_lies_makes_no_damaged_conversation() -> None:
    """Its hashes are right, since who wrote it made them: what does not fit together is refused, gets no name, and stops no other."""
    disk, forged = with_a_history(), "11111111-1111-4111-8111-111111111111"
    with library_on(disk).create(messages=[user_message("whole")]):
        pass
    lines = files_in(disk, FOLDER)
    with BackupFile(FILE, writes=True, file_system=disk) as backup:
        whole(backup_library(LIBRARY, backup, file_system=disk))
        for own_id, life, generation, content in (
            (forged, 0, 0, lines["archive/transcript-000000.jsonl"]),  # another's lines
            (ID, 1, 2, lines["transcript.jsonl"].replace(b'"taken back"', b'"taken bakc"')),  # a line that was changed
            (ID, 1, 7, lines["transcript.jsonl"]),  # a number that it does not have
        ):
            named = {"conversation": own_id, "life": life}
            if life == len(backup._lives.get(own_id, [])):
                backup._lives.setdefault(own_id, [])
            backup._frame({"kind": "lines", "generation": generation, **named}, content)
            document = (
                lines["metadata.json"] if own_id == ID else lines["metadata.json"].replace(ID.encode(), forged.encode())
            )
            backup._frame({"kind": "metadata", "folder": "../../etc", **named}, document)
        backup.finish()
    with BackupFile(FILE, file_system=disk) as backup:
        reports = [*restore_library(backup, "/back", file_system=disk)]
    assert {type(report).__name__ for report in reports} == {"Restored", "NotShipped"}
    library = ConversationLibrary("/back", file_system=disk)
    assert all(library.verify(str(summary.id)).findings == () for summary in library.list())
    assert not [path for path in disk.tree() if path.startswith("/etc") or "-1111-" in path or ".stage" in path]


# ---- cut off ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame per line, so that a short generation has several."""
    monkeypatch.setattr(_backup_file, "PIECE_BYTES", 1024)
    monkeypatch.setattr(scan, "PIECE_BYTES", 1024)


def cut_at_every_call(key: bytes | None, every: int = 1) -> Iterator[tuple[Disk, Disk]]:
    """The second run, which adds a generation and a conversation, killed before each n-th call on the file; and the power cut then."""
    disk = with_a_history()
    backed_up(disk, key)
    with library_on(disk).open(ID) as conversation:
        conversation.replace_transcript([user_message("x" * 1500), user_message("y" * 1500)])
        conversation.append_message(user_message("and on"))
    with library_on(disk).create(messages=[user_message("another")]):
        pass
    disk = disk.copy()
    number = 0
    while True:
        left, number = disk.copy(), number + every
        calls, is_dead = iter(range(1, number)), False

        def on_call(call: FileSystemCall, calls: Iterator[int] = calls) -> None:
            nonlocal is_dead
            is_dead = is_dead or (call.path.startswith("/copies") and call.name != "read" and next(calls, None) is None)
            if is_dead:
                raise SimulatedStop

        left.on_call = on_call
        is_killed = False
        try:
            backed_up(left, key)
        except SimulatedStop:
            is_killed = True
        yield disk, left.kill_process()
        yield disk, left.kill_process().worst_power_failure()
        if not is_killed:
            return


def judge(disk: Disk, left: Disk, key: bytes | None) -> None:
    """What is in the file is a state that each conversation had; the next run makes it whole, and then all of it comes back."""
    with BackupFile(FILE, encryption_key=key, file_system=left) as backup:
        assert backup.damage is None
        for report in whole(restore_library(backup, "/part", file_system=left)):
            if report.id == ID:
                assert (report.generation, report.record_count) in {(2, 4), (3, 3)}
            else:
                assert report.record_count == 1
    backed_up(left, key)
    with BackupFile(FILE, encryption_key=key, file_system=left) as backup:
        assert backup.is_complete
        for report in whole(restore_library(backup, "/all", file_system=left)):
            assert files_in(left, report.directory) == files_in(disk, f"{LIBRARY}/{report.id}")
    whole(restore_library("/all", "/part", file_system=left))
    for name, data in left.tree().items():
        if name.startswith("/all/") and not name.endswith("/lock"):
            assert left.tree()[name.replace("/all/", "/part/", 1)] == data


@pytest.mark.parametrize("key", [None, pytest.param(KEY, marks=pytest.mark.long)], ids=["plain", "sealed"])
@pytest.mark.usefixtures("short_pieces")
def test_a_run_that_was_killed_anywhere_is_continued(key: bytes | None) -> None:
    """F1, F2: at each call, with the power cut or not."""
    count = 0
    for disk, left in cut_at_every_call(key, every=2 if key is None else 1):
        judge(disk, left, key)
        count += 1
    assert count > 10


def test_a_full_disk_ends_the_run_and_leaves_whole_frames() -> None:
    """No conversation is written behind a part of a frame; with space again the next run continues, and all of it comes back."""
    first = with_a_history()
    for number in range(2):
        with library_on(first).create(messages=[user_message(f"another {number}")]):
            pass
    refused: list[int | None] = []
    for number in range(1, 30):
        disk = first.copy()
        writes = iter(range(number))

        def refuse(call: FileSystemCall, disk: Disk = disk, writes: Iterator[int] = writes) -> None:
            if call.name == "write" and call.path.startswith(FILE) and next(writes, None) is None:
                tree = disk.tree()[FILE] or b""
                disk.on_call = None
                disk.write_file(FILE, tree + b'{"frame":')  # a short write, and the disk is full
                raise OSError(errno.ENOSPC, "full")

        disk.on_call = refuse
        try:
            backed_up(disk)
        except StorageError as error:
            refused.append(error.errno)
        disk.on_call = None
        backed_up(disk)
        assert len(brought_back(disk)) == 3
        assert files_in(disk, f"/back/{ID}") == files_in(disk, FOLDER)
    assert len(refused) > 5
    assert {*refused} == {errno.ENOSPC}


@pytest.mark.usefixtures("short_pieces")
def test_lines_that_count_before_their_metadata_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """F1 left out: half a generation counts as one."""
    real = BackupFile._apply

    def counted_at_once(self: BackupFile, members: dict[str, Any], content: bytes) -> None:
        real(self, members, content)
        if members["kind"] == "lines":
            life = self._lives[members["conversation"]][-1]
            life.ends = {each: lines.end for each, lines in life.lines.items()}

    monkeypatch.setattr(BackupFile, "_apply", counted_at_once)
    with pytest.raises((AssertionError, CorruptTranscriptError)):
        for disk, left in cut_at_every_call(None):
            judge(disk, left, None)


def test_an_end_that_is_not_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """F2 left out: a run returned, and a power cut takes it."""

    def survives() -> bool:
        disk = with_a_history()
        backed_up(disk)
        left = disk.worst_power_failure()
        return bool(left.tree().get(FILE)) and bool(brought_back(left))

    assert survives()
    real = Folder.sync
    monkeypatch.setattr(
        Folder,
        "sync",
        lambda self, handle=None: None if self.path == "/copies" and handle is not None else real(self, handle),
    )
    assert not survives()
