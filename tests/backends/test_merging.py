"""Libraries that went on apart are merged: nothing is lost, nothing is there twice, whatever comes first.

A laptop and two servers had the same conversations, and each went on with them. Whoever copied one over the other lost a week of one;
whoever kept both folders had most messages twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.backends.shipped import FOLDER, ID, KEY, LIBRARY, files_in, library_on, shipped
from tests.crash import enumeration, model
from tests.crash.operations import Case
from tests.kit.machines import machine_of
from tests.kit.messages import user_message
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.backends import Restored, backup_library, restore_library
from transcript_store.backends import _merging as merging
from transcript_store.backends._merging import merge_history
from transcript_store.backends._restoring import standing_in
from transcript_store.testing import FileSystemCall, SimulatedBackend, SimulatedFileSystem, SimulatedStop

Disk = SimulatedFileSystem


class History(NamedTuple):
    """What was said in each generation of a conversation: the oracle knows no hashes."""

    generations: tuple[tuple[str, ...], ...]

    def is_beginning_of(self, other: History) -> bool:
        *earlier, last = self.generations
        number = len(earlier)
        return (
            other.generations[:number] == tuple(earlier)
            and other.generations[number : number + 1] != ()
            and (other.generations[number][: len(last)] == last)
        )


def histories(disk: Disk, key: bytes | None = None) -> list[History]:
    """Every conversation of the library, as what was said in it; each is intact."""
    library, found = library_on(disk, key), []
    for summary in library.list():
        assert summary.id is not None
        assert library.verify(summary.id).findings == ()
        with library.open(summary.id, read_only=True) as conversation:
            numbers = [each.number for each in conversation.generations()]
            texts = (
                tuple(
                    str(record.message["content"])
                    for record in conversation.iter_records(generation=number)
                    if record.message
                )
                for number in numbers
            )
            found.append(History(tuple(texts)))
    return sorted(found)


def last_ones(found: list[History]) -> list[History]:
    """Those that are no beginning of another, each once."""
    several = set(found)
    return sorted(one for one in several if not any(one != each and one.is_beginning_of(each) for each in several))


def tree(disk: Disk) -> dict[str, bytes | None]:
    return {path: data for path, data in disk.tree().items() if not path.endswith("/lock")}


def bring(source: Disk, into: Disk) -> list[Restored]:
    """Merge a library on one disk into that on another, copies behind what they are copies of."""
    names = [summary.id or "" for summary in library_on(source).list()]
    copies = [name for name in names if name != ID]
    reports = []
    for name in [*(name for name in names if name == ID), *copies]:
        with standing_in(source, f"{LIBRARY}/{name}") as standing:
            reports.append(merge_history(into, LIBRARY, standing))
    return reports


Steps = list[str]
STEPS = st.lists(st.sampled_from(["append", "batch", "replace", "label"]), max_size=4)


def go_on(disk: Disk, who: str, steps: Steps) -> None:
    for number, step in enumerate(steps):
        with library_on(disk).open(ID) as conversation:
            if step == "append":
                conversation.append_message(user_message(f"{who} {number}"))
            elif step == "batch":
                conversation.append_messages([user_message(f"{who} {number} a"), user_message(f"{who} {number} b")])
            elif step == "replace":
                conversation.replace_transcript([user_message(f"{who} sums up {number}")])
            else:
                conversation.update_metadata(labels={f"of {who} {number}": "x"})


def begun() -> Disk:
    disk = Disk()
    with library_on(disk).create(
        id=ID, provider="claude", messages=[user_message("a"), user_message("b")], labels={"title": "t"}
    ):
        pass
    return disk.copy()


DRAWN = {"together": STEPS, "first": STEPS, "second": STEPS, "third": STEPS, "shares": st.booleans()}
SLOW = [HealthCheck.too_slow]


@settings(max_examples=2, deadline=None, suppress_health_check=SLOW)
@given(**DRAWN)
@example(together=[], first=["append"], second=["append"], third=["append"], shares=False)
@example(together=["append"], first=["replace"], second=["append"], third=["append", "replace"], shares=True)
@example(together=[], first=["append", "replace"], second=["label"], third=["replace"], shares=False)
def test_three_that_continued_apart_come_to_the_same_in_any_order(
    together: Steps, first: Steps, second: Steps, third: Steps, shares: bool
) -> None:
    """M1 to M4, on a few examples."""
    come_to_the_same(together, first, second, third, shares)


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(**DRAWN)
def test_three_that_continued_apart_at_length(
    together: Steps, first: Steps, second: Steps, third: Steps, shares: bool
) -> None:
    """M1 to M4, on many."""
    come_to_the_same(together, first, second, third, shares)


def come_to_the_same(together: Steps, first: Steps, second: Steps, third: Steps, shares: bool) -> None:
    """M1 to M4: the same histories in each order, none lost, none twice; each library's own stays under its id; twice is once."""
    base = begun()
    go_on(base, "all", together)
    base = base.copy()
    apart: list[Disk] = []
    for who, steps in (("one", first), ("two", second), ("three", third)):
        disk = apart[-1].copy() if shares and apart else base.copy()
        disk.random_bytes(len(apart) + 1)
        disk.clock_us += 1_000_003 * (len(apart) + 1)
        go_on(disk, who, steps)
        apart.append(disk.copy())
    due = last_ones([history for disk in apart for history in histories(disk)])
    labels = {name for disk in apart for name in library_on(disk).list()[0].labels or {}}
    merged = []
    for order in permutations(range(3)):
        disk = apart[order[0]].copy()
        own = histories(disk)
        for number in order[1:]:
            bring(apart[number], disk)
        assert histories(disk) == due
        with library_on(disk).open(ID, read_only=True) as conversation:
            kept = [record.message for record in conversation.iter_records()]
            assert own[0].is_beginning_of(next(one for one in due if own[0].is_beginning_of(one)))
            assert conversation.get_metadata().labels["title"] == "t"
            assert len(kept) >= 1
        assert {name for summary in library_on(disk).list() for name in summary.labels or {}} == labels
        before = tree(disk)
        for number in (*order, *order):
            assert not any(report.is_changed for report in bring(apart[number], disk))
        assert tree(disk) == before
        merged.append(disk)
    for disk in merged[1:]:
        bring(merged[0], disk)
        assert histories(disk) == due


