"""A keeper imports what programs write, once and completely, whatever fails meanwhile (N1 to N3).

The reports: sessions that retention deleted before anybody imported them, and services that ended at the first full disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.keeping.helpers import LONG_AGO, Kept, delete, expected, line, state_in, texts, write
from transcript_store import ConversationLibrary, PoisonedError, StorageError
from transcript_store.importing import import_conversations as true_import
from transcript_store.keeping import (
    AlreadyKeptError,
    PollingWatcher,
    best_watcher,
    is_kept,
    only_keeper,
    read_state,
    state_path,
)
from transcript_store.search import IndexUpdate, SearchIndex
from transcript_store.sources import discover

KEEPER = "transcript_store.keeping._keeper"


def test_the_keeper_imports_existing_and_new_sessions(home: Path, tmp_path: Path) -> None:
    """Sessions that grow, new ones, in new folders; indexed; and a second keeper finds nothing to do."""
    write(home, "a", range(1, 4))
    kept = Kept(
        tmp_path,
        lambda: [write(home, "a", [4])],
        lambda: [write(home, "b", [1, 2])],
        lambda: [write(home, "c", [1, 2], project="-new")],
    ).run()
    assert texts(kept.library) == expected(a=4, b=2, c=2)
    assert [event.facts["action"] for event in kept.said if event.kind == "imported"][:3] == [
        "created",
        "grew",
        "created",
    ]
    with SearchIndex(kept.library) as index:
        assert index.status().not_indexed == 0
    assert Kept(tmp_path).run().kinds == ["began", "caught-up"]


def test_a_reply_that_is_being_written_waits(home: Path, tmp_path: Path) -> None:
    """Imported in the middle it would come as a rewritten one."""
    source = write(home, "a", [1], old=False)
    kept = Kept(tmp_path, lambda: [write(home, "a", [2], old=False)], quiet_seconds=3600.0).run()
    assert kept.state.waiting == 1
    assert not kept.library.exists()
    os.utime(source, (LONG_AGO, LONG_AGO))
    assert texts(Kept(tmp_path, quiet_seconds=3600.0).run().library) == expected(a=2)


def test_retention_deletes_and_the_library_keeps(home: Path, tmp_path: Path) -> None:
    sources = [write(home, name, [1, 2]) for name in "abc"]
    kept = Kept(tmp_path, lambda: delete(*sources[:2]), lambda: None).run()
    assert texts(kept.library) == expected(a=2, b=2, c=2)
    assert state_in(tmp_path).programs["claude-code"].imports == 3


def test_a_project_that_is_renamed_is_the_same_sessions(home: Path, tmp_path: Path) -> None:
    source = write(home, "a", [1, 2])

    def rename() -> list[Path]:
        moved = source.parent.with_name("-home-ada-store")
        source.parent.rename(moved)
        write(home, "a", [3], project=moved.name)
        return [source, moved]

    assert texts(Kept(tmp_path, rename).run().library) == expected(a=3)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int) -> None:
    """It says so once, keeps trying, and takes all of it when there is room: nothing is lost, nothing comes twice."""
    for name in "abc":
        write(home, name, [1, 2])
    full = [True, True, True]

    def import_conversations(found, library, **options):
        for number, report in enumerate(true_import(found, library, **options)):
            if full and number == 1:
                full.pop()
                raise StorageError(errno=failure, strerror=os.strerror(failure), path="x", doing="append")
            yield report

    monkeypatch.setattr(f"{KEEPER}.import_conversations", import_conversations)
    monkeypatch.setattr(f"{KEEPER}._pause", lambda _tries: 0.0)
    kept = Kept(tmp_path, *[lambda: None] * 5).run()
    assert texts(kept.library) == expected(a=2, b=2, c=2)
    assert kept.kinds.count("problem") == 1
    assert kept.kinds.count("recovered") == 1
    assert kept.state.problem is None


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("error", [StorageError, PoisonedError])
def test_one_that_fails_does_not_stop_the_others(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[StorageError]
) -> None:
    """Its reason is in the state, it is tried again later, and then it is a failure no longer."""
    for name in "abc":
        write(home, name, [1, 2])
    fails = [True]

    def import_conversations(found, library, **options):
        for one in found:
            if fails and one.path.endswith("/b.jsonl"):
                raise StorageError(errno=errno.EIO, strerror="Input/output error", path=one.path, doing="append")
            yield from true_import([one], library, **options)

    monkeypatch.setattr(f"{KEEPER}.import_conversations", import_conversations)
    monkeypatch.setattr(f"{KEEPER}._pause", lambda _tries: 0.0)
    seen = []

    def look() -> None:
        seen.append(state_in(tmp_path).failed)
        fails.clear()

    kept = Kept(tmp_path, look, lambda: None).run()
    assert [list(failed) for failed in seen] == [[str(home / ".claude/projects/-home-ada-shop/b.jsonl")]]
    assert texts(kept.library) == expected(a=2, b=2, c=2)
    assert kept.state.failed == {}


def test_a_source_that_cannot_be_read_is_named_once(home: Path, tmp_path: Path) -> None:
    write(home, "a", [1, 2])
    strange = home / ".claude/projects/-home-ada-shop/strange.jsonl"
    strange.write_text('{"this": "is something else"}\n')
    os.utime(strange, (LONG_AGO, LONG_AGO))

    def mend() -> list[Path]:
        strange.write_bytes(line("s", 1) + line("s", 2))
        os.utime(strange, (LONG_AGO, LONG_AGO + 1))
        return [strange]

    kept = Kept(tmp_path, lambda: [strange], mend).run()
    assert kept.kinds.count("failed") == 1
    assert texts(kept.library) == expected(a=2, s=2)
    assert kept.state.failed == {}


def test_both_continued(home: Path, tmp_path: Path) -> None:
    """Somebody chatted on in the library, and the program too: neither is lost."""
    write(home, "a", [1, 2])
    kept = Kept(tmp_path).run()
    (summary,) = ConversationLibrary(kept.library).list()
    with ConversationLibrary(kept.library).open(summary.id or "") as conversation:
        conversation.append_message({"role": "user", "content": "here"})
    kept = Kept(tmp_path, lambda: [write(home, "a", [3])]).run()
    said = [
        [
            message["content"]
            for message in ConversationLibrary(kept.library).open(one.id or "", read_only=True).get_messages()
        ]
        for one in ConversationLibrary(kept.library).list()
    ]
    assert sorted(len(messages) for messages in said) == [3, 3]
    assert {str(messages[-1]) for messages in said} == {"here", "a 3"}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("wall", "steady", "kind"), [(900, 900, "stopped"), (900, 0, "stopped"), (-900, 0, "clock")])
def test_a_sleep_and_a_clock_that_jumps(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wall: float, steady: float, kind: str
) -> None:
    """It says so, looks at everything again, and takes what was written meanwhile though no watch said anything."""
    write(home, "a", [1, 2])
    clock = {"wall": 0.0, "steady": 0.0}

    class Clock:
        process_time = staticmethod(time.process_time)

        def time(self) -> float:
            return time.time() + clock["wall"]

        def monotonic(self) -> float:
            return time.monotonic() + clock["steady"]

    monkeypatch.setattr(f"{KEEPER}.time", Clock())

    def jump() -> None:
        clock.update(wall=wall, steady=steady)
        write(home, "b", [1, 2])

    kept = Kept(tmp_path, lambda: None, jump, lambda: None).run()
    assert [event.facts["cause"] for event in kept.said if event.kind == "gap"] == [kind]
    assert texts(kept.library) == expected(a=2, b=2)
    assert kept.state.last_gap["kind"] == kind


def test_a_watch_that_ends_is_replaced_by_polling(home: Path, tmp_path: Path) -> None:
    """Too many folders, a limit of the system: it says so, and goes on."""
    write(home, "a", [1, 2])
    kept = Kept(tmp_path)

    def fail(seconds: float) -> set[str]:
        raise OSError("the folders cannot be watched: no space left")

    class Ends:
        how = "polling"

        def __init__(self) -> None:
            self.known = 0

        def know(self, found) -> None:
            self.known += len(list(found))

        def wait(self, seconds: float) -> set[str]:
            raise KeyboardInterrupt

        def close(self) -> None:
            pass

    kept.watcher.wait = fail  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{KEEPER}.PollingWatcher", Ends)
        patch.setattr(f"{KEEPER}.pause", lambda _seconds: None)
        kept.run()
    assert "problem" in kept.kinds
    assert kept.state.how == "polling"


def test_it_ships_and_tries_again(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that the backend refuses are counted as behind; the import continues; later everything is stored."""
    shipping = pytest.importorskip("transcript_store.backends", reason="the package without its backends")
    from transcript_store.testing import SimulatedBackend  # which goes with them

    monkeypatch.setattr(f"{KEEPER}._pause", lambda _tries: 0.0)
    write(home, "a", [1, 2])
    place, library = SimulatedBackend(), tmp_path / "library"
    library.mkdir()
    shipper = shipping.LibraryShipper(library, place)
    true_send, fails = shipper.send, [True]

    def send():
        if fails:
            raise StorageError(errno=errno.EIO, strerror="away", path="x", doing="ship")
        return true_send()

    shipper.send = send
    behind = []

    def look() -> list[Path]:
        behind.append(state_in(tmp_path).ship["failed"])
        fails.clear()
        return [write(home, "a", [3])]

    kept = Kept(tmp_path, look, lambda: None, shipper=shipper, ships_to="simulated").run()
    assert len(behind[0]) == 1
    assert kept.state.ship["failed"] == {}
    assert kept.state.ship["left_records"] == 0
    assert len(list(ConversationLibrary(place).iter_list())) == 1
    assert texts(library) == expected(a=3)


