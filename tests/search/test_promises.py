"""F9, F10 and F11 of docs/search.md, by number."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.kit.messages import user_message
from tests.search.libraries import EVERYTHING, appended, begun, found, has_word, naive, places, replaced
from transcript_store import ConversationLibrary, ConversationNotFoundError, ConversationStore, Hint, StorageError
from transcript_store.search import SearchIndex, _catalogue, _finding, _indexing
from transcript_store.search._indexing import Vocabulary
from transcript_store.transcripts import summary_of


@pytest.fixture
def library(eight, tmp_path):
    """A copy of it: each test may change its own."""
    return ConversationLibrary(shutil.copytree(eight, tmp_path / "library"))


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """Eight conversations of three messages."""
    library = ConversationLibrary(tmp_path_factory.mktemp("eight") / "library")
    for number in range(8):
        begun(library, f"socket {number}", "a pipe", f"東京大学 {number}", labels={"title": f"number {number}"})
    return library.directory


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def file_of(cache: Path) -> Path:
    (path,) = cache.glob("*.sqlite")
    return path


# ---- F9: what was acknowledged is found, and nothing that is gone -------------------------------------------------------


def test_f9_what_was_acknowledged_is_found_at_once(library, cache):
    with SearchIndex(library, cache=cache) as index:
        for number in range(5):
            own_id = begun(library, f"begun {number}")
            assert (own_id, 0, 1) in found(index, "begun")
            appended(library, own_id, "appended")
            assert (own_id, 0, 2) in found(index, "appended")


def test_f9_what_was_deleted_or_replaced_is_not_found(library, cache):
    with SearchIndex(library, cache=cache) as index:
        deleted, kept = begun(library, "secret one"), begun(library, "secret two")
        assert found(index, "secret") == {(deleted, 0, 1), (kept, 0, 1)}
        library.delete(deleted)
        replaced(library, kept, "public two")
        assert found(index, "secret") == set()
        assert found(index, "two") == {(kept, 1, 1)}
        assert index.status().forgotten == 2


def test_f9_an_answer_names_what_is_damaged_and_was_not_searched(library, cache):
    """The incident: a line in the middle was changed, a search found nothing, and nothing said why."""
    damaged, whole = begun(library, "needle 1"), begun(library, "needle 2")
    directory = os.path.join(library.directory, damaged)
    path = Path(directory, "transcript.jsonl")
    before = path.read_bytes()
    with SearchIndex(library, cache=cache) as index:
        assert index.search("needle").damaged == ()
        path.write_bytes(before.replace(b"needle", b"needlf"))
        for _ in range(2):
            answer = index.search("needle")
            assert ({hit.conversation for hit in answer}, answer.damaged) == ({whole}, (directory,))
        assert index.search(f"needle id:{whole}").damaged == ()
        path.write_bytes(before)
        answer = index.search("needle")
        assert ({hit.conversation for hit in answer}, answer.damaged) == ({whole, damaged}, ())


def test_f9_what_stands_behind_damage_is_told_and_an_unfinished_append_is_none(library, cache):
    """Of a conversation that was damaged before it was indexed: what stands before is found. A line that is being written is no damage."""
    own_id = begun(library, "needle 1")
    for number in (2, 3):
        appended(library, own_id, f"needle {number}")
    path = Path(library.directory, own_id, "transcript.jsonl")
    before = path.read_bytes()
    torn, damaged = before + b'{"seq":4,"at":"20', before.replace(b"needle 2", b"needlf 2")
    with SearchIndex(library, cache=cache) as index:
        for data, numbers, is_damaged in ((damaged, {1}, True), (torn, {1, 2, 3}, False), (damaged + torn, {1}, True)):
            path.write_bytes(data)
            index.purge()
            answer = index.search("needle")
            assert ({hit.seq for hit in answer}, bool(answer.damaged)) == (numbers, is_damaged)
        path.write_bytes(before)
        assert (len(index.search("needle")), index.search("needle").damaged) == (3, ())


def test_f9_a_batch_is_found_whole_wherever_an_update_stops_in_it(tmp_path, cache):
    """An update without time stops behind every message, so each is once the last one that is known."""
    library = ConversationLibrary(tmp_path / "one")
    own_id = begun(library)
    for words in (["before"], [f"batch {number}" for number in range(12)], ["after"]):
        appended(library, own_id, *words)
    with SearchIndex(library, cache=cache) as index:
        for _ in range(20):
            index.update(seconds=0)
        assert index.status().messages == 14
        assert found(index, f"id:{own_id}") == {(own_id, 0, seq) for seq in range(1, 15)}


def test_f9_a_batch_of_more_messages_than_a_transaction_holds_is_found_whole(library, cache, monkeypatch):
    monkeypatch.setattr(_indexing, "_DOCUMENTS", 2_000)
    own_id = begun(library)
    appended(library, own_id, *(f"message{number}" for number in range(4_500)))
    with SearchIndex(library, cache=cache) as index:
        index.update()
        for number in (0, 1_999, 2_000, 2_001, 3_999, 4_000, 4_499):
            assert found(index, f"message{number}") == {(own_id, 0, number + 1)}


def test_f9_what_is_gone_is_not_counted(library, cache):
    """What FTS5 alone counts has the words of what was forgotten, too."""
    first, *_ = (one.id for one in library.list())
    with SearchIndex(library, cache=cache) as index:
        assert index.search("socket", wait=True).total == 8
        replaced(library, first, "nothing")
        assert index.search("socket", wait=True).total == 7
        assert index.search("*ocke*").total == 7
        assert index.search("socket", sort="rank").total == 7


def test_f9_a_hit_is_what_the_transcript_says_now(library, cache):
    """Also where no update noticed: here the update had no time at all, and looks at nothing."""
    own_id = begun(library, "secret")
    with SearchIndex(library, cache=cache) as index:
        index.update()
        (library_path, path) = Path(library.directory), Path(library.directory, own_id, "transcript.jsonl")
        status = path.stat()
        path.write_bytes(path.read_bytes().replace(b"secret", b"publik"))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert places(index.search("secret", limit=EVERYTHING)) == set()
        assert library_path.is_dir()


@contextmanager
def files_left(many):
    """In the block this process can open only so many files at once more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        while many > 0:
            os.close(held.pop())
            many -= 1
        yield
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("changed", ["nothing", "texts", "all"])
def test_f9_a_process_that_has_no_file_left_to_open_finds_all_or_is_told(library, cache, is_read, changed, monkeypatch):
    """It had the hits of the conversations that came first and no word of the others; what was to be indexed was forgotten, and counted as done."""
    if changed == "texts":
        monkeypatch.setattr(_catalogue, "SETTLED_NS", 0)  # what was looked at is not looked at again
    regex = "socket" if is_read else None
    with SearchIndex(library, cache=cache) as index:
        whole = {hit.conversation for hit in index.search("socket", regex=regex, limit=1000, wait=True)}
        assert len(whole) == 8
        outcomes = set()
        for many in range(16):
            for conversation in whole if changed != "nothing" else ():
                appended(library, conversation, "one more")
            if changed == "texts":
                index.list()  # looks at what changed, and indexes no text of it
            with files_left(many):
                try:
                    answer = index.search("socket title:number", regex=regex, limit=1000, wait=True)
                except StorageError as error:
                    outcomes.add(error.strerror)
                else:
                    outcomes.add("found")
                    assert {hit.conversation for hit in answer} == whole
                    assert answer.not_indexed == 0
        assert outcomes == {os.strerror(errno.EMFILE), "found"}


