"""A folder that is behind its backend continues from there; a folder with its own continuation is not touched.

A laptop was shut for a week, and its conversation went on elsewhere. The copy that was fetched on Monday could not be fetched again on Friday:
the folder was there. So it was moved away by hand, and once it was the one with the answer that nobody had shipped.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backends.shipped import FOLDER, ID, KEY, WAITS, begun, every_moment, files_in, library_on, shipped, tried
from tests.crash import enumeration, model
from tests.crash.operations import Case
from tests.kit.cases import few
from tests.kit.machines import machine_of
from tests.kit.messages import user_message
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationStore,
    Hint,
    StorageError,
    verify,
)
from transcript_store._conversation import archive
from transcript_store.backends import restore
from transcript_store.backends._restoring import RemoteState
from transcript_store.testing import (
    FileSystemCall,
    SimulatedBackend,
    SimulatedFileSystem,
    SimulatedObjectStore,
    SimulatedStop,
)

KEYS = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
Disk = SimulatedFileSystem


def brought_up(disk: Disk, backend: SimulatedBackend, **options: bool) -> int:
    made = restore(backend, ID, FOLDER, file_system=disk, waits_seconds=WAITS, **options)
    assert not made.is_new
    return made.added_records


# ---- to the byte -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new_backend", [SimulatedBackend, SimulatedObjectStore])
@KEYS
def test_a_folder_of_any_moment_continues_to_the_byte(new_backend: type[SimulatedBackend], key: bytes | None) -> None:
    """S5, S6, P1: every file is what a new folder has, also behind a power cut; and a second run finds nothing to do."""
    backend = new_backend()
    *moments, last = every_moment(backend, key)
    whole = files_in(last, FOLDER)
    counts = []
    for disk in moments:
        counts.append(brought_up(disk, backend, with_key=True))
        assert files_in(disk, FOLDER) == whole
        assert brought_up(disk, backend) == 0
        assert files_in(disk.worst_power_failure(), FOLDER) == whole
    assert counts == [3 + 4 + 4, 2 + 4 + 4, 4 + 4, 4 + 4, 1 + 4, 4, 3, 2, 1]
    with library_on(last, key).open(ID) as conversation:
        conversation.append_message(user_message("here"))
    assert shipped(last, backend).sent_records == 1


def test_the_folder_that_was_shipped_continues_from_its_copy() -> None:
    """Shipped, continued on the backend, and restored into the original folder."""
    disk, backend = Disk(), SimulatedBackend()
    begun(disk).close()
    shipped(disk, backend)
    with ConversationLibrary(backend, file_system=Disk(seed=7)).open(ID, take_over=True) as there:
        there.append_message(user_message("there"))
        there.update_metadata(labels={"title": "given there"})
    assert brought_up(disk, backend) == 1
    with library_on(disk).open(ID) as conversation:
        assert conversation.get_messages()[-1] == user_message("there")
        assert conversation.get_metadata().labels == {"title": "given there"}


def test_metadata_alone_may_be_behind() -> None:
    """No record is new, and the title is."""
    disk, backend = Disk(), SimulatedBackend()
    begun(disk).close()
    shipped(disk, backend)
    behind = disk.copy()
    with library_on(disk).open(ID) as conversation:
        conversation.update_metadata(labels={"title": "another"})
    shipped(disk, backend)
    assert brought_up(behind, backend) == 0
    assert files_in(behind, FOLDER) == files_in(disk, FOLDER)


def test_a_torn_tail_is_kept_and_the_folder_continues() -> None:
    """The end of a line that a crash cut off goes to quarantine, as by any load."""
    backend = SimulatedBackend()
    behind, *_, last = every_moment(backend, None)
    path = f"{FOLDER}/transcript.jsonl"
    behind.write_file(path, (behind.tree()[path] or b"") + b'{"seq":3,"at":"20')
    brought_up(behind, backend)
    assert files_in(behind, FOLDER) == files_in(last, FOLDER)
    assert any(name.startswith("quarantine/") for name in files_in(behind, FOLDER, quarantine=True))


def test_a_key_that_is_there_stays() -> None:
    """A folder whose key was wrapped again does not get the earlier wrapping back."""
    backend = SimulatedBackend()
    behind, *_ = every_moment(backend, KEY)
    new_key = bytes(range(32, 64))
    rotated = ConversationLibrary("/library", file_system=behind, encryption_key=new_key, retired_keys=[KEY])
    rotated.rotate_key()
    wrapped = files_in(behind, FOLDER)["key.json"]
    assert brought_up(behind, backend, with_key=True) == 11
    assert files_in(behind, FOLDER)["key.json"] == wrapped
    with library_on(behind, new_key).open(ID) as conversation:
        assert conversation.get_messages()[-1] == user_message("last")


def test_a_folder_that_was_plain_gets_the_key_of_what_was_sealed_since() -> None:
    """It gets sealed generations, which need the key beside them."""
    disk, backend = Disk(), SimulatedBackend()
    begun(disk).close()
    shipped(disk, backend)
    behind = disk.copy()
    with ConversationStore(FOLDER, encryption_key=KEY, file_system=disk) as conversation:
        conversation.seal(keep_plain=True)
        conversation.append_message(user_message("sealed"))
    shipped(disk, backend, with_key=True)
    brought_up(behind, backend, with_key=True)
    assert files_in(behind, FOLDER) == files_in(disk, FOLDER)
    with library_on(behind, KEY).open(ID) as conversation:
        assert conversation.get_messages()[-1] == user_message("sealed")


# ---- left alone ------------------------------------------------------------------------------------------------------------


def appended(disk: Disk) -> None:
    with library_on(disk).open(ID) as conversation:
        conversation.append_message(user_message("said here alone"))


def titled(disk: Disk) -> None:
    with library_on(disk).open(ID) as conversation:
        conversation.update_metadata(labels={"title": "given here alone"})


def replaced(disk: Disk) -> None:
    with library_on(disk).open(ID) as conversation:
        conversation.replace_transcript([user_message("a summary of here alone")])


def damaged(disk: Disk) -> None:
    path = f"{FOLDER}/transcript.jsonl"
    disk.write_file(path, (disk.tree()[path] or b"").replace(b"first", b"fearst"))


def title_given_back(disk: Disk) -> None:
    """The backend's earlier title, set again in the folder after another one: a change, although it equals an earlier state."""
    for title in ("B", "A ship"):
        with library_on(disk).open(ID) as conversation:
            conversation.update_metadata(labels={"title": title})


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("moment", "part"),
    [*((moment, part) for moment in (0, 3, 4) for part in (appended, titled, replaced)), (0, damaged)],
)
def test_a_folder_that_continued_by_itself_is_left_unchanged(moment: int, part: Callable[[Disk], None]) -> None:
    """S5: both heads are named, and no byte of it is changed."""
    backend = SimulatedBackend()
    moments = every_moment(backend, None)
    disk = moments[moment]
    part(disk)
    before = files_in(disk, FOLDER, quarantine=True)
    with pytest.raises(ConversationExistsError) as told:
        brought_up(disk, backend)
    assert files_in(disk, FOLDER, quarantine=True) == before
    if part is not damaged:
        theirs, ours = moments[-1], disk
        for each in (theirs, ours):
            with library_on(each).open(ID, read_only=True) as conversation:
                assert conversation.head in str(told.value)


