"""``FileStore``: what is stored is what comes back, or an error says why not.

The store shares its files with a Go library that writes in place, trusts a file for its name and lists what it can read. The
tests here are of three kinds: its files and ours mean the same; what it lets pass is an error here, each by its own name;
and nothing that somebody else does to the directory (other keys, other bytes, links, pipes) is believed.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import errno
import json
import logging
import os
import pickle
import re
import shutil
import stat
import threading
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_snapshots import json_values
from transcript_store import (
    ConversationLockedError,
    CorruptSnapshotError,
    DecryptionError,
    FileStore,
    InvalidKeyError,
    InvalidMessageError,
    InvalidSnapshotIdError,
    MemorySnapshotStore,
    Snapshot,
    SnapshotNotFoundError,
    SnapshotStore,
    StorageError,
    ToolSnapshot,
    TranscriptStoreError,
    UnsupportedVersionError,
    WayOut,
    generate_encryption_key,
)
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import REAL
from transcript_store._os.lock import Lock
from transcript_store._snapshots import file_store
from transcript_store._snapshots import files as _snapshot_files
from transcript_store._snapshots import media as _media
from transcript_store.testing import Call, SimulatedFileSystem, check_snapshot_store
from transcript_store.testing._snapshot_contract import CONTRACT

VECTORS = Path(__file__).parent / "vectors"
INDEX = json.loads((VECTORS / "index.json").read_text())
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
IMAGE = base64.b64encode(bytes(range(256)) * 8).decode()
OTHER_IMAGE = base64.b64encode(bytes(range(255, -1, -1)) * 8).decode()
IMAGE_NAME = sha256(IMAGE.encode()).hexdigest()
BOTH = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


def snapshot(*messages: Any, **fields: Any) -> Snapshot:
    return Snapshot.create(**{"provider": "claude", "model": "a-model", "messages": messages, **fields})


def store_at(path: Path, key: bytes | None = None, **options: Any) -> FileStore:
    return FileStore(path / "store", encryption_key=key, **options)


def error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except TranscriptStoreError as error:
        return error
    return None


def kinds(store: FileStore) -> list[str]:
    return [finding.kind for finding in store.verify()]


# ---- the contract -----------------------------------------------------------------------------------------------------


def numbered(tmp_path: Path, key: bytes | None) -> Callable[[], SnapshotStore]:
    made: list[FileStore] = []

    def make() -> SnapshotStore:
        made.append(FileStore(tmp_path / f"store-{len(made)}", encryption_key=key))
        return made[-1]

    return make


@BOTH
def test_a_file_store_keeps_the_contract(tmp_path: Path, key: bytes | None) -> None:
    """Every numbered line of ``check_snapshot_store``, sealed and plain."""
    check_snapshot_store(numbered(tmp_path, key))


def test_a_memory_store_keeps_the_contract() -> None:
    """The same."""
    check_snapshot_store(MemorySnapshotStore)


class Broken(MemorySnapshotStore):
    """A store that breaks one line of the contract."""

    how = ""

    def save(self, snapshot: Any) -> None:
        if self.how == "adds" and self.list():
            return
        if self.how == "anything":
            snapshot = snapshot if isinstance(snapshot, Snapshot) else Snapshot.create(provider="p", messages=[])
        if self.how == "messages":
            snapshot = Snapshot.create(
                **{**_fields(snapshot), "messages": snapshot.messages if _plain(snapshot) else []}
            )
        if self.how == "metadata":
            snapshot = Snapshot.create(**{**_fields(snapshot), "metadata": {}, "messages": None})
        super().save(snapshot)

    def load(self, id: str) -> Snapshot:
        if self.how == "bad id":
            try:
                return super().load(id)
            except InvalidSnapshotIdError as error:
                raise SnapshotNotFoundError(id="") from error
        if self.how == "not found":
            try:
                return super().load(id)
            except SnapshotNotFoundError as error:
                raise InvalidSnapshotIdError(reason="not found", id="") from error
        return super().load(id)

    def list(self) -> Any:
        found = super().list()
        return found[::-1] if self.how == "order" else ["ghost"] if self.how == "ghost" else found

    def delete(self, id: str) -> None:
        super().delete(id)
        if self.how == "delete":
            self._stored.clear()


def _fields(one: Snapshot) -> dict[str, Any]:
    return {"id": one.id, "provider": one.provider, "model": one.model, "created_at": one.created_at, "messages": None}


def _plain(one: Snapshot) -> bool:
    try:
        Snapshot.create(provider="", messages=one.messages)
    except InvalidMessageError:
        return False
    return True


@pytest.mark.parametrize(
    "how", ["adds", "anything", "messages", "metadata", "bad id", "not found", "order", "ghost", "delete"]
)
def test_the_contract_objects_to_a_broken_store(how: str) -> None:
    """Its silence about ours would mean nothing otherwise; and it says which line is broken."""
    broken = type("Broken", (Broken,), {"how": how})
    with pytest.raises(AssertionError, match=r"^S\d+, "):
        check_snapshot_store(broken)


def test_every_line_of_the_contract_says_what_it_demands() -> None:
    """The message of a failure begins with its number and that sentence."""
    assert all(check.__doc__ for check in CONTRACT)


# ---- the vectors ------------------------------------------------------------------------------------------------------


def vector(name: str, tmp_path: Path, key: bytes | None) -> FileStore:
    shutil.copytree(VECTORS / name / "store", tmp_path / "store")
    return FileStore(tmp_path / "store", encryption_key=key)


@pytest.mark.parametrize("case", INDEX["vectors"], ids=lambda case: case["name"])
def test_what_go_stored_is_loaded_as_go_loads_it(case: Any, tmp_path: Path) -> None:
    """Every store that the Go library wrote: plain, sealed, with media; and its listing."""
    folder = VECTORS / case["name"]
    store = vector(case["name"], tmp_path, KEY if case["encrypted"] else None)
    assert json.loads(store.load(case["id"]).to_json()) == json.loads((folder / "loaded.json").read_bytes())
    (listed,) = json.loads((folder / "list.json").read_bytes())
    (summary,) = store.list()
    assert {name: getattr(summary, name) for name in listed} == listed
    assert store.verify() == []


@pytest.mark.parametrize("case", INDEX["vectors"], ids=lambda case: case["name"])
def test_what_we_store_is_what_go_stores(case: Any, tmp_path: Path) -> None:
    """The same names, modes and sizes; the media's bytes; what is sealed holds the same; nothing but our lock besides."""
    folder = VECTORS / case["name"]
    store = store_at(tmp_path, KEY if case["encrypted"] else None)
    given = Snapshot.from_json((folder / "input.json").read_bytes())
    store.save(given)
    assert store.load(given.id) == given
    found = {
        f"store/{path.relative_to(store.directory)}": path
        for path in Path(store.directory).rglob("*")
        if path.is_file()
    }
    assert found.pop("store/lock")
    assert found.keys() == {file["path"] for file in case["files"]}
    for file in case["files"]:
        path = found[file["path"]]
        assert stat.S_IMODE(path.stat().st_mode) == int(file["mode"], 8)
        if not given.tools:  # whose parameters Go changes
            assert path.stat().st_size == file["bytes"]
        if "media" in file["path"] and not case["encrypted"]:
            assert path.read_bytes() == (folder / file["path"]).read_bytes()
    for name, mode in case["dir_modes"].items():
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == int(mode, 8)


DAMAGE: dict[str, list[str]] = {
    "neg-media-missing": ["missing"],
    "neg-truncated-json": ["damaged"],
    "neg-wrong-key": ["unopened"],
    "neg-no-key-on-encrypted": ["unopened"],
    "neg-ciphertext-bit-flipped": ["unopened"],
    "neg-bad-id": [],
    "neg-list-skips-foreign-names": ["damaged", "wrong-id"],  # and no word of files under other names
}
EXPECTED = {
    "neg-media-missing": CorruptSnapshotError,
    "neg-truncated-json": CorruptSnapshotError,
    "neg-wrong-key": DecryptionError,
    "neg-no-key-on-encrypted": DecryptionError,
    "neg-ciphertext-bit-flipped": DecryptionError,
    "neg-bad-id": InvalidSnapshotIdError,
    "neg-list-skips-foreign-names": CorruptSnapshotError,
}