def refusing(monkeypatch, name, number, call="open"):
    """Until the end of the test, or of a context, the system refuses to open what is called so, or to read anything."""
    real = getattr(os, call)

    def refuse(what, *arguments, **named):
        if call != "open" or os.path.basename(os.fsdecode(what)) == name:
            raise OSError(number, os.strerror(number))
        return real(what, *arguments, **named)

    monkeypatch.setattr(os, call, refuse)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("call", ["open", "preadv"])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("changed", [False, True])
def test_f9_a_process_that_has_no_memory_left_is_told_and_forgets_nothing(
    library, cache, changed, is_read, call, monkeypatch
):
    """Its conversations were taken for ones that cannot be read: a search found nothing of them, and said that it had found everything."""
    regex = "socket" if is_read else None
    with SearchIndex(library, cache=cache) as index:
        whole = places(index.search("socket", regex=regex, wait=True))
        (one, *_) = library.list()
        if changed:
            appended(library, one.id, "one more")
        with monkeypatch.context() as patched:
            refusing(patched, one.id, errno.ENOMEM, call)
            with pytest.raises(StorageError) as told:
                index.search("socket", regex=regex, wait=True)
        assert (told.value.errno, told.value.hint) == (errno.ENOMEM, Hint.FREE_MEMORY)
        assert places(index.search("socket", regex=regex, wait=True)) == whole