def test_a_title_given_back_is_a_change() -> None:
    """S5: the backend once had the folder's metadata, but the folder's is newer than anything there."""
    disk, backend = Disk(), SimulatedBackend()
    begun(disk).close()
    shipped(disk, backend)
    with ConversationLibrary(backend, file_system=Disk(seed=7)).open(ID, take_over=True) as there:
        there.update_metadata(labels={"title": "B"})
    for _ in range(50):
        disk.now_us()
    title_given_back(disk)
    before = files_in(disk, FOLDER)
    assert brought_up(disk, backend) == 0
    assert files_in(disk, FOLDER) == before


def test_a_folder_with_a_writer_is_left_unchanged() -> None:
    """An active writer is not disturbed and continues; a folder that lacks nothing is not reported."""
    backend = SimulatedBackend()
    behind, *_, last = every_moment(backend, None)
    with library_on(behind).open(ID) as conversation:
        with pytest.raises(ConversationLockedError):
            brought_up(behind.another_process(), backend)
        conversation.append_message(user_message("goes on"))
    with library_on(last).open(ID):
        assert brought_up(last.another_process(), backend) == 0


def writer_between_the_look_and_the_lock() -> Disk:
    """A writer opens the folder when it was found to be behind, appends, and closes it."""
    backend = SimulatedBackend()
    behind, *_ = every_moment(backend, None)

    def comes(call: FileSystemCall) -> None:
        if call.name == "try_lock" and call.path.startswith(FOLDER):
            behind.on_call = None
            appended(behind.another_process())

    behind.on_call = comes
    with suppress(ConversationExistsError):
        brought_up(behind, backend)
    return behind