def apart() -> tuple[Disk, Disk]:
    """Two disks with one conversation that diverged."""
    here = begun()
    there = here.copy()
    go_on(here, "here", ["append"])
    go_on(there, "there", ["append", "append"])
    return here.copy(), there.copy()


def test_a_diverged_copy_names_where_it_diverged() -> None:
    """The copy says of which conversation it is one, up to which record and head; the other is to the byte as it was."""
    here, there = apart()
    before = files_in(here, FOLDER)
    (report,) = bring(there, here)
    assert (report.copy_of, report.is_new, report.added_records) == (ID, True, 4)
    assert files_in(here, FOLDER) == before
    with library_on(here).open(report.id) as copy, library_on(here).open(ID) as own:
        origin = copy.get_metadata().forked_from or {}
        record = own.get_records()[1]
        assert (origin["conversation"], origin["seq"], origin["generation"]) == (ID, 2, 0)
        assert record.seq == 2
        assert origin["head"] in (files_in(here, FOLDER)["transcript.jsonl"].split(b"\n")[2]).decode()
        copy.append_message(user_message("and on"))
    go_on(there, "there", ["append"])
    assert [each.id for each in bring(there, here)] != [report.id]  # the copy went on by itself: a third one
    assert len(histories(here)) == 3


def test_a_copy_is_the_original_where_that_continued_like_it() -> None:
    """M3: brought home, what had become a copy elsewhere makes the original grow, and is no second conversation."""
    here, there = apart()
    (report,) = bring(there, here)
    with library_on(here).open(report.id) as copy:
        copy.append_message(user_message("said in the copy"))
    home = there.copy()
    reports = bring(here, home)
    assert [one.added_records for one in reports] == [3, 1]
    assert len(histories(home)) == 2
    with library_on(home).open(ID, read_only=True) as conversation:
        assert conversation.get_messages()[-1] == user_message("said in the copy")