@pytest.mark.parametrize("case", INDEX["negative"], ids=lambda case: case["name"])
def test_what_go_refuses_is_refused_by_name(case: Any, tmp_path: Path) -> None:
    """And one thing more: a file that holds another id than its name, which Go loads as an empty snapshot."""
    store = vector(case["name"], tmp_path, None if case["key"] == "-" else bytes.fromhex(case["key"]))
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert type(error_of(lambda: store.load(case["id"]))) is EXPECTED[case["name"]]
    assert kinds(store) == DAMAGE[case["name"]]
    listed = [summary.id for summary in store.list()]
    assert listed == [summary["id"] for summary in json.loads(case["list"]) or () if summary["id"]]
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before


# ---- round trips ------------------------------------------------------------------------------------------------------

awkward = st.sampled_from(
    [
        IMAGE,
        "data:image/png;base64," + IMAGE,
        "chatmedia+sha256:",
        "chatmedia+sha256:" + "0" * 64,
        "a" * 511,
        "a" * 512,
        "\n" * 512,
        "=" * 512,
        "<&>\u2028" * 200,
    ]
)


@settings(max_examples=60)
@given(st.lists(json_values | awkward | st.dictionaries(awkward, awkward, max_size=2), max_size=4), st.booleans())
def test_any_json_value_survives_sealed_and_plain(values: list[Any], is_sealed: bool) -> None:
    """Saved and loaded, by another store: equal, whatever it holds, media or not."""
    disk = SimulatedFileSystem()
    options: dict[str, Any] = {"encryption_key": KEY if is_sealed else None, "file_system": disk}
    one = snapshot(*values)
    FileStore("/store", **options).save(one)
    again = FileStore("/store", **options)
    assert again.load(one.id).messages == values
    assert again.load(one.id) == one
    assert again.list()[0].message_count == len(values)
    assert again.verify() == []


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("a" * 512, True), ("a" * 511, False), ("a" * 508, False), ("a" * 513, False), ("a" * 514 + "==", True), ("a" * 515 + "=", True),
        ("a" * 513 + "===", False), ("=" * 512, False), ("-_" * 300, False), (("a" * 76 + "\r\n") * 8, True), ("a" * 600 + " ", False),
        ("data:x;base64," + "?" * 498, True), ("data:x;base64," + "?" * 497, False), ("data:x," + "?" * 600, False), ("xdata:;base64," + "?" * 600, False),
        ("é" * 300, False), ("data:;base64," + "é" * 250, True), ("chatmedia+sha256:", True), ("chatmedia+sha256", False), ("\n" * 512, True), ("word " * 200, False),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, str) else str(value),
)  # fmt: skip
def test_which_texts_are_moved(text: str, moves: bool) -> None:
    """The rule of Go's ``StdEncoding``, and one more: a text that looks like a reference is moved at any length."""
    moved: dict[str, bytes] = {}
    for written in (
        json.dumps([text], separators=(",", ":")),
        json.dumps([text], ensure_ascii=False, separators=(",", ":")),
    ):
        moved.clear()
        out = _media.move_out(written.encode(), moved.__setitem__)
        assert bool(moved) is moves
        assert json.loads(_media.move_in(out, moved.__getitem__)) == [text]


def test_what_looks_like_a_reference_however_it_is_spelled() -> None:
    r"""``\u0063hatmedia`` is ``chatmedia``: both ways, and never in a key."""
    written = b'["\\u0063hatmedia+sha256:x",{"chatmedia+sha256:k":"\\u0063hat"}]'
    moved: dict[str, bytes] = {}
    out = _media.move_out(written, moved.__setitem__)
    assert list(moved.values()) == [b"chatmedia+sha256:x"]
    assert out.endswith(b',{"chatmedia+sha256:k":"\\u0063hat"}]')
    spelled = out.replace(b'"chat', b'"\\u0063hat', 1)
    assert json.loads(_media.move_in(spelled, moved.__getitem__)) == json.loads(written)
    assert _media.references(spelled) == set(moved)


@pytest.mark.parametrize("text", ["chatmedia+sha256:x", "data:x;base64," + "?" * 498, "a" * 512])
def test_one_character_that_is_escaped_hides_nothing(text: str) -> None:
    """Wherever it stands."""
    for at in range(min(20, len(text))):
        moved: dict[str, bytes] = {}
        written = f'[0,"{text[:at]}\\u{ord(text[at]):04x}{text[at + 1 :]}"]'
        _media.move_out(written.encode(), moved.__setitem__)
        assert [value.decode() for value in moved.values()] == json.loads(written)[1:]


_PIECES = [
    "a" * 511,
    "a" * 512,
    "a",
    "=",
    "\r\n",
    '"',
    "\\",
    "/",
    "data:",
    ";base64,",
    "chatmedia+sha256:",
    "c",
    "d",
    " ",
    ",",
    ":",
    "é",
    "\0",
]
_texts = st.lists(st.sampled_from(_PIECES), max_size=5).map("".join)
_documents = st.recursive(
    _texts | st.sampled_from([None, 1, -0.5, 10**600]),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(_texts, children, max_size=3),
    max_leaves=12,
)


@given(value=_documents, spelling=st.randoms(use_true_random=False), how_many=st.sampled_from([0, 0.001, 0.3]))
def test_what_is_moved_is_what_reading_every_string_would_move(value: Any, spelling: Random, how_many: float) -> None:
    """Wherever it stands, whatever stands beside it, and however its characters are escaped."""

    def is_meant(text: str) -> bool:
        data, digits = text.encode(), re.sub("[\r\n]", "", text)
        is_base64 = re.fullmatch("[A-Za-z0-9+/]*={0,2}", digits) is not None and len(digits) % 4 == 0
        is_media = len(data) >= 512 and (is_base64 or (text.startswith("data:") and ";base64," in text))
        return is_media or text.startswith("chatmedia+sha256:")

    def moved_out(node: Any) -> Any:
        if isinstance(node, str) and is_meant(node):
            expected.add(node.encode())
            return f"chatmedia+sha256:{sha256(node.encode()).hexdigest()}"
        if isinstance(node, list):
            return [moved_out(child) for child in node]
        return {key: moved_out(child) for key, child in node.items()} if isinstance(node, dict) else node

    def character(one: str) -> str:
        if one == "/" or spelling.random() >= how_many:
            return "\\/" if one == "/" and how_many else json.dumps(one, ensure_ascii=False)[1:-1]
        return f"\\u{ord(one):04X}"

    def written_as(node: Any) -> str:
        if isinstance(node, str):
            return '"{}"'.format("".join(map(character, node)))
        if isinstance(node, list):
            return "[{}]".format(",".join(map(written_as, node)))
        if isinstance(node, dict):
            return "{{{}}}".format(",".join(f"{written_as(key)}:{written_as(child)}" for key, child in node.items()))
        return json.dumps(node)

    written = written_as(value)
    assert json.loads(written) == value
    expected: set[bytes] = set()
    moved: dict[str, bytes] = {}
    out = _media.move_out(written.encode(), moved.__setitem__)
    assert json.loads(out) == moved_out(value)
    assert set(moved.values()) == expected
    assert json.loads(_media.move_in(out, moved.__getitem__)) == value
    if not expected:
        assert out == written.encode()


