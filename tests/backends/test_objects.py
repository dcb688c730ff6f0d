"""Conversations on an object store: its requests, its names, and the errors if the store does not keep its contract.

The incident: servers that speak S3, ignore ``If-None-Match``, and answer 200 to both of two writers (rclone, JuiceFS's gateway). And the client
library, which hangs in a forked child, and whose errors repeat the address, the key, and what the server said. Here the objects are in memory, in a folder, or
a server answers whatever it is told to; tests/backends/test_objects_on_servers.py has real ones.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.backends.judging import placed
from tests.backends.loopback import Answer, Ask, Fate, Loopback
from tests.kit.cases import for_each
from transcript_store import ConversationLibrary, ConversationNotFoundError, MissingExtraError
from transcript_store.backends import BackendError, ObjectStoreBackend, OutcomeUnknownError, UnsuitableBackendError
from transcript_store.backends._bucket import Bucket, ListedObject, StoredObject
from transcript_store.backends._slots import flattened
from transcript_store.installation import install_command
from transcript_store.testing import check_backend

KEY, SECRET, TOKEN = "AKIAOFNOBODY", "secret-of-nobody", "token-of-nobody"
BODY = "SENT-BY-THE-SERVER"


def backend_at(server: Loopback, **more: Any) -> ObjectStoreBackend:
    return ObjectStoreBackend(
        "s3://bucket/agents",
        endpoint=server.endpoint,
        region="us-east-1",
        access_key_id=KEY,
        secret_access_key=SECRET,
        session_token=TOKEN,
        retry_config={"max_retries": 0},
        **more,
    )


def test_objects_in_memory_keep_the_contract():
    """E1 and those behind it."""
    backend = ObjectStoreBackend("memory:///agents")
    check_backend(lambda: backend)


def test_each_object_has_its_name(tmp_path: Path):
    """Slots, packs and probes are where the documentation says; what is named otherwise is passed over."""
    backend = ObjectStoreBackend(f"file://{tmp_path}")
    log = placed(backend, pack_each=3)
    log.initialize()
    for text in ("one", "two", "three"):
        log.append_message({"text": text})
    names = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "c").rglob("*") if path.is_file())
    there = f"c/{log.id}"
    assert names == [
        f"{there}/p/000000000003-000000000001",
        *(f"{there}/s/{slot:012}" for slot in (1, 2, 3, 4)),
    ]
    for foreign in (f"{there}/s/000000000005.bak", f"{there}/p/notes", "c/readme", f"{there}/s/x/000000000009"):
        (tmp_path / foreign).parent.mkdir(exist_ok=True)
        (tmp_path / foreign).write_bytes(b"of somebody")
    reader = placed(backend, log.id, read_only=True)
    reader.load()
    assert reader.get_messages() == log.get_messages()
    assert backend.conversations() == [log.id]


def test_a_folder_cannot_replace_an_object_only_if_it_is_unchanged(tmp_path: Path):
    """The incident: a library on ``file://`` raised the client library's ``NotImplementedError``."""
    backend = ObjectStoreBackend(f"file://{tmp_path}")
    one = str(uuid4())
    assert backend.put_key(one, b"a key", None)
    with pytest.raises(BackendError, match="does not support that") as caught:
        backend.put_key(one, b"another", b"a key")
    assert caught.value.outcome == "not stored"


def test_a_conversation_without_a_summary_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """R11: a list shows it, without facts, until the next writer opens it; and never one whose first slot was not put, or was expunged."""

    def killed(*_: object) -> None:
        raise OutcomeUnknownError("nobody hears it")

    backend = ObjectStoreBackend("memory:///agents")
    library = ConversationLibrary(backend)
    with monkeypatch.context() as patched:
        patched.setattr(backend, "put_summary", killed)
        left = library.create(messages=[{"role": "user", "content": "Hello"}]).id
    assert [(summary.id, summary.damage, summary.record_count) for summary in library.list()] == [(left, None, None)]
    with library.open(left, take_over=True):
        pass
    assert [(summary.id, summary.record_count) for summary in library.list()] == [(left, 1)]

    with monkeypatch.context() as patched:
        patched.setattr(backend, "put_summary", killed)
        with library.create() as conversation:
            gone = conversation.id
        library.delete(gone)
    assert [summary.id for summary in library.list()] == [left]

    marked = tmp_path / "d" / "2026-11-24" / str(uuid4())  # killed between the mark and slot 1
    marked.parent.mkdir(parents=True)
    marked.write_bytes(b"")
    assert ObjectStoreBackend(f"file://{tmp_path}").summaries() == []


