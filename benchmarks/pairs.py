"""Each operation, and the plainest way to do the same work on the same bytes. Made ready in a folder, then as often as one likes."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from itertools import count as counter
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.drivers.limit import plain_line
from benchmarks.messages import messages, some_messages, text_messages
from transcript_store import ConversationLibrary, ConversationStore, FileStore, Snapshot, verify
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
from transcript_store._log.record import GENESIS, SUFFIX_BYTES, close_line
from transcript_store._os.filesystem import REAL
from transcript_store.conversation import DEFAULT_CACHE_BYTES, Durability

TOP = Path(__file__).resolve().parent.parent
TRANSCRIPT = "transcript.jsonl"
KEY = bytes(range(32))
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_MEDIA = re.compile(rb'"(?:data:[^"]*;base64,|[A-Za-z0-9+/]{512,}={0,2}")')
_GO_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}

Message = dict[str, Any]


class Pair(NamedTuple):
    """Two ways to do the same; ``after`` is given what a call returned when the clock has stopped."""

    ours: Callable[[], Any]
    plain: Callable[[], Any]
    after: Callable[[Any], None] | None = None


def make_conversation(path: Path, count: int, *, at_once: int | None = None) -> Path:
    """A conversation of the first so many messages of the mix, each a record of its own, or appended so many ``at_once``."""
    given = islice(messages(), count)
    with ConversationStore(path) as store:
        store.initialize(messages=given if at_once is None else ())
        while at_once is not None and (batch := list(islice(given, at_once))):
            store.append_messages(batch)
    return path


# ---- appending -------------------------------------------------------------------------------------------------------


@contextmanager
def appending(folder: Path, *, durability: Durability, encoded_bytes: int) -> Iterator[Pair]:
    """One append, beside orjson, SHA-256, one write (and one sync) of as many bytes."""
    plain_file = os.open(folder / "plain", _NEW_FILE | os.O_APPEND)
    given = text_messages(64, encoded_bytes)
    turn = cycle(given)

    def write() -> None:
        os.write(plain_file, plain_line(next(turn)))
        if durability == "power-loss":
            REAL.sync_data(plain_file)

    with ConversationStore(folder / "appending", durability=durability) as store:
        store.initialize()
        yield Pair(append_to(store, given), write)
    os.close(plain_file)
    shutil.rmtree(folder / "appending")


def append_to(store: ConversationStore, given: list[Message]) -> Callable[[], object]:
    """An append of one of these messages after the other."""
    turn = cycle(given)
    return lambda: store.append_message(next(turn))


@contextmanager
def replacing(folder: Path, *, count: int) -> Iterator[Pair]:
    """replace_transcript(), beside encoding, hashing, writing and syncing as many bytes to a new file.

    New each time, for what was replaced stays in the archive: a file that is written again finds its pages warm.
    """
    given = some_messages(count)
    path = folder / "replacing"
    turn = counter()

    def replace_plainly() -> None:
        handle = os.open(path / f"plain-{next(turn)}", _NEW_FILE)
        os.write(handle, b"".join(map(plain_line, given)))
        os.fsync(handle)
        os.close(handle)

    with ConversationStore(path) as store:
        store.initialize(messages=given)
        yield Pair(lambda: store.replace_transcript(given), replace_plainly)
    shutil.rmtree(path)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _after_hashing(line: bytes) -> bytes:
    sha256(line).hexdigest()
    return line


@contextmanager
def loading(conversation: Path, *, read_only: bool, hashed: bool = False) -> Iterator[Pair]:
    """load(), which verifies every line, beside a loop that keeps what orjson makes of each line and verifies nothing.

    ``hashed``: the loop hashes each line too.
    """

    def load() -> ConversationStore:
        store = ConversationStore(conversation, read_only=read_only)
        store.load()
        return store

    def load_plainly() -> list[Any]:
        with (conversation / TRANSCRIPT).open("rb") as file:
            return [orjson.loads(_after_hashing(line) if hashed else line) for line in file]

    yield Pair(load, load_plainly, lambda loaded: loaded.close() if isinstance(loaded, ConversationStore) else None)


@contextmanager
def getting(conversation: Path, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Iterator[Pair]:
    """get_messages() of a loaded conversation, beside orjson on the same messages cut out beforehand."""
    member = re.compile(rb',"message":(.*),"hash":"[0-9a-f]{32}"\}\n')
    with (conversation / TRANSCRIPT).open("rb") as file:
        cut = [found[1] for line in file if (found := member.search(line))]
    with ConversationStore(conversation, read_only=True, cache_bytes=cache_bytes) as store:
        store.load()
        assert len(cut) == len(store.get_messages())
        yield Pair(store.get_messages, lambda: [orjson.loads(message) for message in cut])


@contextmanager
def loading_and_getting(conversation: Path, *, hashed: bool = False) -> Iterator[Pair]:
    """All messages of a conversation that is opened for it, beside what orjson makes of each line of its file.

    ``hashed``: as for :func:`loading`.
    """

    def read() -> list[Message]:
        with ConversationStore(conversation, read_only=True) as store:
            store.load()
            return store.get_messages()

    def read_plainly() -> list[Any]:
        with (conversation / TRANSCRIPT).open("rb") as file:
            lines = islice(file, 1, None)
            return [orjson.loads(_after_hashing(line) if hashed else line)["message"] for line in lines]

    assert read() == read_plainly()
    yield Pair(read, read_plainly)


@contextmanager
def verifying(conversation: Path, *, by_line: bool = False) -> Iterator[Pair]:
    """verify(), beside SHA-256 of the file, or of each line."""

    def hash_file() -> Any:
        with (conversation / TRANSCRIPT).open("rb") as file:
            return [sha256(line).hexdigest() for line in file] if by_line else file_digest(file, "sha256").digest()

    yield Pair(lambda: verify(conversation), hash_file)


@contextmanager
def reading_the_end(conversation: Path, *, count: int) -> Iterator[Pair]:
    """Opening a conversation to read its end, beside a plain look at the same lines."""
    transcript = conversation / TRANSCRIPT
    position = sum(map(len, transcript.read_bytes().splitlines(keepends=True)[:-count]))

    def read_plainly() -> list[Any]:
        with transcript.open("rb") as file:
            file.seek(position)
            return [orjson.loads(line)["message"] for line in file]

    assert last_messages(conversation, count) == read_plainly()
    yield Pair(lambda: last_messages(conversation, count), read_plainly)


def last_messages(conversation: Path, count: int) -> list[Message]:
    """Open a conversation and read its end, verifying what is read."""
    with ConversationStore(conversation, read_only=True) as store:
        store.load(verify="tail")
        return store.get_messages(last=count)


# ---- many conversations ----------------------------------------------------------------------------------------------


@contextmanager
def listing(folder: Path, *, count: int) -> Iterator[Pair]:
    """list(), beside reading and decoding metadata.json, the header line and the last record of each."""
    root = folder / "library"
    conversations = ConversationLibrary(root)
    labels = {"title": "a chat"}
    with conversations.create(labels=labels, system_prompt="x" * 200, messages=text_messages(8, 1024)) as store:
        made = Path(store.directory)
    for _ in range(count - 1):  # a create syncs, and takes its time
        chat = str(uuid.uuid4())
        shutil.copytree(made, root / chat)
        _rename(root / chat, made.name, chat)

    def look_plainly() -> list[tuple[Any, Any, Any]]:
        found = []
        for name in os.listdir(root):
            with open(f"{root}/{name}/metadata.json", "rb") as file:
                metadata = orjson.loads(file.read())
            with open(f"{root}/{name}/{TRANSCRIPT}", "rb") as file:
                header = orjson.loads(file.readline())
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 16 * 1024))
                last = orjson.loads(file.read().splitlines()[-1])
            found.append((metadata, header, last))
        return found

    assert [summary.damage for summary in conversations.list()] == [None] * count
    yield Pair(conversations.list, look_plainly)
    shutil.rmtree(root)


def _rename(folder: Path, old: str, new: str) -> None:
    """Give a copy of a conversation its own id: every hash of it is made anew."""
    head = GENESIS
    lines = []
    for line in (folder / TRANSCRIPT).read_bytes().splitlines():
        sealed, head = close_line(head, line[:-SUFFIX_BYTES].replace(old.encode(), new.encode()))
        lines.append(sealed)
    (folder / TRANSCRIPT).write_bytes(b"".join(lines))
    document = decode_document((folder / "metadata.json").read_bytes())
    assert isinstance(document, MetadataDocument)
    assert document.mark is not None
    mark = document.mark._replace(position=document.mark.position._replace(head=head))
    (folder / "metadata.json").write_bytes(encode_document({**document.members, "id": new}, mark))


# ---- snapshots -------------------------------------------------------------------------------------------------------


@contextmanager
def listing_snapshots(folder: Path, *, count: int, key: bytes | None, decoded: bool = False) -> Iterator[Pair]:
    """list() of snapshots of 50 messages, beside reading (and opening) the same files, and decoding them, if that is asked for."""
    root = folder / "snapshots"
    mix = some_messages(2_000, images=False)
    store = FileStore(root, encryption_key=key)
    models = [
        Snapshot.create(provider="claude", model="a-model", messages=mix[at : at + 50]) for at in range(0, len(mix), 50)
    ]
    store.save(models[0])
    texts = cycle([(model.id.encode(), model.to_json()) for model in models])
    for (old, text), new in zip(texts, (str(uuid.uuid4()) for _ in range(count - 1)), strict=False):
        # as save() writes them, without its syncs
        (root / f"{new}.json").write_bytes(store.keys.seal(REAL.random_bytes(12), text.replace(old, new.encode())))
    assert len(store.list()) == count

    def read_plainly() -> Any:
        texts = [store.keys.open(path.read_bytes()) for path in root.glob("*.json")]
        return [len(orjson.loads(text)["messages"]) if decoded else len(text) for text in texts]

    yield Pair(store.list, read_plainly)
    shutil.rmtree(root)


@contextmanager
def saving(folder: Path, *, count: int, key: bytes | None) -> Iterator[Pair]:
    """A snapshot made of messages and saved, beside the text with Go's escapes, a look for media (the seal), a write and a sync."""
    root = folder / "saving"
    given = some_messages(count, images=False)
    store = FileStore(root, encryption_key=key)
    first = Snapshot.create(provider="claude", messages=given)
    store.save(first)

    def save_plainly() -> None:
        text = orjson.dumps({"id": first.id, "messages": given, "version": 1}, option=orjson.OPT_INDENT_2)
        for character, escape in _GO_ESCAPES.items():
            text = text.replace(character, escape)
        assert _MEDIA.search(text) is None
        handle = os.open(root / "plain", _NEW_FILE)
        os.write(handle, store.keys.seal(REAL.random_bytes(12), text))
        os.fsync(handle)
        os.close(handle)

    yield Pair(lambda: store.save(Snapshot.create(provider="claude", messages=given, id=first.id)), save_plainly)
    shutil.rmtree(root)


@contextmanager
def restoring(folder: Path, *, count: int, key: bytes | None) -> Iterator[Pair]:
    """A snapshot loaded, with its messages, beside reading its file (opening the seal), a look for media, and orjson."""
    root = folder / "restoring"
    store = FileStore(root, encryption_key=key)
    snapshot = Snapshot.create(provider="claude", messages=some_messages(count, images=False))
    store.save(snapshot)

    def load_plainly() -> Any:
        text = store.keys.open((root / f"{snapshot.id}.json").read_bytes())
        assert b'"chatmedia+sha256:' not in text
        return orjson.loads(text)["messages"]

    yield Pair(lambda: store.load(snapshot.id).messages, load_plainly)
    shutil.rmtree(root)