@pytest.mark.parametrize("offset", range(16))
def test_media_beside_media_is_found(offset: int) -> None:
    """Wherever it begins, though nothing but a few characters stands between two, and neither is longer than it must be."""
    texts = ["word " * 3 + "x" * offset, "a" * 512, "b" * 512, "c" * 1024, "d" * 511, "e" * 512]
    moved: dict[str, bytes] = {}
    _media.move_out(json.dumps(texts, separators=(",", ":")).encode(), moved.__setitem__)
    assert list(moved.values()) == [text.encode() for text in texts if len(text) >= 512]


def test_media_is_stored_once(tmp_path: Path) -> None:
    """Twice in one snapshot and once in another: one file, and the snapshots are small."""
    store = store_at(tmp_path)
    store.save(snapshot(IMAGE, {"data": IMAGE}))
    store.save(snapshot(IMAGE))
    assert [path.name for path in (tmp_path / "store/media").iterdir()] == [IMAGE_NAME]
    assert all(summary.size_bytes < 500 for summary in store.list())


def test_the_order_of_keys_stays_when_media_is_moved() -> None:
    """Go sorts them and rewrites numbers; here only the text of the media changes."""
    disk = SimulatedFileSystem()
    written = b'[{"z":1.0,"a":1e3,"z":12345678901234567890123,"m":"%b"}]' % IMAGE.encode()
    one = Snapshot.from_json(b'{"id":"%b","messages":%b}' % (snapshot().id.encode(), written))
    FileStore("/store", file_system=disk).save(one)
    assert FileStore("/store", file_system=disk).load(one.id).messages_json == written


# ---- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_media", [False, True])
def test_every_byte_of_a_sealed_snapshot_counts(with_media: bool) -> None:
    """P17: any one byte changed, in the snapshot or in its media, is an error, whatever it is changed to."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", encryption_key=KEY, file_system=disk)
    one = snapshot("chatmedia+sha256:x" if with_media else "text", created_at="2026-03-31T12:00:00Z")
    store.save(one)
    flipped = 0
    for path, content in disk.tree().items():
        if content is None or path.endswith("lock"):
            continue
        for offset in range(len(content)):
            for bit in (0x01, 0x80):
                disk.write_file(path, content[:offset] + bytes([content[offset] ^ bit]) + content[offset + 1 :])
                assert type(error_of(lambda: store.load(one.id))) is DecryptionError
                flipped += 1
        disk.write_file(path, content)
    assert store.load(one.id) == one
    assert flipped > 300


def test_a_plain_file_that_is_damaged_is_not_taken_for_a_sealed_one(tmp_path: Path) -> None:
    """P17: whether it is sealed shows where it begins; a byte behind that, with which it is not UTF-8, is damage. Media too."""
    store = store_at(tmp_path)
    one, other = snapshot("é" * 5_000), snapshot("A" * 8_000)
    store.save(one)
    store.save(other)
    (media,) = (tmp_path / "store/media").iterdir()
    for path in (tmp_path / f"store/{one.id}.json", media):
        content = path.read_bytes()
        path.write_bytes(content[:-400] + b"\xff" + content[-399:])
    for damaged, kind in ((one.id, "damaged"), (other.id, "wrong-media")):
        error = error_of(partial(store.load, damaged))
        assert isinstance(error, CorruptSnapshotError)
        assert error.kind == kind
    assert [summary.id for summary in store.list()] == [other.id]
    assert sorted(kinds(store)) == ["damaged", "wrong-media"]


def test_every_cut_of_a_file_is_an_error() -> None:
    """P17: a sealed file that was cut anywhere does not open; a plain one is not JSON any more."""
    for key, expected in ((KEY, DecryptionError), (None, CorruptSnapshotError)):
        disk = SimulatedFileSystem()
        store = FileStore("/store", encryption_key=key, file_system=disk)
        one = snapshot("text")
        store.save(one)
        path = f"/store/{one.id}.json"
        content = disk.tree()[path] or b""
        for length in range(len(content)):
            disk.write_file(path, content[:length])
            assert isinstance(error_of(partial(store.load, one.id)), expected), length
            assert store.list() == []


@BOTH
def test_media_is_held_to_its_hash(tmp_path: Path, key: bytes | None) -> None:
    """P17: media that was exchanged, changed or removed is an error; Go reads it as if nothing were."""
    store = store_at(tmp_path, key)
    one, other = snapshot(IMAGE), snapshot(OTHER_IMAGE)
    store.save(one)
    store.save(other)
    media = tmp_path / "store/media"
    (second,) = {path.name for path in media.iterdir()} - {IMAGE_NAME}
    first = (media / IMAGE_NAME).read_bytes()
    (media / IMAGE_NAME).write_bytes((media / second).read_bytes())
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert (error.kind, error.path) == ("wrong-media", str(media / IMAGE_NAME))
    assert store.load(other.id) == other
    assert kinds(store) == ["wrong-media"]
    (media / IMAGE_NAME).unlink()
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert (error.kind, error.path) == ("missing", str(media / IMAGE_NAME))
    assert kinds(store) == ["missing"]
    shutil.rmtree(media)
    assert kinds(store) == ["missing", "missing"]
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "missing"
    media.mkdir()
    (media / IMAGE_NAME).write_bytes(first)
    assert store.load(one.id) == one


@BOTH
def test_saving_mends_media_and_never_trusts_it(tmp_path: Path, key: bytes | None) -> None:
    """A medium that is there under the right name with the wrong content is replaced by who has the right one."""
    store = store_at(tmp_path, key)
    (tmp_path / "store/media").mkdir(parents=True)
    (tmp_path / "store/media" / IMAGE_NAME).write_bytes(b"somebody else's")
    one = snapshot(IMAGE)
    store.save(one)
    assert store.load(one.id) == one
    assert store.verify() == []


def test_media_that_is_not_sealed_is_sealed_by_a_save(tmp_path: Path) -> None:
    """P17: in a store with a key, what stands there in the clear is replaced; and with a retired key, renewed."""
    store_at(tmp_path).save(snapshot(IMAGE))
    for path in (tmp_path / "store").glob("*.json"):
        path.unlink()
    media = tmp_path / "store/media" / IMAGE_NAME
    store = store_at(tmp_path, KEY)
    store.save(snapshot(IMAGE))
    assert IMAGE.encode() not in media.read_bytes()
    renewed = snapshot(IMAGE)
    store_at(tmp_path, OTHER_KEY, retired_keys=[KEY]).save(renewed)
    assert store_at(tmp_path, OTHER_KEY).load(renewed.id) == renewed


@pytest.mark.parametrize(
    "reference", ["", "0" * 63, "0" * 65, "A" * 64, "../" + "0" * 61, "/etc/passwd", "0" * 64 + "\n"]
)
def test_a_bad_reference_is_an_error(tmp_path: Path, reference: str) -> None:
    """What stands behind ``chatmedia+sha256:`` is a SHA-256 in lower case, or the snapshot is damaged."""
    store = store_at(tmp_path)
    one = snapshot("PLACE")
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.write_bytes(path.read_bytes().replace(b"PLACE", json.dumps("chatmedia+sha256:" + reference)[1:-1].encode()))
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "damaged"
    assert kinds(store) == ["damaged"]
    assert len(store.list()) == 1


def test_media_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    """Whoever has the key may seal anything under its hash; a message is text."""
    store = store_at(tmp_path, KEY)
    one = snapshot("PLACE")
    store.save(one)
    name = sha256(b"\xff").hexdigest()
    text = one.to_json().replace(b"PLACE", b"chatmedia+sha256:" + name.encode())
    (tmp_path / "store/media").mkdir()
    (tmp_path / "store/media" / name).write_bytes(store._keys.seal(bytes(12), b"\xff"))
    (tmp_path / "store" / f"{one.id}.json").write_bytes(store._keys.seal(bytes(12), text))
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "damaged"


@BOTH
def test_a_snapshot_under_another_name_is_an_error(tmp_path: Path, key: bytes | None) -> None:
    """P17: a sealed file is bound to its name by the id inside; so is a plain one."""
    store = store_at(tmp_path, key)
    one, other = snapshot("one"), snapshot("other")
    store.save(one)
    store.save(other)
    folder = tmp_path / "store"
    shutil.copy(folder / f"{one.id}.json", folder / f"{other.id}.json")
    error = error_of(lambda: store.load(other.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "wrong-id"
    assert [summary.id for summary in store.list()] == [one.id]
    assert kinds(store) == ["wrong-id"]


def test_a_later_version_is_listed_nowhere_and_never_touched(tmp_path: Path) -> None:
    """It is not damaged: the error says to upgrade, and ``verify`` says the same."""
    store = store_at(tmp_path)
    one = snapshot("one")
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    assert isinstance(error_of(lambda: store.load(one.id)), UnsupportedVersionError)
    assert store.list() == []
    assert kinds(store) == ["version"]


def test_files_of_any_size_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P15: a sparse file of a terabyte, or a small one that refers to a large one a thousand times."""
    store = store_at(tmp_path)
    one = snapshot([IMAGE] * 1000)
    store.save(one)
    monkeypatch.setattr(_snapshot_files, "MAX_FILE_BYTES", 1_000_000)
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "too-large"
    path = tmp_path / "store" / f"{one.id}.json"
    os.truncate(path, 2**40)
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "too-large"
    assert store.list() == []