def test_a_library_alone_comes_back_to_the_byte() -> None:
    """A copy stays a copy, and the original the original, whichever is read first."""
    here, there = apart()
    bring(there, here)
    new = Disk()
    for each in (ID, next(summary.id for summary in library_on(here).list() if summary.id != ID)):
        with standing_in(here, f"{LIBRARY}/{each}") as standing:
            merge_history(new, LIBRARY, standing)
    assert tree(new) == tree(here)


def test_metadata_of_both_is_kept() -> None:
    """Labels are joined; of two titles the later counts; a folder that has all of it is not written."""
    here = begun()
    there = here.copy()
    with library_on(here).open(ID) as conversation:
        conversation.update_metadata(labels={"title": "earlier", "of here": "1"})
    for _ in range(100):
        there.now_us()
    with library_on(there).open(ID) as conversation:
        conversation.update_metadata(labels={"title": "later", "of there": "2"}, model="m")
    for first, second in ((here.copy(), there), (there.copy(), here)):
        bring(second, first)
        with library_on(first).open(ID, read_only=True) as conversation:
            metadata = conversation.get_metadata()
            assert metadata.labels == {"title": "later", "of here": "1", "of there": "2"}
            assert metadata.model == "m"


def test_a_sealed_one_grows_and_parts_without_its_key() -> None:
    """It is not opened: what parted keeps its id in a folder of another name, which grows, and is there once."""
    here = Disk()
    with library_on(here, KEY).create(id=ID, messages=[user_message("a")]):
        pass
    there = here.copy()
    with library_on(there, KEY).open(ID) as conversation:
        conversation.append_message(user_message("b"))
    assert [report.added_records for report in bring(there, here)] == [1]
    for disk, text in ((here, "c"), (there, "d")):
        with library_on(disk, KEY).open(ID) as conversation:
            conversation.append_message(user_message(text))
    before = files_in(here, FOLDER)
    (report,) = bring(there, here)
    assert (report.id, report.copy_of, report.added_records) == (ID, ID, 3)
    assert report.directory.startswith(f"{FOLDER}-")
    assert files_in(here, FOLDER) == before
    assert files_in(here, report.directory) == files_in(there, FOLDER)
    assert not any(each.is_changed for each in bring(there, here))
    with library_on(there, KEY).open(ID) as conversation:
        conversation.append_message(user_message("e"))
    (again,) = bring(there, here)
    assert (again.directory, again.added_records) == (report.directory, 1)
    with ConversationStore(report.directory, encryption_key=KEY, file_system=here) as conversation:
        conversation.load()
        assert [message["content"] for message in conversation.get_messages()] == ["a", "b", "d", "e"]


def test_a_backup_continues_when_a_conversation_was_sealed_meanwhile() -> None:
    """Its plain generations are gone, so a match cannot be checked: the backup keeps its copy, and the sealed one is
    added and updated beside it.
    """
    disk = begun()
    [*backup_library(LIBRARY, "/copy", file_system=disk)]
    go_on(disk, "x", ["append"])
    with ConversationStore(FOLDER, encryption_key=KEY, file_system=disk) as conversation:
        conversation.seal()
    for number in range(2):
        with library_on(disk, KEY).open(ID) as conversation:
            conversation.append_message(user_message(f"sealed {number}"))
        (report,) = backup_library(LIBRARY, "/copy", file_system=disk)
        assert isinstance(report, Restored)
        assert report.is_changed
        assert files_in(disk, report.directory)["transcript.jsonl"] == files_in(disk, FOLDER)["transcript.jsonl"]
    assert len([path for path in disk.tree() if path.startswith("/copy/") and path.endswith("/transcript.jsonl")]) == 2


def test_a_generation_that_was_deleted_is_not_brought_back() -> None:
    """Secrets were taken out and the generation with them deleted: an earlier backup changes nothing, and an older one is refused."""
    disk = begun()
    oldest = disk.copy()
    go_on(disk, "x", ["append"])
    old = disk.copy()
    with library_on(disk).open(ID) as conversation:
        conversation.replace_transcript([user_message("redacted")])
        conversation.delete_generation(0)
    before = tree(disk)
    assert not any(report.is_changed for report in bring(old, disk))
    with pytest.raises(Exception, match="generation 0 was deleted here"):
        bring(oldest, disk)
    assert tree(disk) == before