@pytest.mark.parametrize("moment", ["before it is read", "before the mark", "before it is put", "behind it"])
def test_a_delete_at_any_moment_of_a_summary_is_the_last_word(moment: str, monkeypatch: pytest.MonkeyPatch):
    """The incident: a writer left its summary behind a delete, and title and labels stood in the list again."""
    backend = ObjectStoreBackend("memory:///agents")
    library = ConversationLibrary(backend)
    with library.create(labels={"title": "Not for you"}) as conversation:
        one = conversation.id
    (summary,) = backend.summaries()
    backend._marked.clear()  # the day is another one
    due = ["before it is read", "before the mark", "before it is put"]
    real = Bucket._asked  # each request goes through it

    def asking(self: Bucket, doing: str, act: Any) -> Any:
        if due.pop(0) == moment:
            monkeypatch.setattr(Bucket, "_asked", real)
            library.delete(one)
        return real(self, doing, act)

    monkeypatch.setattr(Bucket, "_asked", asking)
    backend.put_summary(summary)
    monkeypatch.setattr(Bucket, "_asked", real)
    if moment == "behind it":
        assert (due, [listed.title for listed in library.list()]) == ([], ["Not for you"])
        library.delete(one)
    assert library.list() == []


def test_a_pack_that_comes_behind_a_delete_goes_with_the_next_one():
    """Its name was free. The conversation stays deleted, and no reader uses the pack; the next delete empties it."""
    backend = ObjectStoreBackend("memory:///agents")
    library = ConversationLibrary(backend)
    with library.create(messages=[{"text": "Not for you"}]) as conversation:
        one = conversation.id
    slots = [data for _, data in flattened(backend.read(one), 0)]
    library.delete(one)
    backend.put_pack(one, 1, len(slots), b"".join(slots))
    assert library.list() == []
    for is_there in (True, False):
        assert any(b"Not for you" in piece.data for piece in backend.read(one)) == is_there
        with pytest.raises(ConversationNotFoundError, match="deleted"):
            library.open(one, read_only=True)
        with pytest.raises(ConversationNotFoundError, match="deleted"):
            library.delete(one)


def test_what_was_deleted_costs_a_list_nothing(monkeypatch: pytest.MonkeyPatch):
    """Its mark is gone, even if a summary comes late, and its summary is not requested."""
    backend = ObjectStoreBackend("memory:///agents")
    library = ConversationLibrary(backend)
    for _ in range(3):
        with library.create(messages=[{"text": "x"}]) as conversation:
            one = conversation.id
        (summary,) = backend.summaries()
        library.delete(one)
        backend.put_summary(summary)
    asked = asked_of(monkeypatch)
    assert (library.list(), asked) == ([], [])


def test_an_append_is_one_request():
    """And a claim is one list of slots, one of packs, a get for each slot that no pack holds, the claim, and its confirmation."""
    backend = ObjectStoreBackend("memory:///agents")
    puts: list[int] = []
    put = backend.put
    backend.put = lambda *given: puts.append(given[1]) or put(*given)  # type: ignore[method-assign, func-returns-value]
    backend.read = None  # type: ignore[method-assign, assignment]
    backend.packs_from = lambda *given: False  # type: ignore[method-assign]
    log = placed(backend)
    log.initialize()
    for _ in range(5):
        log.append_message({"text": "x"})
    assert puts == [1, 2, 3, 4, 5, 6]