@pytest.mark.parametrize(("limit", "words"), [(400, 80), (400, 40)])
def test_what_could_not_be_loaded_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, words: int
) -> None:
    """P15: the limit binds who saves too, before anything is written."""
    monkeypatch.setattr(file_store, "MAX_FILE_BYTES", limit)
    with pytest.raises(InvalidMessageError):
        store_at(tmp_path).save(snapshot("word " * words))
    assert not (tmp_path / "store").exists()


def test_what_is_as_large_as_can_be_is_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P15: what may be saved may be loaded, to the byte; of one byte more neither."""
    store, one = store_at(tmp_path, KEY), snapshot("word " * 80)
    largest = len(one.to_json()) + 28  # what sealing adds

    def limit(size: int) -> None:
        for module in (file_store, _snapshot_files):
            monkeypatch.setattr(module, "MAX_FILE_BYTES", size)

    limit(largest - 1)
    with pytest.raises(InvalidMessageError):
        store.save(one)
    limit(largest)
    store.save(one)
    assert (tmp_path / "store" / f"{one.id}.json").stat().st_size == largest
    assert store.load(one.id) == one
    limit(largest - 1)
    with pytest.raises(CorruptSnapshotError, match="more than a snapshot can have"):
        store.load(one.id)


def test_media_as_large_as_can_be_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P15: the limit is on what a snapshot is with its media in place, each as often as it is referred to."""
    store, one = store_at(tmp_path), snapshot([IMAGE, IMAGE])
    store.save(one)
    monkeypatch.setattr(_snapshot_files, "MAX_FILE_BYTES", 2 * len(IMAGE))
    assert store.load(one.id) == one
    monkeypatch.setattr(_snapshot_files, "MAX_FILE_BYTES", 2 * len(IMAGE) - 1)
    with pytest.raises(CorruptSnapshotError, match="larger than a snapshot can be"):
        store.load(one.id)
    monkeypatch.setattr(file_store, "MAX_FILE_BYTES", len(one.messages_json) - 1)
    with pytest.raises(InvalidMessageError):
        store.save(one)


# ---- what stands where a file should be -------------------------------------------------------------------------------


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


PUT: dict[str, Callable[[Path, Path], None]] = {
    "a link": link,
    "a dangling link": lambda path, target: path.symlink_to(target.parent / "nowhere"),
    "a pipe": lambda path, target: os.mkfifo(path),
    "a directory": lambda path, target: path.mkdir(),
}


@pytest.mark.parametrize("what", PUT)
@BOTH
def test_links_and_pipes_are_not_followed(tmp_path: Path, what: str, key: bytes | None) -> None:
    """P16: a snapshot's file is a file. A link to a good one is refused all the same, and a pipe is never waited for."""
    store = store_at(tmp_path, key)
    one = snapshot(IMAGE)
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.rename(tmp_path / "good.json")
    PUT[what](path, tmp_path / "good.json")
    error = error_of(lambda: store.load(one.id))
    assert isinstance(error, CorruptSnapshotError)
    assert error.kind == "foreign"
    assert store.list() == []
    assert kinds(store) == ["foreign"]
    assert store.collect_media(older_than_seconds=0) == []
    assert (tmp_path / "store/media" / IMAGE_NAME).exists()


@pytest.mark.parametrize("what", PUT)
def test_media_behind_a_link_is_refused(tmp_path: Path, what: str) -> None:
    """P16: neither a medium nor the directory of media may be somewhere else."""
    store = store_at(tmp_path)
    one = snapshot(IMAGE)
    store.save(one)
    media = tmp_path / "store/media"
    (media / IMAGE_NAME).rename(tmp_path / "image")
    PUT[what](media / IMAGE_NAME, tmp_path / "image")
    assert kinds(store) == ["foreign"]
    assert isinstance(error_of(lambda: store.load(one.id)), CorruptSnapshotError)
    if what == "a directory":
        return
    store.save(one)
    assert store.load(one.id) == one
    assert not (media / IMAGE_NAME).is_symlink()
    if what == "a link":
        assert (tmp_path / "image").read_text() == IMAGE


def test_a_directory_of_media_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """P16: nothing is read, written, sealed or collected through it."""
    store = store_at(tmp_path)
    one = snapshot(IMAGE)
    store.save(one)
    (tmp_path / "store/media").rename(tmp_path / "elsewhere")
    (tmp_path / "store/media").symlink_to(tmp_path / "elsewhere")
    assert isinstance(error_of(lambda: store.load(one.id)), CorruptSnapshotError)
    assert isinstance(error_of(lambda: store.save(snapshot(IMAGE))), CorruptSnapshotError)
    assert isinstance(error_of(lambda: store.collect_media(older_than_seconds=0)), CorruptSnapshotError)
    assert isinstance(error_of(lambda: store.rotate_key(KEY)), CorruptSnapshotError)
    assert "foreign" in kinds(store)
    assert (tmp_path / "elsewhere" / IMAGE_NAME).read_text() == IMAGE


def test_saving_over_a_link_replaces_the_link(tmp_path: Path) -> None:
    """P16: what it led to is untouched."""
    store = store_at(tmp_path)
    one = snapshot("one")
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.rename(tmp_path / "target")
    path.symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("somebody's")
    store.save(one)
    assert store.load(one.id) == one
    assert (tmp_path / "target").read_text() == "somebody's"


