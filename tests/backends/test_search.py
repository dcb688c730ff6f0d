"""The index of a library on a backend: a file in the cache directory, brought up to date from the slots.

A backend that can tell the last slots is asked at each call, and F9 holds as in a folder. Of an object store what writers left for lists is
taken; F9 holds behind a refresh, and every answer says as of when. Hits are read from the backend when the answer is made, in any case.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.backends.servers import seaweedfs
from tests.kit.messages import user_message
from tests.kit.postgres import PASSWORD, USER, PostgresServer
from transcript_store import ConversationLibrary
from transcript_store.backends import BackendConversation, PostgresBackend
from transcript_store.errors import StorageError
from transcript_store.search import SearchIndex
from transcript_store.testing import Fate, SimulatedBackend, SimulatedFileSystem, SimulatedObjectStore

each_backend = pytest.mark.parametrize("make_backend", [SimulatedBackend, SimulatedObjectStore])


def found(index: SearchIndex, query: str, **options: Any) -> list[str]:
    return sorted(hit.excerpt for hit in index.search(query, limit=1000, **options))


@pytest.mark.sampled(every=2)
@each_backend
def test_f9_what_was_acknowledged_is_found_behind_a_refresh(
    make_backend: Callable[[], SimulatedBackend], tmp_path: Path
) -> None:
    """F9 against a list in memory: writers append, replace, take back, fork, delete and come back, on hosts of their own."""
    chance = random.Random(8)
    backend = make_backend()
    library = ConversationLibrary(backend, file_system=SimulatedFileSystem())
    there: dict[str, list[str]] = {}
    with SearchIndex(ConversationLibrary(backend, file_system=SimulatedFileSystem()), cache=tmp_path) as index:
        for n in range(120):
            one = chance.choice(sorted(there)) if there and chance.random() < 0.7 else ""
            if not one:
                library.create(provider="claude", messages=[user_message(f"needle {n}")]).close()
                (one,) = {str(summary.id) for summary in library.list()} - {*there}
                there[one] = [f"needle {n}"]
            elif chance.random() < 0.1:
                library.delete(one)
                del there[one]
            else:
                with library.open(one, take_over=True) as conversation:
                    if chance.random() < 0.3:
                        conversation.replace_transcript([user_message(f"needle {n}")], features=["retract"])
                        there[one] = [f"needle {n}"]
                    else:
                        conversation.append_messages([user_message(f"needle {n}"), user_message(f"needle {n} again")])
                        there[one] += [f"needle {n}", f"needle {n} again"]
            if not n % 7:
                assert found(index, "needle", refresh=True) == sorted(
                    text for texts in there.values() for text in texts
                )
                assert {summary.id for summary in index.list()} == {*there}


def test_f9_holds_at_each_call_on_a_backend_that_tells_its_last_slots(tmp_path: Path) -> None:
    """Without a refresh: what an open writer appended a moment ago is found, and what was replaced is not."""
    library = ConversationLibrary(SimulatedBackend())
    with SearchIndex(library, cache=tmp_path) as index, library.create() as conversation:
        for n in range(5):
            conversation.append_message(user_message(f"needle {n}"))
            answer = index.search("needle")
            assert (len(answer), answer.not_indexed) == (n + 1, 0)
            assert answer.as_of is not None
            assert answer.as_of >= conversation.get_records(last=1)[0].at
        conversation.replace_transcript([user_message("another")])
        assert (found(index, "needle"), found(index, "another")) == ([], ["another"])


def test_on_an_object_store_an_answer_says_as_of_when(tmp_path: Path) -> None:
    """What no writer left word of is missed without a refresh, and the answer says since when; the next process knows that too."""
    library = ConversationLibrary(SimulatedObjectStore())
    with SearchIndex(library, cache=tmp_path) as index, library.create() as conversation:
        assert index.search("needle").as_of is None
        conversation.append_message(user_message("needle 1"))
        refreshed = index.search("needle", refresh=True)
        assert (len(refreshed), refreshed.as_of is not None) == (1, True)
        conversation.append_message(user_message("needle 2"))
        late = index.search("needle")
        assert (len(late), late.as_of) == (1, refreshed.as_of)
        conversation.replace_transcript([user_message("another")])
        assert found(index, "needle") == []  # a hit is read when the answer is made: what was replaced is no hit
    with SearchIndex(library, cache=tmp_path) as index:
        known = index.search("needle").as_of
        assert known == refreshed.as_of
        assert found(index, "another") == ["another"]  # the close left word


@each_backend
def test_what_was_deleted_is_not_found(make_backend: Callable[[], SimulatedBackend], tmp_path: Path) -> None:
    """F9: also without a refresh, by an index that has its words still."""
    library = ConversationLibrary(make_backend())
    with SearchIndex(library, cache=tmp_path) as index:
        with library.create(messages=[user_message("needle")]) as conversation:
            one = conversation.id
        assert found(index, "needle", refresh=True) == ["needle"]
        library.delete(one)
        assert found(index, "needle") == []
        assert found(index, "needle", refresh=True) == []
        assert index.list().total == 0


@each_backend
def test_only_what_came_since_is_asked_for(make_backend: Callable[[], SimulatedBackend], tmp_path: Path) -> None:
    """The next process looks at the last slots and reads what its hits are in, and nothing else."""
    backend = make_backend()
    library = ConversationLibrary(backend)
    for n in range(20):
        library.create(messages=[user_message(f"needle {n}")]).close()
    with SearchIndex(library, cache=tmp_path) as index:
        assert len(found(index, "needle", refresh=True)) == 20
    asked: list[str] = []
    backend.on_request = lambda request: asked.append(request.call) or Fate.DONE  # type: ignore[func-returns-value]
    with SearchIndex(ConversationLibrary(backend), cache=tmp_path) as index:
        assert found(index, "7") == ["needle 7"]
    look = "ends" if make_backend is SimulatedBackend else "summaries"
    assert {*asked} <= {"ends", look, "read"}
    assert asked.count("read") <= 4  # of one conversation: slots, packs, and each of its objects


@each_backend
def test_a_damaged_conversation_is_listed_and_not_searched(
    make_backend: Callable[[], SimulatedBackend], tmp_path: Path
) -> None:
    """Its slots do not verify, so nothing of it is believed; the others are found."""
    backend = make_backend()
    library = ConversationLibrary(backend)
    with (
        library.create(messages=[user_message("needle 1")]) as damaged,
        library.create(messages=[user_message("needle 2")]),
    ):
        one = damaged.id
    backend.set_object(one, "s/1", backend.object(one, "s/1").replace(b"needle", b"needlf"))
    with SearchIndex(library, cache=tmp_path) as index:
        assert found(index, "needle", refresh=True) == ["needle 2"]
        assert [os.path.basename(directory) for directory in index.search("needle").damaged] == [one]
        assert [bool(summary.damage) for summary in index.list() if summary.id == one] == [True]


@each_backend
def test_nothing_of_what_is_sealed_is_in_the_index(
    make_backend: Callable[[], SimulatedBackend], tmp_path: Path
) -> None:
    """Its words and its title are in no file of the index. With the key a search reads it, without it or with another it is counted."""
    backend, key = make_backend(), bytes(range(32))
    ConversationLibrary(backend, encryption_key=key).create(
        messages=[user_message("needle xyzzyword")], labels={"title": "plughtitle"}
    ).close()
    ConversationLibrary(backend).create(messages=[user_message("needle in sight")]).close()
    library = ConversationLibrary(backend)
    for given, texts, not_searched in (
        (None, ["needle in sight"], 1),
        (key, ["needle in sight", "needle xyzzyword"], 0),
        (bytes(32), ["needle in sight"], 1),
    ):
        with SearchIndex(library, cache=tmp_path, encryption_key=given) as index:
            answer = index.search("needle", refresh=True)
            assert (sorted(hit.excerpt for hit in answer), answer.not_searched) == (texts, not_searched)
            assert [summary.title for summary in index.list() if summary.sealed] == [None]
    kept = [path.read_bytes().lower() for path in tmp_path.iterdir()]
    assert kept
    assert not [word for word in (b"xyzzyword", b"plughtitle") for data in kept if word in data]


def test_nobody_answers(tmp_path: Path) -> None:
    """The error says so, and the index works again once the backend answers."""
    backend = SimulatedBackend()
    library = ConversationLibrary(backend, waits_seconds=(), file_system=SimulatedFileSystem())  # type: ignore[call-arg]
    library.create(messages=[user_message("needle")]).close()
    with SearchIndex(library, cache=tmp_path) as index:
        backend.on_request = lambda _: Fate.REFUSED
        with pytest.raises(StorageError, match="list the conversations"):
            index.search("needle")
        backend.on_request = None
        assert found(index, "needle") == ["needle"]


def test_the_index_is_named_by_the_backend_itself(tmp_path: Path) -> None:
    """Two libraries on one backend share it, another backend has another, and one without an identity has a temporary one."""
    backend, other = SimulatedBackend(), SimulatedBackend()
    paths = []
    for each in (backend, backend, other):
        with SearchIndex(ConversationLibrary(each), cache=tmp_path) as index:
            paths.append(index.status().path)
    assert paths[0] == paths[1] != paths[2]

    class Nameless(SimulatedBackend):
        identity = None  # type: ignore[assignment]

    with SearchIndex(ConversationLibrary(Nameless()), cache=tmp_path) as index:
        assert index.status().path is None


def test_no_writer_is_hindered(tmp_path: Path) -> None:
    """F11: an index puts and claims nothing on a backend: an open writer stays the writer."""
    backend = SimulatedBackend()
    library = ConversationLibrary(backend)
    with library.create(messages=[user_message("needle")]) as conversation:
        assert isinstance(conversation, BackendConversation)
        epoch, changes = conversation.epoch, []
        backend.on_request = lambda request: changes.append(request.call) if request.changes else None
        with SearchIndex(library, cache=tmp_path) as index:
            assert found(index, "needle", refresh=True) == ["needle"]
        assert changes == []
        conversation.append_message(user_message("and more"))
        assert conversation.epoch == epoch


# ---- on a server ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_f9_on_postgresql_beside_writers(postgres: PostgresServer, tmp_path: Path) -> None:
    """F9: whatever a writer was told is stored before an update began is found behind it, whatever else is written meanwhile."""
    url = postgres.schema()
    PostgresBackend(url, create=True).conversations()
    told: list[str] = []
    failed: list[BaseException] = []

    def write(name: str) -> None:
        try:
            library = ConversationLibrary(PostgresBackend(url))
            for n in range(12):
                with library.create(provider="claude", messages=[user_message(f"needle {name}a{n}")]) as conversation:
                    told.append(f"needle {name}a{n}")
                    for k in range(3):
                        conversation.append_message(user_message(f"needle {name}b{n}c{k}"))
                        told.append(f"needle {name}b{n}c{k}")
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(name,)) for name in ("x", "y")]
    for writer in writers:
        writer.start()
    looks = 0
    with SearchIndex(ConversationLibrary(PostgresBackend(url)), cache=tmp_path) as index:
        while any(writer.is_alive() for writer in writers) or not looks:
            before = {*told}
            assert index.update().not_indexed == 0
            assert before <= {*found(index, "needle")}
            looks += 1
        for writer in writers:
            writer.join()
        assert not failed
        index.update()
        assert found(index, "needle") == sorted(told)
        library = ConversationLibrary(PostgresBackend(url))
        kept, gone, other = [summary.id or "" for summary in library.list(limit=3)]
        library.delete(gone)
        with library.open(other, take_over=True) as conversation:
            conversation.replace_transcript([user_message("something else")])
        index.update()
        assert {hit.conversation for hit in index.search("needle", limit=1000)} == {
            summary.id for summary in library.list() if summary.id not in (gone, other)
        }
        assert kept in {hit.conversation for hit in index.search("needle", limit=1000)}


@pytest.mark.long
def test_what_postgresql_says_of_its_last_slots(postgres: PostgresServer) -> None:
    """Page by page, as of that moment, without what was expunged."""
    url = postgres.schema()
    backend = PostgresBackend(url, create=True)
    library = ConversationLibrary(backend)
    stores = [library.create() for _ in range(5)]
    ids = sorted(store.id for store in stores)
    stores[0].append_message(user_message("one"))
    ends = dict(backend.ends())
    assert sorted(ends) == ids
    assert {one: max(piece.last for piece in backend.read(one)) for one in ids} == ends
    pages, after = [], ""
    while page := backend.ends(after=after, limit=2):
        pages.append(page)
        after = page[-1][0]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert dict(each for page in pages for each in page) == ends
    for store in stores:
        store.close()
    library.delete(ids[2])
    assert sorted(dict(backend.ends())) == [*ids[:2], *ids[3:]]


def test_an_identity_has_no_secret_in_it() -> None:
    """No user, password or host: the same with other credentials, different for another database."""
    one, two, other = (
        PostgresBackend(f"postgresql://{user}:{PASSWORD}@db.example/{name}")
        for user, name in ((USER, "agents"), ("other", "agents"), (USER, "others"))
    )
    assert one.identity == two.identity != other.identity
    assert not [secret for secret in (USER, PASSWORD, "example") if secret in one.identity]


@pytest.mark.long
def test_f9_on_an_object_store(tmp_path: Path) -> None:
    """F9 behind a refresh on SeaweedFS, and a search without one that says as of when."""
    with ExitStack() as at_the_end:
        server = seaweedfs(tmp_path)
        at_the_end.callback(server.kill)
        library = ConversationLibrary(server.backend("agents"))
        with SearchIndex(ConversationLibrary(server.backend("agents")), cache=tmp_path / "cache") as index:
            with library.create(messages=[user_message("needle 1")]) as conversation:
                conversation.append_message(user_message("needle 2"))
                answer = index.search("needle", refresh=True)
                assert (len(answer), answer.as_of is not None) == (2, True)
                conversation.append_message(user_message("needle 3"))
                assert index.search("needle").as_of == answer.as_of
                assert len(index.search("needle", refresh=True)) == 3
                one = conversation.id
            assert (
                server.backend("agents").identity
                == server.backend("agents").identity
                != server.backend("others").identity
            )
            library.delete(one)
            assert (found(index, "needle"), found(index, "needle", refresh=True)) == ([], [])
