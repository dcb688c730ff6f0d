"""Retention: expired items are listed first, only the requested ones are removed, and none that is in use."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.machines import Clock
from tests.kit.messages import user_message
from tests.kit.trees import tree
from tests.library.helpers import make, texts
from transcript_store import (
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    FileStore,
    MemorySnapshotStore,
    PrunedItem,
    Pruning,
    Snapshot,
    WrongKeyError,
    restore_snapshot,
)
from transcript_store.aio import AsyncConversationLibrary
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

DAY = 24 * 3600 * 1_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shelf(tmp_path: Path, clock: Clock) -> ConversationLibrary:
    """A library whose clock the test sets."""
    return ConversationLibrary(tmp_path / "library", file_system=clock)


def make_at(shelf: ConversationLibrary, clock: Clock, days_ago: int, *said: str, **contents: Any) -> str:
    """A conversation that changed last so many days ago."""
    clock.now = Clock.NOON - days_ago * DAY
    try:
        with shelf.create(messages=[user_message(text) for text in said], **contents) as store:
            return store.id
    finally:
        clock.now = Clock.NOON


def replaced(shelf: ConversationLibrary, chat: str, times: int) -> None:
    """So many earlier generations."""
    with shelf.open(chat) as store:
        for number in range(times):
            store.replace_transcript([user_message(f"generation {number + 1}")])


def torn(shelf: ConversationLibrary, chat: str) -> None:
    """A piece in quarantine."""
    with (Path(shelf.directory) / chat / "transcript.jsonl").open("ab") as file:
        file.write(b'{"seq":')
    shelf.open(chat).close()


def of(items: tuple[PrunedItem, ...]) -> list[tuple[str, str, int | None]]:
    return [(item.what, item.id, item.generation) for item in items]


def generations(shelf: ConversationLibrary, chat: str) -> list[int]:
    with shelf.open(chat, read_only=True) as store:
        return [generation.number for generation in store.generations()]


def test_prune_lists_what_it_then_removes(shelf: ConversationLibrary, clock: Clock) -> None:
    """A dry run is the default, and touches nothing: no lock, no file. The call that removes says the same."""
    old, older = make_at(shelf, clock, 40, "a", labels={"title": "Old"}), make_at(shelf, clock, 50, "b")
    clock.now = Clock.NOON - 40 * DAY
    replaced(shelf, old, 1)
    torn(shelf, old)
    clock.now = Clock.NOON
    young = make_at(shelf, clock, 3, "c")
    before = tree(Path(shelf.directory))
    due = shelf.prune(older_than=timedelta(days=30))
    assert tree(Path(shelf.directory)) == before
    assert (due.applied, of(due.pruned)) == (False, [("conversation", old, None), ("conversation", older, None)])
    assert (due.items[0].title, due.items[0].updated_at) == ("Old", shelf.list()[1].updated_at)
    files = (path for path in (Path(shelf.directory) / old).rglob("*") if path.is_file())
    assert due.items[0].size_bytes == sum(path.stat().st_size for path in files)
    done = shelf.prune(older_than=timedelta(days=30), dry_run=False)
    assert (done.applied, done.pruned, done.skipped) == (True, due.pruned, ())
    assert done.size_bytes == due.size_bytes > 0
    assert [summary.id for summary in shelf.list()] == [young]
    assert shelf.prune(older_than=timedelta(days=30), dry_run=False).items == ()


def test_nothing_is_pruned_unasked(shelf: ConversationLibrary, clock: Clock) -> None:
    """Without a rule, with one that cannot be meant, or where nothing is expired."""
    make_at(shelf, clock, 4000, "a")
    wrong: list[dict[str, Any]] = [
        {},
        {"labels": {"title": "x"}},
        {"keep_generations": -1},
        {"keep_generations": True},
        {"older_than": timedelta(days=-1)},
        {"older_than": "last year"},
        {"older_than": datetime(2026, 1, 1)},  # of no zone
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"."):
            shelf.prune(**arguments, dry_run=False)
    mistaken: list[tuple[dict[str, Any], str]] = [
        ({"keep_quarantine": 0}, "keep_quarantine must be a bool, not int"),
        ({"older_than": 365}, "older_than must be a timedelta, an aware datetime or text of RFC 3339, not int"),
        ({"older_than": date(2026, 1, 1)}, "not date"),
        ({"keep_generations": 0, "labels": "project=x"}, "labels must be a dict of str to str, not str"),
        (
            {"keep_generations": 0, "snapshots": "kept"},
            r"must be a SnapshotStore, such as FileStore\(directory\), not str",
        ),
        ({"keep_generations": 0, "dry_run": None}, "dry_run must be a bool, not NoneType"),
    ]
    for arguments, message in mistaken:
        for dry_run in (True, False):  # a dry run says it too, and not the call that was meant to remove something
            with pytest.raises(TypeError, match=message):
                shelf.prune(**{"dry_run": dry_run, **arguments})
    with pytest.raises(ValueError, match="'365d'; a timedelta says how long ago"):
        shelf.prune(older_than="365d")
    assert shelf.prune(older_than="1999-01-01T00:00:00Z", dry_run=False).items == ()
    assert shelf.prune(older_than=timedelta(days=5000), keep_generations=0, keep_quarantine=False).items == ()
    assert len(shelf.list()) == 1
    assert ConversationLibrary(f"{shelf.directory}/nothing").prune(keep_generations=0, dry_run=False).items == ()
    assert not Path(shelf.directory, "nothing").exists()


def test_a_moment_is_a_moment_however_it_is_given(shelf: ConversationLibrary, clock: Clock) -> None:
    """A conversation that changed at that very moment is not older."""
    chat = make_at(shelf, clock, 10, "a")
    moment = datetime.fromtimestamp(Clock.NOON / 1e6, UTC) - timedelta(days=10)
    for given in (moment, moment.isoformat(), timedelta(days=10)):
        assert shelf.prune(older_than=given).items == ()
    for given in (moment + timedelta(microseconds=1), timedelta(days=9, hours=23)):
        assert of(shelf.prune(older_than=given).pruned) == [("conversation", chat, None)]


def test_a_moment_that_has_not_come_yet_is_refused(shelf: ConversationLibrary, clock: Clock) -> None:
    """An incident: with a mistyped year, 2206 for 2026, everything expired. The present moment is allowed."""
    chat = make_at(shelf, clock, 10, "a")
    now = datetime.fromtimestamp(Clock.NOON / 1e6, UTC)
    for given in (now + timedelta(microseconds=1), now.replace(year=2206).isoformat()):
        for dry_run in (True, False):
            with pytest.raises(
                ValueError, match=r"2.* is in the future \(by the clock it is 2.*every conversation would be expired"
            ):
                shelf.prune(older_than=given, dry_run=dry_run)
    assert of(shelf.prune(older_than=now).pruned) == [("conversation", chat, None)]


def test_only_conversations_that_have_all_the_labels(shelf: ConversationLibrary, clock: Clock) -> None:
    one = make_at(shelf, clock, 9, "a", labels={"project": "x", "stage": "done"})
    make_at(shelf, clock, 9, "b", labels={"project": "x"})
    make_at(shelf, clock, 9, "c")
    rule: Any = {"older_than": timedelta(days=1), "labels": {"project": "x", "stage": "done"}}
    assert of(shelf.prune(**rule, dry_run=False).pruned) == [("conversation", one, None)]
    assert len(shelf.list()) == 2


def test_the_newest_generations_stay(shelf: ConversationLibrary, clock: Clock) -> None:
    """The older ones go for good, and the conversation is not changed by it: neither its messages nor when it changed last."""
    chat = make_at(shelf, clock, 9, "a")
    replaced(shelf, chat, 4)
    clock.now += DAY
    before = shelf.list()[0]
    due = shelf.prune(keep_generations=1)
    assert of(due.pruned) == [("generation", chat, number) for number in (0, 1, 2)]
    assert all(item.size_bytes > 100 for item in due.items)
    assert shelf.prune(keep_generations=1, dry_run=False).pruned == due.pruned
    assert generations(shelf, chat) == [3, 4]
    assert shelf.list()[0] == before
    assert of(shelf.prune(keep_generations=0, dry_run=False).pruned) == [("generation", chat, 3)]
    with shelf.open(chat) as store:
        assert texts(store) == ["generation 4"]
        store.append_message(user_message("more"))


def test_an_interrupted_replace_leaves_no_generation(shelf: ConversationLibrary, clock: Clock) -> None:
    """It would be counted as the newest, and one generation more would be removed than was asked for."""
    chat = make(shelf, "a")
    replaced(shelf, chat, 2)
    folder = Path(shelf.directory) / chat
    (folder / "archive" / "transcript-000002.jsonl").hardlink_to(folder / "transcript.jsonl")
    assert of(shelf.prune(keep_generations=1).items) == [("generation", chat, 0)]
    assert of(shelf.prune(keep_generations=1, dry_run=False).pruned) == [("generation", chat, 0)]
    assert generations(shelf, chat) == [1, 2]


def test_an_expired_conversation_is_listed_once(shelf: ConversationLibrary, clock: Clock) -> None:
    """One rule for all: the old ones go, of the others the earlier generations and the quarantine."""
    clock.now = Clock.NOON - 40 * DAY
    old = make(shelf, "a")
    replaced(shelf, old, 2)
    clock.now = Clock.NOON
    young = make(shelf, "b")
    replaced(shelf, young, 1)
    torn(shelf, young)
    done = shelf.prune(older_than=timedelta(days=30), keep_generations=0, keep_quarantine=False, dry_run=False)
    assert sorted(of(done.pruned), key=str) == sorted(
        [("conversation", old, None), ("generation", young, 0), ("quarantine", young, None)], key=str
    )
    assert not any((Path(shelf.directory) / young / "quarantine").iterdir())
    assert generations(shelf, young) == [1]


def test_a_quarantine_goes_also_where_no_generation_ever_was(shelf: ConversationLibrary, clock: Clock) -> None:
    """Of one that was never replaced there is no archive, in which generations could be due."""
    chat = make(shelf, "a")
    torn(shelf, chat)
    done = shelf.prune(keep_generations=0, keep_quarantine=False, dry_run=False)
    assert of(done.pruned) == [("quarantine", chat, None)]
    assert not done.skipped


def test_what_this_prune_takes_out_of_a_torn_transcript_stays(shelf: ConversationLibrary, clock: Clock) -> None:
    """Nobody has seen those bytes yet. What was there before is named as left alone, and goes with the next call."""
    chat = make(shelf, "a")
    torn(shelf, chat)
    with (Path(shelf.directory) / chat / "transcript.jsonl").open("ab") as file:
        file.write(b"torn again")
    done = shelf.prune(keep_quarantine=False, dry_run=False)
    assert [item.skipped for item in done.items] == ["it has changed and is no longer expired"]
    kept = [path.read_bytes() for path in (Path(shelf.directory) / chat / "quarantine").glob("g*[0-9a-f]")]
    assert b"torn again" in kept
    assert of(shelf.prune(keep_quarantine=False, dry_run=False).pruned) == [("quarantine", chat, None)]


def test_one_that_is_open_by_a_writer_is_left_unchanged_and_named(shelf: ConversationLibrary, clock: Clock) -> None:
    """Whether it would be removed whole or in parts; a reader is no obstacle."""
    chat, other = make_at(shelf, clock, 40, "a"), make_at(shelf, clock, 40, "b")
    replaced(shelf, chat, 1)
    with shelf.open(chat) as writer, shelf.open(other, read_only=True):
        before = tree(Path(shelf.directory) / chat)
        for rule in ({"older_than": timedelta(0)}, {"keep_generations": 0}):
            clock.now += 1
            done = shelf.prune(**rule, labels=None, dry_run=False)
            (left,) = done.skipped
            assert left.id == chat
            assert "is writing to it" in (left.skipped or "")
            assert tree(Path(shelf.directory) / chat) == before
        writer.append_message(user_message("still here"))
    assert [summary.id for summary in shelf.list()] == [chat]


def test_what_is_damaged_or_shared_with_somebody_is_left_unchanged_and_named(
    shelf: ConversationLibrary, clock: Clock
) -> None:
    """delete() is for these, because prune() does not show them one by one. The others are removed."""
    chats = [make_at(shelf, clock, 40, "a") for _ in range(3)]
    (Path(shelf.directory) / chats[0] / "notes.txt").write_text("mine")
    (Path(shelf.directory) / chats[1] / "metadata.json").write_text("{}")
    due = shelf.prune(older_than=timedelta(days=1))
    done = shelf.prune(older_than=timedelta(days=1), dry_run=False)
    assert done.items == due.items
    assert of(done.pruned) == [("conversation", chats[2], None)]
    reasons = {item.id: item.skipped or "" for item in done.skipped}
    assert "'notes.txt'" in reasons[chats[0]]
    assert "damaged" in reasons[chats[1]]
    assert {summary.id for summary in shelf.list()} == set(chats[:2])


def test_a_conversation_goes_into_a_snapshot_first(shelf: ConversationLibrary, clock: Clock, tmp_path: Path) -> None:
    """It can be continued from there, with its labels; the item says which snapshot it is."""
    chat = make_at(shelf, clock, 40, "a", "b", provider="claude", labels={"title": "Old"})
    kept = FileStore(tmp_path / "kept")
    assert shelf.prune(older_than=timedelta(days=1), snapshots=kept).items[0].snapshot is None
    assert kept.list() == []
    (item,) = shelf.prune(older_than=timedelta(days=1), snapshots=kept, dry_run=False).pruned
    assert item.snapshot is not None
    snapshot = kept.load(item.snapshot)
    assert snapshot.metadata["transcript_store.conversation"] == chat
    with ConversationStore(tmp_path / "again") as again:
        restore_snapshot(snapshot, again)
        assert texts(again) == ["a", "b"]
        assert again.get_metadata().labels == {"title": "Old"}


def test_what_cannot_be_looked_at_is_named(shelf: ConversationLibrary, clock: Clock) -> None:
    """Found by refusing every system call: a folder that could not be opened was passed over, and nothing said so."""
    chat = make_at(shelf, clock, 40, "a", labels={"project": "x"})
    folder = Path(shelf.directory) / chat
    (folder / "transcript.jsonl").unlink()
    (folder / "metadata.json").write_bytes(b"\xff")
    for rule in ({"older_than": timedelta(days=1)}, {"keep_generations": 0, "labels": {"project": "y"}}):
        (item,) = shelf.prune(**rule, dry_run=False).skipped
        assert item.id == chat
        assert "whether it is expired is unknown" in (item.skipped or "")


@pytest.mark.parametrize("place", ["lock", "archive", "quarantine"])
def test_a_foreign_file_does_not_stop_a_prune(
    shelf: ConversationLibrary, clock: Clock, tmp_path: Path, place: str
) -> None:
    """Found by planting symbolic links: one of them, and each prune of that library ended with an error, half-way and for good."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "transcript-000000.jsonl").write_text("mine")
    chats = sorted(make_at(shelf, clock, 40 + n, "a") for n in range(5))
    planted = Path(shelf.directory) / chats[2] / place
    planted.unlink(missing_ok=True)
    planted.symlink_to(elsewhere)
    done = shelf.prune(older_than=timedelta(days=1), dry_run=False)
    assert [item.id for item in done.skipped] == [chats[2]]
    assert "a symbolic link is in the place of" in (done.skipped[0].skipped or "")
    assert len(done.pruned) == 4
    assert (elsewhere / "transcript-000000.jsonl").read_text() == "mine"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("call", ["rename", "open_directory"])