def asked_of(patch: pytest.MonkeyPatch, before: Callable[[str], object] = lambda folder: None) -> list[str]:
    """The lists and gets from now on; ``before`` is called before each list, and may act."""
    asked: list[str] = []
    real_list, real_get = Bucket.list, Bucket.get

    def listing(self: Bucket, folder: str, after: str = "") -> Iterator[list[ListedObject]]:
        before(folder)
        asked.append(f"list {folder[-1]}")
        return real_list(self, folder, after)

    def getting(self: Bucket, key: str) -> StoredObject | None:
        asked.append("get")
        return real_get(self, key)

    patch.setattr(Bucket, "list", listing)
    patch.setattr(Bucket, "get", getting)
    return asked


def test_an_open_is_two_lists_and_a_get_for_each_pack(monkeypatch: pytest.MonkeyPatch):
    """And one for each slot behind them. What was removed once it was packed is no reason to list again."""
    backend = ObjectStoreBackend("memory:///agents")
    log = placed(backend)
    log.initialize()
    for tidy in (False, True):
        for _ in range(4):
            log.append_message({"text": "x"})
        log.pack(tidy=tidy)
    log.append_message({"text": "behind"})
    asked = asked_of(monkeypatch)
    placed(backend, log.id, read_only=True).load()
    assert asked == ["list p", "list s", "get", "get", "get"]


@pytest.mark.parametrize("is_new", [True, False])
def test_what_is_packed_and_removed_between_two_lists_is_read(is_new: bool, monkeypatch: pytest.MonkeyPatch):
    """R9: single slots that existed when packs were listed are gone when slots are. The last one exists, and says that
    packs must be listed again.
    """
    backend = ObjectStoreBackend("memory:///agents")
    log = placed(backend)
    log.initialize()
    for _ in range(3):
        log.append_message({"text": "x"})
    if not is_new:
        log.pack()
        log.append_message({"text": "x"})

    def goes_on(folder: str) -> None:
        if folder.endswith("/s") and not done:
            done.append(folder)
            log.append_message({"text": "x"})
            log.pack(tidy=True)

    done: list[str] = []
    asked_of(monkeypatch, goes_on)
    slots = [slot for slot, _ in flattened(backend.read(log.id), 0)]
    assert done
    assert slots == [*range(1, 6 if is_new else 7)]


def test_ids_are_listed_over_pages():
    """A conversation of 2,500 slots is between two others: it is skipped with its own request."""
    backend = ObjectStoreBackend("memory:///agents")
    ids = sorted(str(uuid4()) for _ in range(3))
    for each, slots in zip(ids, (1, 2500, 1), strict=True):
        for slot in range(1, slots + 1):
            assert backend.put(each, slot, b"x", b"")
    assert backend.conversations() == ids
    assert [backend.conversations(limit=1, after=after) for after in ("", *ids)] == [[ids[0]], [ids[1]], [ids[2]], []]
    assert [len(backend.read(ids[1], after)) for after in (0, 2499, 2500)] == [2500, 1, 0]


def test_packed_slots_are_read_once():
    """A pack within another is not fetched, nor a slot that a pack holds."""
    backend = ObjectStoreBackend("memory:///agents")
    one = str(uuid4())
    for slot in range(1, 7):
        backend.put(one, slot, b"%d" % slot, b"")
    for first, last in ((1, 2), (1, 4), (3, 5)):
        backend.put_pack(one, first, last, b"of %d" % first)
    assert sorted((piece.first, piece.last, piece.is_pack) for piece in backend.read(one)) == [
        (1, 4, True),
        (3, 5, True),
        (6, 6, False),
    ]


# ---- what is told ------------------------------------------------------------------------------------------------------