@pytest.mark.parametrize("id", ["../../etc/passwd", "..", "/etc/passwd", "a/b", ".", "x\0y"])
def test_an_id_is_checked_twice(tmp_path: Path, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P16: were the check of the form ever loosened, a name that leads out of the store is still refused."""
    store = store_at(tmp_path)
    store.save(snapshot("one"))
    for _ in range(2):
        for call in (store.load, store.delete):
            with pytest.raises(InvalidSnapshotIdError):
                call(id)
        monkeypatch.setattr(_snapshot_files, "validate_snapshot_id", lambda _: None)


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    """P16: directories 0700 and files 0600, whatever the process's umask is."""
    for umask in (0o000, 0o777):
        store = FileStore(tmp_path / f"{umask}/store", encryption_key=KEY)
        before = os.umask(umask)
        try:
            store.save(snapshot(IMAGE))
        finally:
            os.umask(before)
        for path in (tmp_path / f"{umask}").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_file_where_the_store_should_be(tmp_path: Path) -> None:
    """An error of ours from every call, and the file stays."""
    (tmp_path / "store").write_text("a file")
    store = store_at(tmp_path)
    for call in (
        lambda: store.save(snapshot()),
        store.list,
        store.verify,
        lambda: store.load(snapshot().id),
        lambda: store.delete(snapshot().id),
    ):
        assert isinstance(error_of(call), StorageError)
    assert (tmp_path / "store").read_text() == "a file"


def test_a_store_that_is_not_there_is_empty_and_stays_away(tmp_path: Path) -> None:
    """Only a save creates it."""
    store = store_at(tmp_path)
    assert store.list() == []
    assert store.verify() == []
    assert store.collect_media() == []
    assert isinstance(error_of(lambda: store.load(snapshot().id)), SnapshotNotFoundError)
    assert isinstance(error_of(lambda: store.delete(snapshot().id)), SnapshotNotFoundError)
    store.rotate_key(KEY)
    assert not (tmp_path / "store").exists()
    one = snapshot("one")
    store.save(one)
    assert b"one" not in (tmp_path / "store" / f"{one.id}.json").read_bytes()
    shutil.rmtree(tmp_path / "store")
    store.save(one)
    assert store_at(tmp_path, KEY).load(one.id) == one


def test_a_listing_tells_at_debug_what_it_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And never what stands in it: a damaged file's text, or what an error says of it."""
    own = logging.getLogger("the-caller's")
    store = store_at(tmp_path, logger=own)
    one = snapshot("canary", created_at="2026-03-31T12:00:00Z")
    store.save(one)
    path = tmp_path / "store" / f"{one.id}.json"
    path.write_bytes(path.read_bytes().replace(b"2026-03-31T12:00:00Z", b"canary"))
    (tmp_path / "store/x\nFORGED.json").write_text("{}")
    with caplog.at_level(logging.DEBUG):
        assert store.list() == []
    assert [(record.name, record.levelname) for record in caplog.records] == [("the-caller's", "DEBUG")] * 2
    assert "canary" not in caplog.text
    assert "\nFORGED" not in caplog.text
    assert one.id in caplog.text


def test_an_error_that_is_not_one_files_fault_ends_a_listing() -> None:
    """A process with too many files open must not look like a store without snapshots."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    store.save(snapshot("one"))

    def refuse(call: Call) -> None:
        if call.name == "open_read":
            raise OSError(number, "injected")

    disk.on_call = refuse
    number = errno.EMFILE
    assert type(error_of(store.list)) is StorageError
    number = errno.EIO
    assert store.list() == []


# ---- keys -------------------------------------------------------------------------------------------------------------


def everything(directory: Path) -> bytes:
    return b"".join(path.name.encode() + path.read_bytes() for path in directory.rglob("*") if path.is_file())


def test_nothing_of_what_was_said_is_in_a_sealed_store(tmp_path: Path) -> None:
    """P17: a canary in text, prompt, tool, metadata and image is in no file and no name, and in the clear it is."""
    canary = "canary-in-the-coal-mine"
    image = base64.b64encode(canary.encode() * 40).decode()
    one = snapshot(
        {"content": canary}, {"data": image}, "data:text/plain;base64," + image,
        system_prompt=canary, model=canary, tools=[ToolSnapshot(canary, canary, {canary: canary})], metadata={canary: canary},
    )  # fmt: skip
    FileStore(tmp_path / "plain").save(one)
    FileStore(tmp_path / "sealed", encryption_key=KEY).save(one)
    for trace in (canary.encode(), image[:60].encode(), canary.encode().hex().encode()):
        assert (trace in everything(tmp_path / "plain")) is (trace != canary.encode().hex().encode())
        assert trace not in everything(tmp_path / "sealed")


def test_plaintext_is_never_taken_where_something_sealed_is_due(tmp_path: Path) -> None:
    """P17: a snapshot, or a medium, that is put in the clear into a sealed store is refused."""
    plain, sealed = FileStore(tmp_path / "plain"), FileStore(tmp_path / "sealed", encryption_key=KEY)
    one = snapshot(IMAGE)
    for store in (plain, sealed):
        store.save(one)
    for name in (f"{one.id}.json", f"media/{IMAGE_NAME}"):
        before = (tmp_path / "sealed" / name).read_bytes()
        shutil.copy(tmp_path / "plain" / name, tmp_path / "sealed" / name)
        error = error_of(lambda: sealed.load(one.id))
        assert isinstance(error, DecryptionError)
        assert "not sealed" in error.reason
        assert kinds(sealed) == ["unopened"]
        (tmp_path / "sealed" / name).write_bytes(before)
    assert sealed.load(one.id) == one


def test_every_save_has_a_nonce_of_its_own(tmp_path: Path) -> None:
    """NIST SP 800-38D: the same snapshot saved again is sealed with another nonce."""
    store = store_at(tmp_path, KEY)
    one = snapshot("one")
    nonces = set()
    for _ in range(50):
        store.save(one)
        nonces.add((tmp_path / "store" / f"{one.id}.json").read_bytes()[:12])
    assert len(nonces) == 50


@pytest.mark.parametrize("bad", [b"", b"x" * 16, b"x" * 31, b"x" * 33, b"x" * 64, bytearray(5)])
def test_a_key_of_another_length_is_refused(tmp_path: Path, bad: bytes) -> None:
    """Found and wanted are told, the key is not."""
    for make in (
        lambda: store_at(tmp_path, bad),
        lambda: store_at(tmp_path, KEY, retired_keys=[bad]),
        lambda: store_at(tmp_path, KEY).rotate_key(bad),
    ):
        error = error_of(make)
        assert isinstance(error, InvalidKeyError)
        assert error.length_bytes == len(bad)
        assert "xxx" not in str(error)


def test_a_key_is_bytes(tmp_path: Path) -> None:
    """Hex digits are not a key of 64 bytes; the error says how to make one of them, without showing them."""
    error = error_of(lambda: store_at(tmp_path, KEY.hex()))  # type: ignore[arg-type]
    assert isinstance(error, InvalidKeyError)
    assert "fromhex" in str(error)
    assert KEY.hex()[:8] not in str(error)
    with pytest.raises(ValueError, match="retired_keys"):
        store_at(tmp_path, retired_keys=[KEY])


def test_a_key_is_in_no_repr_log_or_pickle(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What errors and debuggers print of a store, its keys and its attributes shows none of them."""
    key = generate_encryption_key()
    assert len(key) == 32
    assert generate_encryption_key() != key
    store = store_at(tmp_path, key, retired_keys=[OTHER_KEY])
    with caplog.at_level(logging.DEBUG):
        store.save(snapshot("one"))
        store_at(tmp_path, OTHER_KEY).list()
    shown = "".join(map(repr, [store, vars(store), store._keys, vars(store._keys), *store._keys._keys])) + caplog.text
    for secret in (key, OTHER_KEY):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        for thing in (store, store._keys._keys[0]):
            with pytest.raises(TypeError):
                refused(thing)


# ---- a key that was forgotten -----------------------------------------------------------------------------------------


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock"}


def test_nothing_is_saved_in_the_clear_beside_what_is_sealed(tmp_path: Path) -> None:
    """P17: a key that was forgotten (a variable that is not set) is an error, for a new id, a known one, and with media."""
    one = snapshot("one")
    store_at(tmp_path, KEY).save(one)
    before = contents(tmp_path)
    keyless = store_at(tmp_path)
    for _ in range(2):
        for other in (snapshot("canary"), snapshot("canary", id=one.id), snapshot("canary", IMAGE)):
            error = error_of(lambda other=other: keyless.save(other))  # type: ignore[misc]
            assert isinstance(error, DecryptionError)
            assert error.way_out in (WayOut.GIVE_THE_KEY_OR_SAVE_ELSEWHERE, WayOut.GIVE_THE_KEY_OR_DELETE)
            assert error.what.endswith("nothing was touched")
    assert contents(tmp_path) == before
    keyless.delete(one.id)
    keyless.save(one)
    assert keyless.load(one.id) == one


def test_a_store_that_was_sealed_meanwhile_keeps_what_is_sealed(tmp_path: Path) -> None:
    """P17: an object that knows the store as plain looks all the same at what it would replace."""
    keyless, one = store_at(tmp_path), snapshot("one")
    keyless.save(one)
    store_at(tmp_path).rotate_key(KEY)
    before = contents(tmp_path)
    assert isinstance(error_of(lambda: keyless.save(one)), DecryptionError)
    assert contents(tmp_path) == before


def test_nothing_is_saved_in_the_clear_into_a_store_that_is_being_sealed() -> None:
    """P17: a rotation was cut off before the first snapshot: the note that it left says that the store is to be sealed."""
    disk = SimulatedFileSystem()
    one, key = snapshot("one"), KEY
    FileStore("/store", file_system=disk).save(one)

    def refuse(call: Call) -> None:
        if call.name == "rename" and call.path.endswith(".json"):
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    assert isinstance(error_of(lambda: FileStore("/store", file_system=disk).rotate_key(key)), StorageError)
    disk.on_call = None
    error = error_of(lambda: FileStore("/store", file_system=disk).save(snapshot("canary")))
    assert isinstance(error, DecryptionError)
    assert str(error.path).endswith("/sealing")
    FileStore("/store", file_system=disk).rotate_key(key)
    FileStore("/store", file_system=disk, encryption_key=key).save(snapshot("two"))


def test_what_another_key_sealed_is_not_replaced(tmp_path: Path) -> None:
    """P17: nor is what is damaged, which looks the same; with its key among the retired ones it is, and so is what is plain."""
    one = snapshot("one")
    store_at(tmp_path, KEY).save(one)
    before = contents(tmp_path)
    stranger = store_at(tmp_path, OTHER_KEY)
    error = error_of(lambda: stranger.save(one))
    assert isinstance(error, DecryptionError)
    assert "delete() it first" in str(error)
    assert contents(tmp_path) == before
    stranger.save(snapshot("a new id"))
    store_at(tmp_path, OTHER_KEY, retired_keys=[KEY]).save(one)
    assert stranger.load(one.id) == one
    for there in (one.to_json(), b""):
        (tmp_path / "store" / f"{one.id}.json").write_bytes(there)
        stranger.save(one)
        assert stranger.load(one.id) == one


def test_a_plain_store_is_looked_through_once() -> None:
    """The second save reads nothing of other snapshots, however many there are; the first one reads of a few."""
    disk = SimulatedFileSystem()
    for number in range(20):
        FileStore("/store", file_system=disk).save(snapshot(number))
    opened: list[str] = []
    disk.on_call = lambda call: opened.append(call.path) if call.name == "open_read" else None
    store = FileStore("/store", file_system=disk)
    for most in (8, 0):
        opened.clear()
        store.save(snapshot("new"))
        assert len(opened) == most


def test_only_the_first_save_of_a_store_sweeps() -> None:
    """What a killed process left is swept once; after that a save costs the same however many snapshots there are."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    listed: list[str] = []
    disk.on_call = lambda call: listed.append(call.path) if call.name == "list_directory" else None
    for times in (True, False):
        listed.clear()
        store.save(snapshot(IMAGE))
        assert bool(listed) == times


def test_which_keys_open_a_store(tmp_path: Path) -> None:
    """``opens`` is about keys: of an empty store, one that is not there, and what is damaged it says nothing bad."""
    assert store_at(tmp_path, KEY).opens()
    store = store_at(tmp_path, KEY)
    one = snapshot("one")
    store.save(one)
    assert store.opens()
    assert store_at(tmp_path, OTHER_KEY, retired_keys=[KEY]).opens()
    assert not store_at(tmp_path, OTHER_KEY).opens()
    assert not store_at(tmp_path).opens()
    store_at(tmp_path, OTHER_KEY).save(snapshot("two"))
    assert all(store_at(tmp_path, key).opens() for key in (KEY, OTHER_KEY))
    for path in (tmp_path / "store").glob("*.json"):
        path.unlink()
    assert store_at(tmp_path, OTHER_KEY).opens()
    (tmp_path / "store" / f"{one.id}.json").mkdir()
    assert store_at(tmp_path, OTHER_KEY).opens()


@pytest.mark.parametrize("text", ["é" * 4096, "x" + "é" * 4096])
def test_a_plain_snapshot_is_not_taken_for_a_sealed_one(tmp_path: Path, text: str) -> None:
    """Not where a character stands across the end of what is looked at."""
    one = snapshot(text)
    store_at(tmp_path).save(one)
    store_at(tmp_path).save(one)
    assert store_at(tmp_path).load(one.id) == one


def test_one_snapshot_that_cannot_be_read_does_not_stand_in_the_way_of_others() -> None:
    """A bad block in a plain store, which the look for what is sealed comes across."""
    disk = SimulatedFileSystem()
    FileStore("/store", file_system=disk).save(snapshot("one"))

    def refuse(call: Call) -> None:
        if call.name == "open_read":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    FileStore("/store", file_system=disk).save(snapshot("two"))
    disk.on_call = None
    assert len(FileStore("/store", file_system=disk).list()) == 2


def test_an_empty_file_in_a_sealed_store_is_called_empty(tmp_path: Path) -> None:
    """It is not taken for one that somebody put there in the clear."""
    store, one = store_at(tmp_path, KEY), snapshot("one")
    store.save(one)
    (tmp_path / "store" / f"{one.id}.json").write_bytes(b"")
    assert "it is empty" in str(error_of(lambda: store.load(one.id)))
    assert "it is empty" in store.verify()[0].reason


# ---- rotation ---------------------------------------------------------------------------------------------------------


@BOTH
def test_a_rotation_seals_everything_with_the_new_key(tmp_path: Path, key: bytes | None) -> None:
    """Snapshots and media, sealed before or plain; the old key opens nothing any more, and no key does not either."""
    store = store_at(tmp_path, key)
    some = [snapshot(IMAGE), snapshot("canary")]
    for one in some:
        store.save(one)
    (tmp_path / "store/.tmp-0123456789abcdef0123456789abcdef").write_text("canary")
    store.rotate_key(OTHER_KEY)
    assert b"canary" not in everything(tmp_path / "store")
    assert IMAGE.encode() not in everything(tmp_path / "store")
    for one in some:
        assert store.load(one.id) == one
        assert store_at(tmp_path, OTHER_KEY).load(one.id) == one
        assert isinstance(error_of(lambda one=one: store_at(tmp_path, key).load(one.id)), DecryptionError)  # type: ignore[misc]
    assert store_at(tmp_path, OTHER_KEY).verify() == []
    assert store_at(tmp_path, key).list() == []
    store.save(snapshot("another"))
    assert len(store_at(tmp_path, OTHER_KEY).list()) == 3


def test_a_rotation_leaves_what_it_cannot_open(tmp_path: Path) -> None:
    """A file of another key, and one in the clear, are left as they are; all others are sealed; the error names the first."""
    stranger, plain, mine = snapshot("stranger"), snapshot("plain"), snapshot("mine")
    store_at(tmp_path, bytes(32)).save(stranger)
    store = store_at(tmp_path, KEY)
    store.save(mine)
    folder = tmp_path / "store"
    (folder / f"{plain.id}.json").write_bytes(plain.to_json())
    before = [(folder / f"{one.id}.json").read_bytes() for one in (stranger, plain)]
    for _ in range(2):
        error = error_of(lambda: store.rotate_key(OTHER_KEY))
        assert isinstance(error, DecryptionError)
        assert error.what.endswith("it was left as it is, and so was 1 more; 1 other is sealed with the new key now")
        assert error.way_out is WayOut.KEEP_BOTH_KEYS
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert [(folder / f"{one.id}.json").read_bytes() for one in (stranger, plain)] == before
        assert store.load(mine.id) == mine
    assert store_at(tmp_path, OTHER_KEY).load(mine.id) == mine


def test_a_rotation_that_opens_one_thing_less_says_what_holds_of_the_rest(tmp_path: Path) -> None:
    """Nobody may take "nothing was touched" for leave to throw the new key away; where it would be true, it is said."""
    store = store_at(tmp_path, KEY)
    some = [snapshot(IMAGE), snapshot("two")]
    for one in some:
        store.save(one)
    bad = tmp_path / "store" / f"{snapshot().id}.json"
    bad.write_bytes(b"\xff" * 100)
    wrong = error_of(lambda: store_at(tmp_path, bytes(32)).rotate_key(OTHER_KEY))
    assert isinstance(wrong, DecryptionError)
    assert wrong.what.endswith("it was left as it is, and so were 3 more; nothing is sealed with the new key")
    for is_a_file in (True, False):
        if not is_a_file:
            bad.unlink()
            os.mkfifo(bad)
        error = error_of(lambda: store.rotate_key(OTHER_KEY))
        assert isinstance(error, DecryptionError | CorruptSnapshotError)
        assert error.path == str(bad)
        assert error.what.endswith("; it was left as it is; 3 others are sealed with the new key now")
        assert error.way_out is WayOut.KEEP_BOTH_KEYS
        assert "nothing was touched" not in str(error)
    assert [store_at(tmp_path, OTHER_KEY).load(one.id) for one in some] == some


def test_a_snapshot_that_goes_while_the_store_is_sealed() -> None:
    """go-tool-base deletes without a lock: a rotation passes over what is not there any more."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    gone, kept = sorted((snapshot("one"), snapshot("two")), key=lambda one: one.id)
    store.save(gone)
    store.save(kept)

    def delete(call: Call) -> None:
        if call.path.endswith(f"{gone.id}.json"):
            disk.on_call = None
            folder = disk.open_directory("/store")
            disk.unlink(folder, f"{gone.id}.json")
            disk.close(folder)

    disk.on_call = delete
    store.rotate_key(KEY)
    assert [summary.id for summary in store.list()] == [kept.id]


def test_who_has_no_key_cannot_have_plaintext_sealed(tmp_path: Path) -> None:
    """P17: a file ``sealing`` that was not sealed with the new key does not make a rotation take plaintext."""
    store = store_at(tmp_path, KEY)
    store.save(snapshot("mine"))
    forged = snapshot("forged")
    (tmp_path / "store" / f"{forged.id}.json").write_bytes(forged.to_json())
    for note in (b"", b"sealing", b"x" * 35):
        (tmp_path / "store/sealing").write_bytes(note)
        assert isinstance(error_of(lambda: store.rotate_key(OTHER_KEY)), DecryptionError)
        assert isinstance(
            error_of(lambda: store_at(tmp_path, OTHER_KEY, retired_keys=[KEY]).rotate_key(KEY)), DecryptionError
        )
        assert isinstance(error_of(lambda: store.load(forged.id)), DecryptionError)


def test_a_thread_reads_on_while_the_store_is_sealed(tmp_path: Path) -> None:
    """P22: a reader beside a rotation in the same object finds every snapshot at every moment."""
    store = store_at(tmp_path)
    some = [snapshot(number, IMAGE) for number in range(8)]
    for one in some:
        store.save(one)
    done, errors = threading.Event(), []

    def read() -> None:
        try:
            while not done.is_set():
                for one in some:
                    assert store.load(one.id) == one
                assert len(store.list()) == 8
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for key in (KEY, OTHER_KEY, KEY, OTHER_KEY):
        store.rotate_key(key)
    done.set()
    reader.join()
    assert errors == []


def test_a_store_that_is_sealed_while_a_snapshot_is_read() -> None:
    """P22: a thread that has looked at the keys finds a file that another thread has sealed since: it looks again."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    one = snapshot()
    store.save(one)

    def seal(call: Call) -> None:
        if call.path.endswith(f"{one.id}.json"):
            disk.on_call = None
            store.rotate_key(KEY)

    disk.on_call = seal
    assert store.load(one.id) == one
    assert disk.on_call is None


def test_a_snapshot_that_is_replaced_while_it_is_read() -> None:
    """P12: between a reader's two files another process replaces the snapshot and collects its media: the new one is read."""
    disk = SimulatedFileSystem()
    old, new = snapshot(IMAGE), snapshot(OTHER_IMAGE)
    new = dataclasses.replace(new, id=old.id)
    FileStore("/store", file_system=disk).save(old)
    other = FileStore("/store", file_system=disk.another_process())

    def interfere(call: Call) -> None:
        if call.path.endswith(IMAGE_NAME):
            disk.on_call = None
            other.save(new)
            other.collect_media(older_than_seconds=0)

    disk.on_call = interfere
    assert FileStore("/store", file_system=disk).load(old.id) == new
    assert disk.on_call is None


# ---- media that nothing refers to -------------------------------------------------------------------------------------


@BOTH
def test_only_media_that_nothing_refers_to_goes(tmp_path: Path, key: bytes | None) -> None:
    """Deleting a snapshot leaves its media; collecting removes it, unless another snapshot has it, or it is young."""
    store = store_at(tmp_path, key)
    one, two = snapshot(IMAGE, OTHER_IMAGE), snapshot(IMAGE)
    store.save(one)
    store.save(two)
    store.delete(one.id)
    media = tmp_path / "store/media"
    (media / "somebody's file").write_text("kept")
    assert store.collect_media() == []
    (gone,) = {path.name for path in media.iterdir()} - {IMAGE_NAME, "somebody's file"}
    assert store.collect_media(older_than_seconds=3600) == []
    os.utime(media / gone, (1, 1))
    os.utime(media / IMAGE_NAME, (1, 1))
    assert store.collect_media(older_than_seconds=3600) == [gone]
    assert {path.name for path in media.iterdir()} == {IMAGE_NAME, "somebody's file"}
    assert store.load(two.id) == two
    store.delete(two.id)
    for folder in (tmp_path / "store", media):
        (folder / f".tmp-{'0' * 32}").write_bytes(b"a save that was killed")
    assert store.collect_media(older_than_seconds=0) == [IMAGE_NAME]
    assert not list((tmp_path / "store").rglob(".tmp-*"))
    with pytest.raises(ValueError, match="older_than_seconds"):
        store.collect_media(older_than_seconds=-1)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


SPOIL: dict[str, Callable[[Path], None]] = {
    "cut": damaged,
    "a later version": lambda path: (
        path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9')),
        None,
    )[1],
    "another id": lambda path: (
        path.write_bytes(path.read_bytes().replace(path.stem.encode(), snapshot().id.encode())),
        None,
    )[1],
    "a bad reference": lambda path: (path.write_bytes(path.read_bytes().replace(b"sha256:", b"sha256:x")), None)[1],
}


@pytest.mark.parametrize("how", SPOIL)
def test_nothing_is_collected_while_a_snapshot_cannot_be_opened(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its references are not known, so all media might be its own; a warning says so."""
    store = store_at(tmp_path)
    one = snapshot(IMAGE)
    store.save(one)
    SPOIL[how](tmp_path / "store" / f"{one.id}.json")
    assert store.collect_media(older_than_seconds=0) == []
    assert (tmp_path / "store/media" / IMAGE_NAME).exists()
    assert one.id in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_nothing_is_collected_without_the_key(tmp_path: Path) -> None:
    """Neither with none nor with another."""
    store_at(tmp_path, KEY).save(snapshot(IMAGE))
    for key in (None, OTHER_KEY):
        assert store_at(tmp_path, key).collect_media(older_than_seconds=0) == []
    assert (tmp_path / "store/media" / IMAGE_NAME).exists()


# ---- the lock ---------------------------------------------------------------------------------------------------------


def test_who_writes_waits_for_the_lock_and_who_reads_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save, delete, rotate and collect meet another process's lock; the error names it; load, list and verify go on."""
    store = store_at(tmp_path)
    one = snapshot("one")
    store.save(one)
    monkeypatch.setattr(file_store, "_LOCK_TIMEOUT_SECONDS", 0.0)
    with Folder.open(REAL, store.directory) as folder:
        lock = Lock(folder)
        lock.take(0)
        for call in (
            lambda: store.save(one),
            lambda: store.delete(one.id),
            lambda: store.rotate_key(KEY),
            store.collect_media,
        ):
            error = error_of(call)
            assert isinstance(error, ConversationLockedError)
            assert error.holder_pid == os.getpid()
            assert "read_only" not in str(error)
        assert store.load(one.id) == one
        assert len(store.list()) == 1
        assert store.verify() == []
        lock.release()
    store.delete(one.id)


def test_a_directory_that_goes_while_its_lock_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P11: nothing is done without the lock; a save says that the directory is not there, a delete that the snapshot is not."""
    store = store_at(tmp_path)
    one = snapshot("one")
    store.save(one)
    monkeypatch.setattr(Lock, "take", lambda self, timeout_seconds: False)
    assert isinstance(error_of(lambda: store.save(one)), StorageError)
    assert isinstance(error_of(lambda: store.delete(one.id)), SnapshotNotFoundError)
    assert store.load(one.id) == one


def test_media_that_nobody_refers_to_is_verified_too(tmp_path: Path) -> None:
    """Its snapshot may be deleted, or be somebody else's that no key of ours opens: damage to it is damage."""
    store, one = store_at(tmp_path), snapshot(IMAGE)
    store.save(one)
    store.delete(one.id)
    assert kinds(store) == []
    (tmp_path / "store/media" / IMAGE_NAME).write_text(OTHER_IMAGE)
    assert kinds(store) == ["wrong-media"]


def test_media_that_is_collected_while_it_is_verified_is_not_missing() -> None:
    """P12: it was listed, and nobody refers to it: that it is gone is as it should be."""
    disk = SimulatedFileSystem()
    store, one = FileStore("/store", file_system=disk), snapshot(IMAGE)
    store.save(one)
    store.delete(one.id)

    def collect(call: Call) -> None:
        if call.path.endswith(IMAGE_NAME):
            disk.on_call = None
            other = FileStore("/store", file_system=disk.another_process())
            assert other.collect_media(older_than_seconds=0) == [IMAGE_NAME]

    disk.on_call = collect
    assert kinds(store) == []
    assert disk.on_call is None


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """Between calls a store holds no descriptor and no lock, whatever the call came to."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    one = snapshot(IMAGE)
    store.save(one)
    for call in (
        lambda: store.load(one.id),
        store.list,
        store.verify,
        store.collect_media,
        lambda: store.rotate_key(KEY),
        lambda: store.load(snapshot().id),
        lambda: store.delete(one.id),
    ):
        error_of(call)
        assert disk.open_handles == []


def test_only_snapshots_are_saved(tmp_path: Path) -> None:
    """A dict, or a snapshot's JSON, is a mistake of the caller's."""
    bad: Any
    for bad in ({}, b"{}", None):
        with pytest.raises(TypeError):
            store_at(tmp_path).save(bad)


def test_media_that_others_sealed_is_not_replaced(tmp_path: Path) -> None:
    """P17: several keys in one store, one that comes too late, none at all: what is acknowledged stays readable by its owner."""
    first, second = snapshot("one", IMAGE), snapshot("two", IMAGE)
    store_at(tmp_path, KEY).save(first)
    error = error_of(lambda: store_at(tmp_path, OTHER_KEY).save(second))
    assert isinstance(error, DecryptionError)
    assert IMAGE_NAME in str(error)
    assert store_at(tmp_path, KEY).load(first.id) == first
    store_at(tmp_path, OTHER_KEY).save(snapshot("three", OTHER_IMAGE))  # nothing in common

    store_at(tmp_path, KEY, retired_keys=[OTHER_KEY]).rotate_key(OTHER_KEY)
    assert isinstance(error_of(lambda: store_at(tmp_path, KEY).save(second)), DecryptionError)
    assert store_at(tmp_path, OTHER_KEY).load(first.id) == first

    plain = store_at(tmp_path / "plain")
    plain.save(first)
    store_at(tmp_path / "plain").rotate_key(KEY)
    assert isinstance(error_of(lambda: plain.save(second)), DecryptionError)
    assert store_at(tmp_path / "plain", KEY).load(first.id) == first
    assert IMAGE.encode() not in everything(tmp_path / "plain")


@pytest.mark.parametrize("again", [KEY, OTHER_KEY], ids=["the same key", "a second call"])
def test_a_note_of_sealing_is_not_forged_by_who_has_no_key(tmp_path: Path, again: bytes) -> None:
    """P17: a copy of something sealed is no note, so that what somebody put there in the clear is not sealed as ours."""
    store = store_at(tmp_path, KEY)
    one, forged = snapshot("one"), snapshot("forged")
    store.save(one)
    store.rotate_key(again)
    shutil.copy(tmp_path / "store" / f"{one.id}.json", tmp_path / "store" / "sealing")
    (tmp_path / "store" / f"{forged.id}.json").write_bytes(forged.to_json())
    error = error_of(lambda: store_at(tmp_path, again, retired_keys=[KEY]).rotate_key(again))
    assert isinstance(error, DecryptionError)
    assert isinstance(error_of(lambda: store_at(tmp_path, again).load(forged.id)), DecryptionError)


def test_verify_beside_a_writer_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Media that is stored, or collected with its snapshot, after the look at media is not missing."""
    store = store_at(tmp_path)
    gone = snapshot("gone", OTHER_IMAGE)
    store.save(gone)
    names = _snapshot_files.SnapshotFiles.media_names
    references = _snapshot_files.SnapshotFiles.references

    def before_the_save(files: _snapshot_files.SnapshotFiles) -> list[str]:
        found = names(files)
        monkeypatch.setattr(_snapshot_files.SnapshotFiles, "media_names", names)
        store.save(snapshot("new", IMAGE))
        return [name for name in found if name != sha256(OTHER_IMAGE.encode()).hexdigest()]

    def before_the_collection(files: _snapshot_files.SnapshotFiles, id: str) -> set[str]:
        found = references(files, id)
        if id == gone.id:
            monkeypatch.setattr(_snapshot_files.SnapshotFiles, "references", references)
            store.delete(gone.id)
            store.collect_media(older_than_seconds=0)
        return found

    monkeypatch.setattr(_snapshot_files.SnapshotFiles, "media_names", before_the_save)
    monkeypatch.setattr(_snapshot_files.SnapshotFiles, "references", before_the_collection)
    assert store.verify() == []
    assert len(store.list()) == 1
    (tmp_path / "store/media" / IMAGE_NAME).unlink()
    assert kinds(store) == ["missing"]


def test_media_is_not_believed_on_the_word_of_the_cache() -> None:
    """P6: after a failed sync the cache shows what the disk never got, and the second sync does not say so again."""
    disk = SimulatedFileSystem()
    store = FileStore("/s", file_system=disk)
    store.save(snapshot("one"))
    folder = disk.open_directory("/s")
    disk.make_directory(folder, "media")
    disk.sync(folder)
    media = disk.open_directory("media", folder)
    disk.write(disk.create(media, IMAGE_NAME), IMAGE.encode())  # by a program that does not sync
    disk.sync(media)
    two = snapshot("two", IMAGE)

    def refuse(call: Call) -> None:
        if call.name.startswith("sync") and call.path.endswith(IMAGE_NAME):
            raise OSError(errno.EIO, "a bad block")

    disk.on_call = refuse
    assert isinstance(error_of(lambda: store.save(two)), StorageError)
    disk.on_call = None
    store.save(two)
    assert FileStore("/s", file_system=disk.worst_power_failure()).load(two.id) == two