def test_a_copy_is_the_same_whatever_the_library_had_when_it_came() -> None:
    """What comes lost its first generation; the library had that alone, and later another second one: there is one copy, not two."""
    here = begun()
    there = here.copy()
    there.clock_us += 1_000_000
    with library_on(there).open(ID) as conversation:
        conversation.append_message(user_message("of there"))
        conversation.replace_transcript([user_message("sums up there")])
        conversation.delete_generation(0)
    bring(there, here)
    go_on(here, "here", ["replace"])
    assert not any(report.is_changed for report in bring(there, here))
    assert len(histories(here)) == 2


@pytest.mark.parametrize("source", ["folder", "backend"])
def test_the_library_wide_call_merges_from_anywhere(source: str) -> None:
    """From a backend and from a folder alike: grows, copies, reports."""
    here, there = apart()
    backend = SimulatedBackend()
    shipped(there, backend)
    target = here.copy()
    if source == "backend":
        (report,) = restore_library(backend, LIBRARY, file_system=target, waits_seconds=())
        assert isinstance(report, Restored)
        assert report.copy_of == ID
        assert len(histories(target)) == 2
    else:
        reports = [*backup_library(LIBRARY, "/copy", file_system=target)]
        assert [report.is_new for report in reports if isinstance(report, Restored)] == [True]
        assert files_in(target, f"/copy/{ID}") == files_in(target, FOLDER)


# ---- cut off ---------------------------------------------------------------------------------------------------------------


class Merging(Case):
    """The folder exists, and is not open."""

    starts_loaded = False


def behind() -> Disk:
    disk = Disk(page_bytes=256, sector_bytes=64)
    with ConversationLibrary(model.LIBRARY, file_system=disk).create(
        id=model.ID, provider="claude", messages=[user_message("first"), user_message("second")]
    ):
        pass
    return disk.copy()


def _ahead(change: Callable[[ConversationStore], object]) -> Disk:
    disk = behind()
    disk.random_bytes(1)
    with ConversationLibrary(model.LIBRARY, file_system=disk).open(model.ID) as conversation:
        change(conversation)
    return disk


def _merge(conversation: ConversationStore, source: Disk) -> None:
    with standing_in(source, model.DIRECTORY) as standing:
        merge_history(machine_of(conversation), model.LIBRARY, standing)


def _more(conversation: ConversationStore) -> None:
    _merge(
        conversation,
        _ahead(
            lambda there: there.append_messages([user_message("x" * 300), user_message("y" * 300), user_message("z")])
        ),
    )


def _another_generation(conversation: ConversationStore) -> None:
    _merge(conversation, _ahead(lambda there: there.replace_transcript([user_message("shorter")])))


def parted() -> Disk:
    disk = behind()
    with ConversationLibrary(model.LIBRARY, file_system=disk).open(model.ID) as conversation:
        conversation.append_message(user_message("of here"))
    return disk.copy()


@pytest.mark.parametrize(
    ("base", "step"),
    [
        pytest.param(behind, _more, marks=pytest.mark.long),
        pytest.param(behind, _another_generation, marks=pytest.mark.long),
        pytest.param(parted, _more, marks=pytest.mark.long),
    ],
)
def test_a_merge_that_is_cut_off_left_a_state_of_before_or_after(
    base: Callable[[], Disk], step: Callable[[ConversationStore], None]
) -> None:
    """P1, P2, P6, P7: a power cut before every sync, SIGKILL before every call, an error of every call; and it can be run again."""
    case = Merging(base, (step,))
    assert enumeration.power_cuts(case, limit=4) > 5
    assert enumeration.kills(case) > 20
    assert enumeration.errors(case, every=11) > 10