REFUSED = [
    (Answer(400, f"<Error><Code>InvalidRequest</Code><Message>{BODY}</Message></Error>"), "400 (InvalidRequest)"),
    (
        Answer(403, f"<Error><Code>SignatureDoesNotMatch</Code><Message>{BODY}</Message></Error>"),
        "403 (SignatureDoesNotMatch)",
    ),
    (
        Answer(403, f"<Error><Code>RequestTimeTooSkewed</Code><Message>{BODY}</Message></Error>"),
        "403 (RequestTimeTooSkewed): set the clock of this machine",
    ),
    (Answer(401, BODY), "401"),
    (
        Answer(404, f"<Error><Code>NoSuchBucket</Code><Message>{BODY}</Message></Error>"),
        "(NoSuchBucket)",
    ),
    (Answer(405, BODY), "405"),
    (Answer(501, f"<Error><Code>Not{BODY}Implemented</Code></Error>"), "501"),
]
SILENT = [
    (Answer(500, BODY), "500"),
    (Answer(503, f"<Error><Code>SlowDown</Code><Message>{BODY}</Message></Error>"), "503 (SlowDown)"),
    (Answer(429, BODY), "429"),
    (Answer(408, BODY), "408"),
    (Fate.REFUSED, "did not answer"),
]


def tells_nothing(error: BaseException, server: Loopback) -> bool:
    behind: BaseException | None = error
    told = ""
    while behind is not None:  # what a debugger, or a service that collects errors, would find behind it
        told += "".join([str(behind), repr(behind), repr(vars(behind)), *traceback.format_exception_only(behind)])
        behind = behind.__cause__ or behind.__context__
    secrets = (KEY, SECRET, TOKEN, BODY, "127.0.0.1", str(server.port), "bytes-of-a-message")
    return not [secret for secret in secrets if secret in told]


@for_each("fate, says", REFUSED)
def test_what_the_store_refuses_is_not_stored(fate: Answer, says: str):
    """B1, B3: each call says so, with the status and the server's code, and no private data."""
    with Loopback(on_request=lambda ask: fate) as server:
        backend = backend_at(server)
        for call in (
            lambda: backend.put(str(uuid4()), 1, b"bytes-of-a-message", b""),
            lambda: backend.packs_from("x", 1),
        ):
            with pytest.raises(BackendError) as told:
                call()
            assert told.value.outcome == "not stored"
            assert says in str(told.value)
            assert told.value.path == "s3://bucket/agents"
            assert tells_nothing(told.value, server)
            assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)


@for_each("fate, says", SILENT)
def test_a_put_without_an_answer_is_unknown(fate: Answer | Fate, says: str):
    """B1, B3, R6: the backend does not know, and the log finds no answer either."""
    with Loopback(on_request=lambda ask: fate) as server:
        backend = backend_at(server)
        with pytest.raises(OutcomeUnknownError) as told:
            backend.put(str(uuid4()), 1, b"bytes-of-a-message", b"")
        assert says in str(told.value)
        assert tells_nothing(told.value, server)
        with pytest.raises(BackendError) as failed:
            placed(backend, waits_seconds=()).initialize(system_prompt="bytes-of-a-message")
        assert failed.value.outcome == "unknown"


def test_a_refusal_after_a_repeated_request_is_unknown():
    """B3: the client library sends a request again by itself; what it had sent first may have been done."""
    fates = [Answer(503), Answer(503), Answer(403)]
    with Loopback(on_request=lambda ask: fates.pop(0)) as server:
        backend = ObjectStoreBackend("s3://b", endpoint=server.endpoint, access_key_id=KEY, secret_access_key=SECRET)
        for answered in ("503", "403"):  # the first request is sent once: nobody has answered yet
            with pytest.raises(OutcomeUnknownError, match=answered):
                backend.put(str(uuid4()), 1, b"", b"")
    assert [ask.method for ask in server.asked] == ["PUT", "PUT", "PUT"]