def has_what_was_said(disk: Disk) -> bool:
    return any(b"said here alone" in data for data in files_in(disk, FOLDER, quarantine=True).values())


def test_records_written_before_the_lock_are_kept() -> None:
    """S5: it is asked again with the lock."""
    assert has_what_was_said(writer_between_the_look_and_the_lock())


def test_asking_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5 left out behind the lock: a message is gone."""
    answers = iter([False])
    real = RemoteState.why_not_from

    def asked_once(self: RemoteState, folder: object) -> str | None:
        return real(self, folder) if next(answers, True) is False else None  # type: ignore[arg-type]

    monkeypatch.setattr(RemoteState, "why_not_from", asked_once)
    assert not has_what_was_said(writer_between_the_look_and_the_lock())


# ---- cut off ---------------------------------------------------------------------------------------------------------------


class CatchingUp(Case):
    """The folder exists, and is not open."""

    starts_loaded = False


def _ahead(change: Callable[[ConversationStore], object]) -> tuple[SimulatedBackend, Disk]:
    """A backend one commit ahead of a folder."""
    backend, machine = SimulatedBackend(), Disk()
    with ConversationLibrary(backend, file_system=machine).create(
        id=model.ID, provider="claude", messages=[user_message("first"), user_message("second")]
    ) as conversation:
        conversation.replace_transcript([user_message("summary"), user_message("of the two")])
        disk = Disk(page_bytes=256, sector_bytes=64)
        restore(backend, model.ID, model.DIRECTORY, file_system=disk)
        change(conversation)
    return backend, disk


def _one_ahead() -> SimulatedBackend:
    return _ahead(
        lambda conversation: conversation.append_messages(
            [user_message("x" * 300), user_message("y" * 300), user_message("z")]
        )
    )[0]


def _a_generation_ahead() -> SimulatedBackend:
    return _ahead(lambda conversation: conversation.replace_transcript([user_message("shorter")]))[0]


def behind() -> Disk:
    return _ahead(lambda conversation: None)[1]


def _appended(conversation: ConversationStore) -> None:
    restore(_one_ahead(), model.ID, model.DIRECTORY, file_system=machine_of(conversation))


def _replaced(conversation: ConversationStore) -> None:
    restore(_a_generation_ahead(), model.ID, model.DIRECTORY, file_system=machine_of(conversation))


@pytest.mark.parametrize(
    ("step", "every"),
    [(_replaced, 5), *(pytest.param(step, 1, marks=pytest.mark.long) for step in (_replaced, _appended))],
)
def test_a_folder_that_is_cut_off_is_as_it_was_or_up_to_date(
    step: Callable[[ConversationStore], None], every: int
) -> None:
    """S6, P1, P2, P6, P7: a power cut before every sync, SIGKILL before every call, an error of every call; and it can be run again."""
    case = CatchingUp(behind, (step,))
    assert enumeration.power_cuts(case, limit=8 if every == 1 else 3) > 10
    assert enumeration.kills(case, every=every) > 20 // every
    assert enumeration.kills_then_power_cuts(case, limit=2, every=every) > 5 // every
    assert enumeration.errors(case, every=7 * every) > 20 // every


def cut_at_calls(key: bytes | None, step: int = 1) -> int:
    """Two generations behind: killed at every call, or at every ``step``-th, and the power cut then; what is there opens, and the next run makes it whole."""
    backend = SimulatedBackend()
    first, *_, last = every_moment(backend, key)
    whole, seen = files_in(last, FOLDER), set[str]()
    number = 0
    while True:
        disk, number = first.copy(), number + step
        calls = iter(range(1, number))

        def on_call(_: FileSystemCall, calls: object = calls) -> None:
            if next(calls, None) is None:  # type: ignore[call-overload]
                raise SimulatedStop

        disk.on_call = on_call
        is_killed = isinstance(
            tried(restore, backend, ID, FOLDER, file_system=disk, with_key=True, waits_seconds=WAITS), SimulatedStop
        )
        for left in (disk.kill_process(), disk.kill_process().worst_power_failure()):
            with library_on(left, key).open(ID, read_only=True) as conversation:
                seen.add(str(conversation.get_messages()))
                generations = [each.number for each in conversation.generations()]
                assert generations == [*range(generations[-1] + 1)]
            assert verify(FOLDER, file_system=left).findings == ()
            brought_up(left, backend, with_key=True)
            after = files_in(left, FOLDER)
            assert {**after, "metadata.json": b""} == {**whole, "metadata.json": b""}
            with library_on(left, key).open(ID, read_only=True) as conversation:
                assert conversation.get_metadata().labels == {"title": "A longer one"}
        if not is_killed:
            return len(seen)


@pytest.mark.parametrize(
    ("key", "step"),
    [(None, 4), pytest.param(None, 1, marks=pytest.mark.long), pytest.param(KEY, 1, marks=pytest.mark.long)],
    ids=["some", "plain", "sealed"],
)
def test_a_run_that_was_killed_anywhere_is_continued(key: bytes | None, step: int) -> None:
    """S6: each state is one that the conversation had: as it was, each generation at its end."""
    assert cut_at_calls(key, step) == 4


def test_a_generation_that_is_not_kept_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """S6 left out: what ends is not in the archive."""
    monkeypatch.setattr(archive, "archive_live", lambda folder, live: None)
    with pytest.raises(AssertionError):
        cut_at_calls(None)


# ---- at random -------------------------------------------------------------------------------------------------------------

STEPS = st.lists(st.sampled_from(["append", "batch", "replace", "metadata", "ship", "copy"]), min_size=2, max_size=16)


@settings(max_examples=few(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, is_sealed=st.booleans(), packs=st.booleans())
def test_random_histories_continue_from_any_copy(steps: list[str], is_sealed: bool, packs: bool) -> None:
    """A disk copied at any time, shipped before or not, catches up with the backend's final state."""
    key = KEY if is_sealed else None
    disk, backend = Disk(), SimulatedObjectStore() if packs else SimulatedBackend()
    begun(disk, key).close()
    copies = [disk.copy()]
    for number, step in enumerate(steps):
        if step == "ship":
            shipped(disk, backend, with_key=True)
            continue
        if step == "copy":
            copies.append(disk.copy())
            continue
        with library_on(disk, key).open(ID) as conversation:
            if step == "append":
                conversation.append_message(user_message(f"{number}"))
            elif step == "batch":
                conversation.append_messages([user_message(f"{number}")] * 3)
            elif step == "replace":
                conversation.replace_transcript([user_message(f"summary {number}")])
            else:
                conversation.update_metadata(labels={"title": f"{number}"})
    shipped(disk, backend, with_key=True)
    whole = files_in(disk, FOLDER)
    for behind in copies:
        refused = tried(brought_up, behind, backend, with_key=True)
        if refused is None:
            after = files_in(behind, FOLDER)
            assert {**after, "metadata.json": b""} == {**whole, "metadata.json": b""}
        else:  # metadata that was changed again before it was shipped never stood on the backend
            assert "its metadata was changed here" in str(refused)
            assert "metadata" in steps or is_sealed