def cut_at_every_call(every: int = 7) -> Iterator[Disk]:
    """Two that parted, merged; killed before each n-th call, and the power cut then; the next run makes it whole."""
    here, there = apart()
    number = 0
    while True:
        disk, number = here.copy(), number + every
        calls = iter(range(1, number))

        def on_call(_: FileSystemCall, calls: Iterator[int] = calls) -> None:
            if next(calls, None) is None:
                raise SimulatedStop

        disk.on_call = on_call
        try:
            bring(there, disk)
            is_killed = False
        except SimulatedStop:
            is_killed = True
        yield from (disk.kill_process(), disk.kill_process().worst_power_failure())
        if not is_killed:
            return


def judge(left: Disk) -> None:
    here, there = apart()
    due = last_ones([*histories(here), *histories(there)])
    assert set(histories(left)) <= set(due)
    bring(there, left)
    assert histories(left) == due
    assert not any(report.is_changed for report in bring(there, left))


def test_a_merge_that_was_killed_anywhere_is_continued() -> None:
    """What parted is there whole or not at all, and once."""
    count = 0
    for left in cut_at_every_call():
        judge(left)
        count += 1
    assert count > 10


# ---- seeded bugs -----------------------------------------------------------------------------------------------------------


def test_copies_of_any_name_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """M2 left out: a copy whose id is drawn is there once for each run."""
    ids = iter(f"11111111-0000-4000-8000-{number:012}" for number in range(1000))
    monkeypatch.setattr(merging, "copy_id", lambda original, word: next(ids))
    with pytest.raises((AssertionError, StopIteration)):
        for left in cut_at_every_call(40):
            judge(left)


def test_a_copy_that_is_not_known_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """M3 left out: at home the history is there twice."""
    monkeypatch.setattr(merging, "is_copy", lambda incoming: False)
    with pytest.raises(AssertionError):
        test_a_copy_is_the_original_where_that_continued_like_it()


def test_a_merge_that_asks_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5 left out: what a writer appended between the look and the lock is gone."""
    assert keeps_what_came_between(begun())
    real, count = merging.compare, iter(range(1000))

    def asked_once(there: object, incoming: object, path: str) -> merging.Comparison:
        found = real(there, incoming, path)  # type: ignore[arg-type]
        return found if next(count) == 0 else merging.Comparison(merging.Way.BEHIND)

    monkeypatch.setattr(merging, "compare", asked_once)
    assert not keeps_what_came_between(begun())


def keeps_what_came_between(disk: Disk) -> bool:
    """A writer opens the folder when it was found to be behind, appends, and closes it."""
    there = disk.copy()
    there.random_bytes(1)
    go_on(there, "there", ["append", "append"])

    def comes(call: FileSystemCall) -> None:
        if call.name == "try_lock" and call.path.startswith(FOLDER):
            disk.on_call = None
            go_on(disk.another_process(), "between", ["append"])

    disk.on_call = comes
    bring(there, disk)
    return any("between 0" in texts for history in histories(disk) for texts in history.generations)


def copy_is_no_longer_than_the_source() -> bool:
    """A writer does not sync; a backup is made beside it, and again with what came since; then the power goes."""
    disk = Disk()
    writer = library_on(disk).create(id=ID, durability="process-crash", messages=[user_message("a")])
    for text in ("b", "c"):
        writer.append_message(user_message(text))
        (report,) = backup_library(LIBRARY, "/copy", file_system=disk.another_process())
        assert isinstance(report, Restored)
    left = disk.worst_power_failure()
    counts = []
    for library in (LIBRARY, "/copy"):
        with ConversationLibrary(library, file_system=left).open(ID, read_only=True) as conversation:
            counts.append(conversation.record_count)
    assert counts[1] == 3
    return counts[0] >= counts[1]


def test_a_backup_has_nothing_that_a_power_cut_takes_from_the_source() -> None:
    """S4: what is copied is synced where it comes from."""
    assert copy_is_no_longer_than_the_source()


def test_a_copy_of_what_is_not_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4 left out: the backup has messages that the conversation lost, and the two part."""
    monkeypatch.setattr(merging, "on_medium", lambda incoming: incoming._replace(synced=None))
    assert not copy_is_no_longer_than_the_source()