def test_a_folder_that_is_closed_to_this_user_stops_no_other(
    shelf: ConversationLibrary, clock: Clock, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """The prune ended at the first one; those after it stayed, and nothing named them. Refused is the delete, or a look into archive/."""
    chats = sorted(make_at(shelf, clock, 40, "a") for _ in range(4))
    clock.now = Clock.NOON - 40 * DAY
    replaced(shelf, chats[2], 1)
    clock.now = Clock.NOON
    real = getattr(clock, call)

    def refuse(what: str, *arguments: Any) -> Any:
        is_it = arguments[0] == chats[2] if call == "rename" else what == "archive"
        if is_it:
            raise OSError(number, "Permission denied")
        return real(what, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(clock, call, refuse)
        if call == "open_directory":
            (due,) = shelf.prune(older_than=timedelta(days=1)).skipped
            assert (due.id, due.skipped) == (chats[2], "it cannot be read: Permission denied")
        done = shelf.prune(older_than=timedelta(days=1), dry_run=False)
    assert [item.id for item in done.skipped] == [chats[2]]
    assert "ermi" in (done.skipped[0].skipped or "")
    assert len(done.pruned) == 3
    assert [summary.id for summary in shelf.list()] == [chats[2]]


class Refusing(MemorySnapshotStore):
    """A store of snapshots that keeps what it is given, and says that it could not."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def save(self, snapshot: Snapshot) -> None:
        super().save(snapshot)
        raise self._error


NOT_KEPT = [
    OSError(errno.ENOSPC, "full"),
    RuntimeError("no network"),
    ConversationLockedError(path="/kept", reason="process 1 is writing to it"),
    ConversationNotFoundError(path="/kept", reason="it is not mounted"),
    WrongKeyError(path="/kept", key_id="k", reason="the vault says no"),
]


@pytest.mark.parametrize("error", NOT_KEPT, ids=lambda error: type(error).__name__)
def test_prune_keeps_a_conversation_whose_snapshot_failed(
    shelf: ConversationLibrary, clock: Clock, error: Exception
) -> None:
    """And when it can be, there is one snapshot of it and not two: its id is the transcript's head.

    What the store of snapshots raises is told as it was raised. The incident: its lock was taken for the conversation's, and a
    conversation that could not be kept was passed over as one that somebody has deleted.
    """
    make_at(shelf, clock, 40, "a")
    before = tree(Path(shelf.directory))
    refusing = Refusing(error)
    with pytest.raises(type(error)) as raised:
        shelf.prune(older_than=timedelta(days=1), snapshots=refusing, dry_run=False)
    assert raised.value is error
    assert error.__context__ is None
    before.pop(next(name for name in before if str(name).endswith("lock")), None)
    assert before.items() <= tree(Path(shelf.directory)).items()
    (kept,) = refusing.list()
    again = MemorySnapshotStore()
    again.save(refusing.load(kept.id))
    shelf.prune(older_than=timedelta(days=1), snapshots=again, dry_run=False)
    assert [one.id for one in again.list()] == [kept.id]
    assert shelf.list() == []


class Meanwhile(MemorySnapshotStore):
    """While a conversation's snapshot is saved, another process arrives."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self._happens = happens

    def save(self, snapshot: Snapshot) -> None:
        self._happens()
        super().save(snapshot)


def test_what_changed_since_it_was_listed_stays(shelf: ConversationLibrary, clock: Clock) -> None:
    """The second check is under the lock. Here the first snapshot takes so long that another process writes to the second conversation."""
    make_at(shelf, clock, 40, "a")
    second = make_at(shelf, clock, 50, "b")

    def write() -> None:
        with shelf.open(second) as store:
            store.append_message(user_message("I am back"))

    done = shelf.prune(older_than=timedelta(days=1), snapshots=Meanwhile(write), dry_run=False)
    assert [item.skipped for item in done.skipped] == ["it has changed and is no longer expired"]
    with shelf.open(second) as store:
        assert texts(store) == ["b", "I am back"]


def test_a_generation_stays_if_a_label_was_changed_since_it_was_listed(
    shelf: ConversationLibrary, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second check used the labels of the list: a conversation that had just left the project was removed all the same."""
    project = {"project": "x"}
    second, first = (make_at(shelf, clock, days_ago, "a", labels=project) for days_ago in (2, 1))
    for chat in (second, first):
        replaced(shelf, chat, 1)
    remove = ConversationStore.delete_generation

    def meanwhile(store: ConversationStore, generation: int) -> None:
        assert store.id == first
        with shelf.open(second) as other:
            other.update_metadata(labels={"project": "another"})
        remove(store, generation)

    clock.now += DAY
    with shelf.open(first) as store:
        store.append_message(user_message("the newest is looked at first"))
    monkeypatch.setattr(ConversationStore, "delete_generation", meanwhile)
    done = shelf.prune(keep_generations=0, labels=project, dry_run=False)
    assert [(item.id, item.skipped) for item in done.skipped] == [(second, "it has changed and is no longer expired")]
    assert [generations(shelf, chat) for chat in (first, second)] == [[1], [0, 1]]


def test_no_writer_comes_between_the_snapshot_and_the_end(shelf: ConversationLibrary, clock: Clock) -> None:
    """The lock is held from the look to the delete: what the snapshot has is all there was."""
    chat = make_at(shelf, clock, 40, "a")
    met: list[str] = []

    def write() -> None:
        try:
            shelf.open(chat)
        except Exception as error:
            met.append(type(error).__name__)

    assert len(shelf.prune(older_than=timedelta(days=1), snapshots=Meanwhile(write), dry_run=False).pruned) == 1
    assert met == ["ConversationLockedError"]


def test_what_was_put_in_the_place_of_a_conversation_meanwhile_stays(
    shelf: ConversationLibrary, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another one in the folder of that id, of the same length to the byte: nothing of it was due."""
    second, first = (make_at(shelf, clock, days_ago, "a") for days_ago in (2, 1))
    elsewhere = ConversationLibrary(tmp_path / "elsewhere", file_system=clock)
    other = make_at(elsewhere, clock, 2, "a")
    for of_library, chat in ((shelf, second), (shelf, first), (elsewhere, other)):
        replaced(of_library, chat, 1)
    remove = ConversationStore.delete_generation

    def meanwhile(store: ConversationStore, generation: int) -> None:
        monkeypatch.setattr(ConversationStore, "delete_generation", remove)
        place = Path(shelf.directory) / second
        place.rename(tmp_path / "moved away")
        (tmp_path / "elsewhere" / other).rename(place)
        remove(store, generation)

    clock.now += DAY
    with shelf.open(first) as store:
        store.append_message(user_message("the newest is looked at first"))
    monkeypatch.setattr(ConversationStore, "delete_generation", meanwhile)
    (left,) = shelf.prune(keep_generations=0, dry_run=False).skipped
    assert (left.id, left.generation) == (second, 0)
    assert left.skipped == f"conversation {other} is in the folder that belongs to {second}"
    assert (Path(shelf.directory) / second / "archive" / "transcript-000000.jsonl").exists()


def test_what_somebody_else_deleted_meanwhile_is_not_ours_to_count(shelf: ConversationLibrary, clock: Clock) -> None:
    make_at(shelf, clock, 40, "a")
    second = make_at(shelf, clock, 50, "b")
    snapshots = Meanwhile(lambda: shelf.delete(second))
    done = shelf.prune(older_than=timedelta(days=1), snapshots=snapshots, dry_run=False)
    assert len(done.items) == 1


def test_tasks_have_it_too(tmp_path: Path) -> None:
    chat = make(ConversationLibrary(tmp_path), "a")

    async def prune() -> Pruning:
        return await AsyncConversationLibrary(tmp_path).prune(older_than=timedelta(0), dry_run=False)

    assert of(asyncio.run(prune()).pruned) == [("conversation", chat, None)]
    assert ConversationLibrary(tmp_path).list() == []


def test_one_that_takes_turns_is_open_only_during_a_call(shelf: ConversationLibrary, clock: Clock) -> None:
    """It is deleted between two calls; a process that has it open gets an error, and nothing is created in its place."""
    chat = make_at(shelf, clock, 9, "a")
    with shelf.open(chat, hold_lock=False) as store:
        with store.frozen():
            assert [item.id for item in shelf.prune(older_than=timedelta(days=8), dry_run=False).skipped] == [chat]
        assert of(shelf.prune(older_than=timedelta(days=8), dry_run=False).pruned) == [("conversation", chat, None)]
        with pytest.raises(ConversationNotFoundError):
            store.append_message({"n": 2})
    assert shelf.list() == []


def test_conversations_removed_by_another_prune_are_not_skipped() -> None:
    """Two prunes at once: what the first one took, the second one named as left alone: "there is no such conversation"."""
    for number in range(1000):
        disk = SimulatedFileSystem()
        with ConversationLibrary("/library", file_system=disk).create(messages=[user_message("old")]) as store:
            chat = store.id
        disk.clock_us += DAY
        calls = 0

        def take(_: FileSystemCall, disk: SimulatedFileSystem = disk, chat: str = chat, number: int = number) -> None:
            nonlocal calls
            calls += 1
            if calls == number + 1:
                with suppress(ConversationLockedError, ConversationNotFoundError):
                    ConversationLibrary("/library", file_system=disk.another_process()).delete(chat)

        disk.on_call = take
        done = ConversationLibrary("/library", file_system=disk).prune(older_than=timedelta(hours=1), dry_run=False)
        assert done.skipped == ()
        if calls <= number:
            break
    assert number > 10