@pytest.mark.parametrize("call", ["create", "swap"])
def test_a_no_after_a_repeated_request_is_unknown(call: str):
    """B3: what the client library had sent first may be what is there. Without that, a no is a no."""
    fates = [Answer(503), Answer(503), Answer(412), Answer(412)]
    with Loopback(on_request=lambda ask: fates.pop(0)) as server:
        bucket = Bucket(
            "s3://b", {"endpoint": server.endpoint, "access_key_id": KEY, "secret_access_key": SECRET}, None
        )
        there = () if call == "create" else (StoredObject(b"", '"1"', None),)
        for answered in ("503", "at first"):  # the first request is sent once: nobody has answered yet
            with pytest.raises(OutcomeUnknownError, match=answered):
                getattr(bucket, call)("x", b"", *there)
        assert not getattr(bucket, call)("x", b"", *there)


@pytest.mark.parametrize("ignores", [Answer(200), Answer(204)])
def test_a_server_that_ignores_conditions_is_refused(ignores: Answer):
    """R12: before the first write of a conversation, at each write, and readers are not bothered."""
    with Loopback(on_request=lambda ask: ignores) as server:
        backend = backend_at(server)
        for _ in range(2):
            with pytest.raises(UnsuitableBackendError) as told:
                placed(backend).initialize()
            assert told.value.outcome == "not stored"
            assert "If-None-Match" in str(told.value)
            assert tells_nothing(told.value, server)
    assert {ask.path.split("/")[3] for ask in server.puts("")} == {"probe"}


def test_a_server_that_keeps_conditions_is_asked_once():
    """A probe that is answered with 409 says nothing: another name is asked for."""
    seen: dict[str, int] = {}

    def keeps(ask: Ask) -> Answer:
        if ask.method == "PUT":
            seen[ask.path] = seen.get(ask.path, 0) + 1
            if len(seen) == 1:
                return Answer(409)
        return Answer(200 if ask.method != "PUT" or seen[ask.path] == 1 else 412)

    with Loopback(on_request=keeps) as server:
        backend = backend_at(server)
        assert [backend.put("a", slot, b"x", b"") for slot in (1, 2, 2)] == [True, True, False]
    probes = [ask.path for ask in server.puts("/probe/")]
    assert len(probes) - len(set(probes)) == 1


@for_each(
    "address",
    [
        f"s3://{KEY}:{SECRET}@bucket",
        f"https://nobody.blob.example/container?sig={SECRET}",
        f"what://{KEY}",
        f"s3://b?x={TOKEN}",
    ],
)
def test_an_address_is_not_repeated(address: str):
    """Text before an @ or after a ? is in no name, and no error repeats it."""
    try:
        name = ObjectStoreBackend(address).name
    except BackendError as error:
        name = "".join([str(error), repr(error), repr(error.__cause__ or error.__context__)])
    assert not [secret for secret in (SECRET, TOKEN, "blob.example") if secret in name]


def test_plain_http_goes_to_this_machine_alone():
    """For another machine it must be allowed explicitly."""
    backend = ObjectStoreBackend("s3://b", endpoint="http://192.0.2.1:9", access_key_id=KEY, secret_access_key=SECRET)
    with pytest.raises(BackendError, match="plain http") as told:
        backend.put("a", 1, b"", b"")
    assert "192.0.2.1" not in str(told.value)


# ---- processes ---------------------------------------------------------------------------------------------------------


def test_a_forked_child_is_refused_at_once():
    """B2: the client library would hang there, even with a backend that the child opened. The parent continues."""
    backend = ObjectStoreBackend("memory:///agents")
    backend.put("a", 1, b"", b"")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for opened in (backend, ObjectStoreBackend("memory:///agents")):
                try:
                    opened.read("a")
                except BackendError as error:
                    code = 7 if "forked" in str(error) and error.outcome == "not stored" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert backend.put("a", 2, b"", b"")


def test_the_client_library_is_imported_only_when_asked_for(monkeypatch: pytest.MonkeyPatch):
    """Without it, the extra is named; and ``transcript_store.backends`` needs none."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from transcript_store.backends import ObjectStoreBackend, BackendConversation; print('obstore' in sys.modules)",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout == "False\n"
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("objects"))):
        ObjectStoreBackend("s3://bucket")