def test_f9_memory_that_runs_out_in_python_or_in_sqlite_is_told_too(library, cache, monkeypatch):
    with SearchIndex(library, cache=cache) as index:
        whole = found(index, "socket")
        appended(library, library.list()[0].id, "one more")
        with monkeypatch.context() as patched:
            patched.setattr(_indexing, "texts_of", lambda *_: (_ for _ in ()).throw(MemoryError))
            with pytest.raises(StorageError) as told:
                index.search("more")
        assert (told.value.errno, told.value.hint) == (errno.ENOMEM, Hint.FREE_MEMORY)
        assert found(index, "socket") == whole
        assert len(found(index, "more")) == 1


def test_a_refusal_of_the_system_has_a_hint(library, cache, tmp_path, monkeypatch):
    """Those of the library, of the index's file, and of SQLite had none."""
    (tmp_path / "file").write_bytes(b"")
    with SearchIndex(tmp_path / "file", cache=cache) as index, pytest.raises(StorageError) as told:
        index.list()
    assert (told.value.errno, told.value.hint) == (errno.ENOTDIR, Hint.CLEAR_THE_WAY)

    def read_only(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    with SearchIndex(library, cache=cache) as index:
        index.update()
        with monkeypatch.context() as patched, pytest.raises(StorageError) as told:
            patched.setattr(os, "unlink", read_only)
            index.purge()
        assert (told.value.errno, told.value.hint) == (errno.EROFS, Hint.MOUNT_TO_WRITE)


@pytest.mark.parametrize(
    ("full", "number", "hint"),
    [(True, errno.ENOSPC, Hint.FREE_SPACE), (False, errno.EIO, Hint.CHECK_THE_DISK)],
)
def test_what_sqlite_refuses_has_a_hint(library, cache, full, number, hint, monkeypatch):
    """It was told as an error of the disk, also where its temporary files found no space."""

    def refusing(*_):
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("PRAGMA max_page_count=2")
            connection.execute("CREATE TABLE t (v BLOB)")
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))" if full else "INSERT INTO t VALUES (no_such)")

    monkeypatch.setattr(_indexing, "texts_of", refusing)
    with SearchIndex(library, cache=cache) as index, pytest.raises(StorageError) as told:
        index.search("socket")
    assert (told.value.errno, told.value.hint) == (number, hint)


@pytest.mark.parametrize("query", ["socket", "id:{} socket", "role:user"])
def test_f9_a_conversation_that_the_system_refuses_to_read_is_left_out_and_told(library, cache, query, monkeypatch):
    """A folder that is closed to the user: nothing said that there may be more."""
    (one, *_), all_of_it = library.list(), Path(library.directory)
    query = query.format(one.id)
    with SearchIndex(library, cache=cache) as index:
        with monkeypatch.context() as patched:
            refusing(patched, one.id, errno.EACCES)
            for _ in range(2):
                answer = index.search(query, limit=EVERYTHING, wait=True)
                assert one.id not in {hit.conversation for hit in answer}
                (told,) = answer.not_read
                assert (told.path, told.hint) == (one.directory, Hint.CHECK_PERMISSIONS)
                assert answer.not_indexed == 0
            (told,) = index.update().not_read
            assert told.path == one.directory
        answer = index.search("socket", limit=EVERYTHING, wait=True)
        assert (places(answer), answer.not_read) == (naive(all_of_it, has_word("socket")), ())


@pytest.mark.parametrize("regex", [None, "socket"])
def test_f9_what_is_refused_when_a_hit_is_read_is_told_too(library, cache, regex, monkeypatch):
    """The error of the system came out of the search as it was."""
    monkeypatch.setattr(_catalogue, "SETTLED_NS", 0)  # what was looked at is not looked at again
    with SearchIndex(library, cache=cache) as index:
        index.update()
        with monkeypatch.context() as patched:
            refusing(patched, "", errno.EIO, "preadv")
            answer = index.search("socket", regex=regex)
        assert (len(answer), answer.not_indexed) == (0, 0)
        assert {one.path for one in answer.not_read} == {one.directory for one in library.list()}
        assert {one.hint for one in answer.not_read} == {Hint.CHECK_THE_DISK}
        assert len(index.search("socket", regex=regex)) == 8