def test_a_clock_that_is_ahead_of_the_one_that_ships_changes_nothing() -> None:
    """S5, a reported bug: an untouched folder counted as changed until the other clock had passed its last record's time."""
    disk, backend, behind = Disk(), SimulatedBackend(), Disk(seed=7)
    disk.clock_us += 3_600_000_000
    with begun(disk) as conversation:
        conversation.append_message(user_message("one"))
    disk.clock_us -= 3_600_000_000
    shipped(disk, backend)
    restore(backend, ID, FOLDER, file_system=behind)
    disk.clock_us += 3_600_000_000
    with library_on(disk).open(ID) as conversation:
        conversation.append_message(user_message("two"))
    disk.clock_us -= 3_600_000_000
    shipped(disk, backend)
    assert brought_up(behind, backend) == 1


def test_a_disk_that_is_full_on_the_way_says_what_stands_there() -> None:
    """S6, a reported bug: the error said that the old state is intact, although a later generation had replaced it."""
    backend = SimulatedBackend()
    first, *_, last = every_moment(backend, None)
    before = files_in(first, FOLDER)
    later = 0
    for number in range(1000):
        disk = first.copy()
        count = 0

        def refuse(call: FileSystemCall, number: int = number) -> None:
            nonlocal count
            if call.name in ("write", "rename", "create"):
                count += 1
                if count == number + 1:
                    raise OSError(errno.ENOSPC, "full")

        disk.on_call = refuse
        told = None
        try:
            brought_up(disk, backend)
        except StorageError as error:
            told = error
        if told is None:
            if count <= number:
                break
        else:
            is_as_before = files_in(disk, FOLDER) == before
            assert "earlier state of the conversation" in told.consequence or is_as_before
            assert told.hint is Hint.FREE_SPACE
            later += not is_as_before
        disk.on_call = None
        brought_up(disk, backend)
        assert files_in(disk, FOLDER) == files_in(last, FOLDER)
    assert later