def test_an_index_that_leaves_conversations_out(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that this user may not read: it is a problem until the index has all of it, whatever is imported meanwhile."""
    closed = StorageError(errno=errno.EACCES, strerror="Permission denied", path="/chats/closed", doing="read it")
    left, problems = [closed], []
    true_update = SearchIndex.update

    def update(self: SearchIndex, **options: Any) -> IndexUpdate:
        return replace(true_update(self, **options), not_read=tuple(left))

    monkeypatch.setattr(SearchIndex, "update", update)
    write(home, "a", [1, 2])

    def look() -> list[Path]:
        problems.append(kept.state.problem)
        if len(problems) == 2:
            left.clear()
        return [write(home, "a", [len(problems) + 2])]

    kept = Kept(tmp_path, look, lambda: None, look, lambda: None)
    kept.run()
    assert [(problem["doing"], "/chats/closed" in problem["reason"]) for problem in problems] == [("index", True)] * 2
    assert (kept.kinds.count("problem"), kept.kinds.count("recovered"), kept.state.problem) == (1, 1, None)


def test_the_state_cannot_be_written(home: Path, tmp_path: Path) -> None:
    """That is no reason to stop, and it is said once."""
    (tmp_path / "state").write_text("a file stands where the folder should be")
    write(home, "a", [1, 2])
    kept = Kept(tmp_path, lambda: [write(home, "a", [3])]).run()
    assert texts(kept.library) == expected(a=3)
    assert kept.kinds.count("problem") == 1


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 9, "library": "x"}', b"\xff"])
def test_a_state_that_is_none_is_begun_again(home: Path, tmp_path: Path, damage: bytes) -> None:
    write(home, "a", [1, 2])
    path = tmp_path / "state/keep.json"
    path.parent.mkdir()
    path.write_bytes(damage)
    assert read_state(str(path)) is None
    assert texts(Kept(tmp_path).run().library) == expected(a=2)
    assert state_in(tmp_path).programs["claude-code"].sessions == 1


def test_there_is_one_of_them(tmp_path: Path) -> None:
    path = state_path("/home/ada/chats", str(tmp_path))
    assert not is_kept(path)
    with only_keeper("chats", path):
        assert is_kept(path)
        with pytest.raises(AlreadyKeptError, match="chats: another process already keeps this library"):
            with only_keeper("chats", path):
                pass
    assert not is_kept(path)


def test_a_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """There is no lock then, and the work is done."""
    (tmp_path / "file").write_text("")
    path = state_path("/home/ada/chats", str(tmp_path / "file"))
    with only_keeper("chats", path):
        assert not is_kept(path)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("polls", [True, False])
def test_a_program_folder_that_is_a_link(home: Path, tmp_path: Path, polls: bool) -> None:
    """What changes behind it is seen under the name that the program uses."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home / ".claude").symlink_to(elsewhere)
    write(home, "a", [1], old=False)  # one that changed last is looked at each time
    watcher = PollingWatcher(sleep=lambda _seconds: None) if polls else best_watcher()
    if not polls and watcher.how == "polling":
        pytest.skip("watchfiles is not installed: the extra `keep`")
    watcher.know(discover())
    deadline, seen = time.monotonic() + 60, set()
    while str(home / ".claude/projects/-home-ada-shop/a.jsonl") not in seen and time.monotonic() < deadline:
        write(home, "a", [2], old=False)
        seen |= watcher.wait(2.0)
    watcher.close()
    assert str(home / ".claude/projects/-home-ada-shop/a.jsonl") in seen


def test_a_reply_under_way_is_not_taken_with_the_rest(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every hour what did not change is noted for the next start; what a program writes to just then waits as ever."""
    monkeypatch.setattr(f"{KEEPER}._STAMP_SECONDS", 0.0)
    write(home, "a", [1])
    kept = Kept(
        tmp_path,
        lambda: [write(home, "a", [2])],
        lambda: [write(home, "b", [1], old=False)],
        lambda: None,
        quiet_seconds=3600.0,
    ).run()
    assert texts(kept.library) == expected(a=2)
    assert kept.state.waiting == 1


def test_a_program_that_is_not_asked_for_stays_away(home: Path, tmp_path: Path) -> None:
    source = write(home, "a", [1, 2])
    kept = Kept(tmp_path, lambda: [write(home, "a", [3])], programs=["codex"]).run()
    assert not kept.library.exists()
    assert kept.state.programs == {}
    assert source.exists()


def test_secrets_stay_out(home: Path, tmp_path: Path) -> None:
    from transcript_store.redaction import SecretRedactor

    write(home, "a", [1])
    with (home / ".claude/projects/-home-ada-shop/a.jsonl").open("ab") as file:
        file.write(line("a", 2, "the key is sk-ant-api03-" + "a1B2" * 24))
    os.utime(file.name, (LONG_AGO, LONG_AGO))
    kept = Kept(tmp_path, redact=SecretRedactor()).run()
    (transcript,) = kept.library.glob("*/transcript.jsonl")
    assert b"a1B2a1B2" not in transcript.read_bytes()
    shutil.rmtree(kept.library)