def test_a_process_that_has_no_file_left_to_open_calls_no_conversation_damaged(library):
    """Its line of a list said "it cannot be looked at", as of a damaged one, and the index kept that line, without the title."""
    (one, *_), outcomes = library.list(), set()
    for many in range(6):
        with files_left(many):
            try:
                outcomes.add(summary_of(one.directory) == one)
            except StorageError as error:
                outcomes.add(error.hint)
    assert outcomes == {Hint.ALLOW_MORE_FILES, True}


def test_f9_with_a_writer_and_two_indexers_at_work(library, cache):
    """Each append that was acknowledged before a search began is in its answer, whoever indexed it."""
    own_id = begun(library)
    acknowledged, failures = [0], []
    over = threading.Event()

    def write():
        with library.open(own_id, durability="process-crash") as conversation:
            for number in range(1, 61):
                conversation.append_message(user_message(f"written {number}"))
                acknowledged[0] = number
        over.set()

    def ask():
        with SearchIndex(library, cache=cache) as index:
            while not over.is_set():
                before = acknowledged[0]
                seqs = {seq for _, _, seq in found(index, "written")}
                if not set(range(1, before + 1)) <= seqs:
                    failures.append((before, seqs))

    threads = [threading.Thread(target=work) for work in (write, ask, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with SearchIndex(library, cache=cache) as index:
        assert found(index, "written") == {(own_id, 0, seq) for seq in range(1, 61)}
        assert index.status().messages == 8 * 3 + 60  # none is there twice


# ---- F10: the index costs time, never an answer -------------------------------------------------------------------------


def agrees(library: ConversationLibrary, cache: Path) -> None:
    directory = Path(library.directory)
    with SearchIndex(library, cache=cache) as index:
        assert found(index, "socket") == naive(directory, has_word("socket"))
        assert found(index, "*ocke*") == naive(directory, lambda text: "ocke" in text)
        assert found(index, "京大") == naive(directory, lambda text: "京大" in text)
        assert len(index.list(limit=100)) == len(library.list())


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def bits_flipped_agree(library: ConversationLibrary, cache: Path, count: int) -> None:
    agrees(library, cache)
    path = file_of(cache)
    chance = random.Random(count)
    for end in ("", ".seal"):
        whole = Path(f"{path}{end}").read_bytes()
        for _ in range(count):
            data = Path(f"{path}{end}").read_bytes()
            Path(f"{path}{end}").write_bytes(flipped(data, chance.randrange(8 * len(data))))
            agrees(library, cache)
        assert whole


def test_f10_a_bit_may_flip_anywhere_in_the_index(library, cache):
    bits_flipped_agree(library, cache, 5)


@pytest.mark.long
def test_f10_bits_may_flip_again_and_again(library, cache):
    bits_flipped_agree(library, cache, 400)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "what", ["deleted", "empty", "cut", "zeros", "text", "later", "directory", "link", "seal", "pipe"]
)
def test_f10_whatever_stands_in_its_place(library, cache, what):
    agrees(library, cache)
    path = file_of(cache)
    data = path.read_bytes()
    elsewhere = cache.parent / "elsewhere"
    if what == "deleted":
        path.unlink()
    elif what == "later":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version=99")
        connection.close()
        Path(f"{path}.seal").unlink()
    elif what == "directory":
        path.unlink()
        path.mkdir()
    elif what == "link":
        elsewhere.write_bytes(data)
        path.unlink()
        path.symlink_to(elsewhere)
    elif what == "seal":
        Path(f"{path}.seal").write_bytes(b"{}")
    elif what == "pipe":
        Path(f"{path}.seal").unlink()
        os.mkfifo(f"{path}.seal")
    else:
        path.write_bytes(
            {"empty": b"", "cut": data[: len(data) // 2], "zeros": bytes(len(data)), "text": b"hello"}[what]
        )
    agrees(library, cache)
    if what == "link":
        assert elsewhere.read_bytes() == data


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal", ".seal", ".writing"])
@pytest.mark.parametrize("what", ["pipe", "link"])
def test_f10_nobody_waits_at_a_pipe_and_no_link_is_followed(library, cache, end, what):
    """Wherever SQLite or the index looks for a file: they are removed, and the index is built anew."""
    agrees(library, cache)
    place, elsewhere = Path(f"{file_of(cache)}{end}"), cache.parent / "elsewhere"
    elsewhere.write_bytes(b"mine")
    place.unlink(missing_ok=True)
    os.mkfifo(place) if what == "pipe" else place.symlink_to(elsewhere)
    agrees(library, cache)
    assert elsewhere.read_bytes() == b"mine"


def test_f9_what_is_retracted_is_not_found_also_by_an_index_that_does_not_know_it_yet(library, cache):
    """Another process keeps the index, so it is not updated; the transcript is asked what is taken back behind what the index has read."""
    own_id = begun(library, "plover", "plover again", "plover at last", features=["retract"])
    with SearchIndex(library, cache=cache) as index:
        assert {seq for _, _, seq in found(index, "plover")} == {1, 2, 3}
        with library.open(own_id) as conversation:
            conversation.retract(2)
            conversation.append_message(user_message("and then"))
        other = sqlite3.connect(file_of(cache), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answer = index.search("plover")
        assert answer.is_busy
        assert {hit.seq for hit in answer} == {1}
        other.execute("ROLLBACK")
        other.close()
        assert {seq for _, _, seq in found(index, "plover")} == {1}


def test_f10_an_index_that_cannot_be_thrown_away(library, cache):
    """Whoever wants it gone is told that it is not; whoever asks gets an answer."""
    agrees(library, cache)
    Path(f"{file_of(cache)}-wal").mkdir()
    for forget in (SearchIndex.purge, SearchIndex.rebuild):
        with SearchIndex(library, cache=cache) as index:
            with pytest.raises(StorageError, match="remove the index"):
                forget(index)
            assert len(found(index, "socket")) == 8


def test_f10_the_index_of_another_library(library, cache, tmp_path):
    """A library that was copied, and an index that was copied beside it under the name that it would have."""
    agrees(library, cache)
    with sqlite3.connect(file_of(cache)) as connection:
        connection.execute("UPDATE about SET value = 'another' WHERE name = 'library'")
    connection.close()
    agrees(library, cache)
    other = ConversationLibrary(shutil.copytree(library.directory, tmp_path / "copy"))
    other.delete_folder(other.list()[0].directory.rpartition("/")[2])
    agrees(other, cache)


def test_f10_an_index_that_somebody_else_keeps_locked(library, cache):
    agrees(library, cache)
    other = sqlite3.connect(file_of(cache), isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with SearchIndex(library, cache=cache) as index:
        answer = index.search("socket", limit=EVERYTHING)
        assert places(answer) == naive(Path(library.directory), has_word("socket"))
    other.close()
    agrees(library, cache)


def test_f10_a_cache_that_cannot_be_written(library, cache):
    cache.write_text("a file where the directory should be")
    agrees(library, cache)
    assert cache.read_text() == "a file where the directory should be"


def test_f10_damage_that_comes_while_the_index_is_open(library, cache):
    with SearchIndex(library, cache=cache) as index:
        found(index, "socket")
        path = file_of(cache)
        for end in ("", "-wal"):
            Path(f"{path}{end}").write_bytes(b"x" * 100_000)
        assert found(index, "socket") == naive(Path(library.directory), has_word("socket"))


KILLED = """
import sys
from transcript_store.search import SearchIndex, _catalogue, _indexing
_indexing._MANY = int(sys.argv[3])
with SearchIndex(sys.argv[1], cache=sys.argv[2]) as index:
    print("begun", flush=True)
    while True:
        index.update()
        index.purge()
"""


def killed_again_and_again(library: ConversationLibrary, cache: Path, times: int) -> None:
    chance = random.Random(times)
    for number in range(times):
        command = [sys.executable, "-c", KILLED, library.directory, str(cache), f"{number % 2}00"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            threading.Event().wait(chance.random() / 20)  # anywhere in an update
            child.send_signal(signal.SIGKILL)
        agrees(library, cache)


def test_f10_an_indexer_is_killed(library, cache):
    killed_again_and_again(library, cache, 2)


@pytest.mark.long
def test_f10_indexers_are_killed_again_and_again(library, cache):
    killed_again_and_again(library, cache, 60)


def test_f10_parts_of_words_are_found_after_a_build_that_did_not_come_to_its_end(library, cache, monkeypatch):
    """A build leaves the table of words for its end. Until then FTS5's own list is asked; who has time fills the table."""
    monkeypatch.setattr(_indexing, "_MANY", 0)
    with monkeypatch.context() as patched:
        patched.setattr(Vocabulary, "complete", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with SearchIndex(library, cache=cache) as index, pytest.raises(KeyboardInterrupt):
            index.update()
    with SearchIndex(library, cache=cache) as index:
        assert index.search("*ocke*").total == 8  # an update of 200 ms does not go through the whole list
        assert words_of(cache) == (0, [])
        begun(library, "a rocket")  # the word alone comes into the table
        assert index.search("*ocke*").total == 9
        assert words_of(cache) == (0, ["a", "rocket"])
        assert index.search("*ocke*", wait=True).total == 9
        assert words_of(cache)[0] == 1
        assert {"a", "rocket", "socket", "pipe", "東京"} < set(words_of(cache)[1])


@pytest.mark.parametrize(
    "text", ["Café 東京大学 x1", "w" * 64 + " " + "w" * 65, "é" * 33 + " " + "é" * 32, "K\u0130 a—b 한국"]
)
def test_words_are_the_same_whether_they_are_noted_one_by_one_or_taken_from_fts5(tmp_path, monkeypatch, text):
    library = ConversationLibrary(tmp_path / "library")
    begun(library, text)
    noted = []
    for many in (0, 100):
        monkeypatch.setattr(_indexing, "_MANY", many)
        with SearchIndex(library, cache=tmp_path / f"{many}") as index:
            index.update()
        noted.append(words_of(tmp_path / f"{many}"))
    assert noted[0] == noted[1]
    assert noted[0][1]


def words_of(cache: Path) -> tuple[int, list[str]]:
    with closing(sqlite3.connect(file_of(cache))) as connection:
        (complete,) = connection.execute("SELECT value FROM about WHERE name = 'words'").fetchone()
        return complete, [word for (word,) in connection.execute("SELECT text FROM word ORDER BY text")]


def test_f10_an_index_is_for_its_owner_alone(library, cache):
    """It has the words of all conversations. And it never stands in the library, where a backup would take it."""
    before = sorted(Path(library.directory).rglob("*"))
    with SearchIndex(library, cache=cache) as index:
        index.update()
        assert {oct(path.stat().st_mode & 0o777) for path in cache.iterdir()} == {"0o600"}
    assert {oct(path.stat().st_mode & 0o777) for path in cache.iterdir()} == {"0o600"}
    assert sorted(Path(library.directory).rglob("*")) == before


def test_f10_a_purge_leaves_no_word_of_what_was_deleted(library, cache):
    own_id = begun(library, "xylophone")
    with SearchIndex(library, cache=cache) as index:
        assert found(index, "xylophone")
        library.delete(own_id)
        index.rebuild()
        assert index.status().forgotten == 0
    assert all(b"xylophone" not in path.read_bytes() for path in cache.iterdir())


# ---- F11: no lock of a writer --------------------------------------------------------------------------------------------


def test_f11_an_index_opens_nothing_of_the_library_to_write_and_takes_no_lock(library, cache):
    """What is opened, and every lock, is seen by the interpreter's audit hook, in a process of its own."""
    program = """
import os, sys
seen = []
def hook(event, args):
    if event == "open" and str(args[0]).startswith(sys.argv[1]) and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen.append(("opened", args[0]))
    elif event in ("os.rename", "os.remove", "os.mkdir", "os.truncate") and str(args[0]).startswith(sys.argv[1]):
        seen.append((event, args[0]))
    elif event in ("fcntl.flock", "fcntl.lockf"):
        seen.append((event, os.readlink(f"/proc/self/fd/{args[0]}")))
from transcript_store.search import SearchIndex
sys.addaudithook(hook)
with SearchIndex(sys.argv[1], cache=sys.argv[2]) as index:
    print(len(index.search("socket", wait=True)))
print([one for one in seen if one[1].startswith(sys.argv[1])])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, library.directory, str(cache)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["8", "[]"]


def test_f11_a_writer_continues_while_an_index_reads(library, cache):
    own_id = begun(library, "before")
    with library.open(own_id) as conversation, SearchIndex(library, cache=cache) as index:
        for number in range(5):
            conversation.append_message(user_message(f"during {number}"))
            assert len(found(index, "during")) == number + 1


def test_a_path_at_which_nothing_stands_is_no_library(tmp_path):
    """A name that was mistyped found nothing, and said nothing. A library that is not made yet is empty."""
    with pytest.raises(ConversationNotFoundError, match="there is no such directory"):
        SearchIndex(tmp_path / "mistyped", cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    with SearchIndex(ConversationLibrary(tmp_path / "library"), cache=tmp_path / "cache") as index:
        assert index.search("socket").total == 0
        assert index.list().total == 0


def test_a_conversation_is_no_library(tmp_path):
    """Its folder was searched, nothing was found in it, and nothing was said. What is meant is the directory around it."""
    begun(ConversationLibrary(tmp_path), "a socket")
    (only,) = ConversationLibrary(tmp_path).list()
    for given in (only.directory, ConversationLibrary(only.directory), ConversationStore(only.directory)):
        with pytest.raises(
            ConversationNotFoundError, match="this is a conversation, not a library: name its directory's parent"
        ):
            SearchIndex(given, cache=tmp_path / "cache")  # type: ignore[arg-type]
    assert not (tmp_path / "cache").exists()


def test_nothing_but_the_look_goes_through_all_conversations(tmp_path, monkeypatch):
    """The incident: of every search at 10,000 conversations 5 ms went into looking for sealed ones, where there were none."""
    library = ConversationLibrary(tmp_path / "library")
    begun(library, "a socket")
    opened, connect = [], sqlite3.connect

    def noted(*arguments, **named):
        opened.append(connect(*arguments, **named))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        index.update()
        asked: list[str] = []
        (connection, *_) = opened
        connection.set_trace_callback(asked.append)
        assert index.search("socket").total == 1
        assert index.search("nothing").total == 0
        connection.set_trace_callback(None)
        plans = {
            statement: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            for statement in asked
            if statement.startswith("SELECT") and "FROM conversation" in statement
        }
        whole = [
            one
            for one, plan in plans.items()
            if any(
                "SCAN" in step and not any(part in step for part in ("by_sealed", "by_damage", "pending"))
                for step in plan
            )
        ]
        assert whole == ["SELECT folder, n, stamp FROM conversation"]


def statements_of(index: SearchIndex, work: Callable[[], object]) -> list[str]:
    """What SQLite is told meanwhile."""
    told: list[str] = []
    index._database.connection.set_trace_callback(told.append)  # nobody else knows what it asks
    work()
    index._database.connection.set_trace_callback(None)  # as above
    return told


def steps_of(index: SearchIndex, work: Callable[[], object]) -> int:
    """How many steps SQLite's own machine takes meanwhile."""
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    index._database.connection.set_progress_handler(count, 1)  # nobody else knows
    work()
    index._database.connection.set_progress_handler(None, 1)  # as above
    return steps[0]


def test_what_a_filter_leaves_is_looked_for_where_it_stands(tmp_path, cache, monkeypatch):
    """The incident: a common word in one conversation took as long as in all of them, for each message with the word was looked at."""
    monkeypatch.setattr(_catalogue, "SETTLED_NS", 0)  # what was looked at is not looked at again
    library = ConversationLibrary(tmp_path / "library")
    ids = [begun(library, *["socket"] * 50, labels={"title": f"number {number}"}) for number in range(20)]
    with SearchIndex(library, cache=cache) as index:
        index.update()
        everywhere = steps_of(index, lambda: index.search("socket"))
        for query in (f"socket id:{ids[10]}", f"id:{ids[10]}"):
            assert steps_of(index, partial(index.search, query)) < everywhere / 4, query
            assert len(index.search(query, limit=100)) == 50


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("tried", [1, 4, 100])
def test_f9_a_filter_finds_whatever_stands_between_others(tmp_path, cache, tried, monkeypatch):
    """Conversations that are appended to in turns, replaced and left out: wherever their messages came to stand in the index."""
    monkeypatch.setattr(_finding, "_TRIED", tried)
    chance = random.Random(tried)
    library = ConversationLibrary(tmp_path / "library")
    odd = {
        begun(library, "socket", "pipe", labels={"title": f"{['even', 'odd'][number % 2]}"}): number % 2
        for number in range(20)
    }
    with SearchIndex(library, cache=cache) as index:
        for _ in range(6):
            for own_id in chance.sample(sorted(odd), 4):
                chance.choice((appended, appended, replaced))(library, own_id, *chance.choices(("socket", "pipe"), k=3))
            there = naive(Path(library.directory), has_word("socket"))
            for name, is_odd in (("even", 0), ("odd", 1)):
                its = {place for place in there if odd[place[0]] == is_odd}
                assert found(index, f"socket title:{name}") == its
                assert index.search(f"socket title:{name}").total == len(its)
                assert found(index, f"socket title:{name}", sort="newest") == its
            own_id = chance.choice(sorted(odd))
            assert found(index, f"id:{own_id}", regex="socket") == {place for place in there if place[0] == own_id}
            assert {place for place in found(index, f"id:{own_id}") if place in there} == {
                place for place in there if place[0] == own_id
            }


def test_fts5_makes_one_piece_of_the_words_of_a_transaction(library, cache, monkeypatch):
    """Whatever begins a statement of several steps has FTS5 write what it gathered: here, a piece for each conversation."""
    monkeypatch.setattr(_indexing, "_WAITING", 0)
    with SearchIndex(library, cache=cache) as index:
        index.update()
        database = index._database  # in which FTS5 keeps its pieces
        pieces = database.connection.execute("SELECT count(DISTINCT segid) FROM words_idx").fetchone()
        assert pieces == (1,)


def test_one_message_more_is_one_transaction_and_what_is_known_is_not_written(library, cache, monkeypatch):
    monkeypatch.setattr(_catalogue, "SETTLED_NS", 0)
    own_id, *_ = (one.id for one in library.list())
    with SearchIndex(library, cache=cache) as index:
        index.update()
        appended(library, own_id, "one more")
        told = statements_of(index, index.update)
        assert [one for one in told if one.startswith(("BEGIN", "COMMIT"))] == ["BEGIN IMMEDIATE", "COMMIT"]
        (noted,) = (one for one in told if one.startswith("UPDATE conversation SET stamp"))
        assert "record_count =" in noted
        assert "title" not in noted
        assert not [one for one in told if "label" in one and not one.startswith("SELECT")]
        assert found(index, "more") == {(own_id, 0, 4)}


def test_a_look_at_what_was_written_just_now_writes_nothing_if_nothing_came(library, cache, monkeypatch):
    """It may be written again and look the same, so for two seconds each search reads it, and wrote all of it to the index."""
    monkeypatch.setattr(_catalogue, "SETTLED_NS", 10**18)
    with SearchIndex(library, cache=cache) as index:
        index.update()
        assert index.status().not_indexed == 0
        told = statements_of(index, index.update)
        assert not [one for one in told if one.startswith(("INSERT", "UPDATE", "DELETE"))]


def test_labels_that_change_are_noted(library, cache):
    own_id, *_ = (one.id for one in library.list())
    with SearchIndex(library, cache=cache) as index:
        assert index.list(filter="label:colour=red").total == 0
        for labels, red in (
            ({"colour": "red"}, 1),
            ({"colour": "blue"}, 0),
            ({"colour": "red", "more": "x"}, 1),
            ({}, 0),
        ):
            with library.open(own_id, durability="process-crash") as conversation:
                conversation.update_metadata(replace_labels=labels)
            assert index.list(filter="label:colour=red").total == red
            assert index.list(filter="label:more").total == len(labels) // 2


def test_f9_a_busy_index_says_that_something_may_be_missing(library, cache, monkeypatch):
    """Another process writes to the index, so nobody looked: it said that nothing was missing, and a message was."""
    monkeypatch.setattr(_catalogue, "SETTLED_NS", 0)  # what was looked at is not looked at again
    begun(library, "plover")
    with SearchIndex(library, cache=cache) as index:
        index.update()
        begun(library, "sandpiper")
        with closing(sqlite3.connect(file_of(cache), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            answer = index.search("sandpiper")
            assert (len(answer), answer.is_busy) == (0, True)
            assert answer.not_indexed > 0
            other.execute("ROLLBACK")
