"""Sealed data: which keys open a store, and that plaintext is never saved beside sealed files."""

from __future__ import annotations

import base64
import copy
import errno
import logging
import pickle
import shutil
from pathlib import Path

import pytest

from tests.kit.trees import contents
from tests.snapshots.helpers import (
    IMAGE,
    IMAGE_NAME,
    KEY,
    OTHER_IMAGE,
    OTHER_KEY,
    error_of,
    everything,
    kinds,
    snapshot,
    store_at,
)
from transcript_store import (
    DecryptionError,
    FileStore,
    Hint,
    InvalidKeyError,
    StorageError,
    ToolSnapshot,
    generate_encryption_key,
)
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

# ---- keys ------------------------------------------------------------------------------------------------------------


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
    """The error has the length found and the length expected, but not the key."""
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
    keys = store.keys  # what a debugger shows too
    shown = "".join(map(repr, [store, vars(store), keys, vars(keys), *keys._keys])) + caplog.text  # and this
    for secret in (key, OTHER_KEY):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        for thing in (store, keys._keys[0]):  # the key itself
            with pytest.raises(TypeError):
                refused(thing)


# ---- a key that was forgotten ----------------------------------------------------------------------------------------


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
            assert error.hint in (Hint.GIVE_THE_KEY_OR_SAVE_ELSEWHERE, Hint.GIVE_THE_KEY_OR_DELETE)
            assert error.problem.endswith("nothing was changed")
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


@pytest.mark.parametrize("witness", ["there", "deleted"])
def test_nothing_new_is_saved_in_the_clear_into_a_store_that_was_sealed_meanwhile(tmp_path: Path, witness: str) -> None:
    """P17: an object that knows the store as plain notices what another process did to it since, with one look or a few."""
    keyless, one = store_at(tmp_path), snapshot("one")
    keyless.save(snapshot("another", IMAGE))
    keyless.save(one)
    store_at(tmp_path).rotate_key(KEY)
    if witness == "deleted":
        store_at(tmp_path).delete(one.id)
    before = contents(tmp_path)
    assert isinstance(error_of(lambda: keyless.save(snapshot("canary", OTHER_IMAGE))), DecryptionError)
    assert contents(tmp_path) == before


def test_nothing_is_saved_in_the_clear_into_a_store_that_is_being_sealed() -> None:
    """P17: a rotation was cut off before the first snapshot: the note that it left says that the store is to be sealed."""
    disk = SimulatedFileSystem()
    one, key = snapshot("one"), KEY
    keyless = FileStore("/store", file_system=disk)
    keyless.save(one)

    def refuse(call: FileSystemCall) -> None:
        if call.name == "rename" and call.path.endswith(".json"):
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    assert isinstance(error_of(lambda: FileStore("/store", file_system=disk).rotate_key(key)), StorageError)
    disk.on_call = None
    for store in (FileStore("/store", file_system=disk), keyless):
        error = error_of(lambda store=store: store.save(snapshot("canary")))  # type: ignore[misc]
        assert isinstance(error, DecryptionError)
        assert str(error.path).endswith("/sealing")
    FileStore("/store", file_system=disk).rotate_key(key)
    FileStore("/store", file_system=disk, encryption_key=key).save(snapshot("two"))


def test_sealing_continues_with_the_key_if_reads_fail() -> None:
    """P7: the incident: the note of the sealing was written and could not be read, and the object that wrote it could save nothing more."""
    disk = SimulatedFileSystem()
    store = FileStore("/store", file_system=disk)
    store.save(one := snapshot("one"))

    def refuse(call: FileSystemCall) -> None:
        if call.name == "read":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    assert isinstance(error_of(lambda: store.rotate_key(KEY)), StorageError)
    disk.on_call = None
    store.save(two := snapshot("two"))
    assert {store.load(each.id).messages_json for each in (one, two)} == {one.messages_json, two.messages_json}
    store.rotate_key(KEY)
    assert not FileStore("/store", file_system=disk, encryption_key=KEY).verify()


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
    """The second save reads of one other snapshot, however many there are; the first one reads of a few."""
    disk = SimulatedFileSystem()
    for number in range(20):
        FileStore("/store", file_system=disk).save(snapshot(number))
    opened: list[str] = []
    disk.on_call = lambda call: opened.append(call.path) if call.name == "open_read" else None
    store = FileStore("/store", file_system=disk)
    for most in (8, 1, 1):
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

    def refuse(call: FileSystemCall) -> None:
        if call.name == "open_read":
            raise OSError(errno.EIO, "injected")

    disk.on_call = refuse
    FileStore("/store", file_system=disk).save(snapshot("two"))
    disk.on_call = None
    assert len(FileStore("/store", file_system=disk).list()) == 2


def test_an_empty_file_in_a_sealed_store_is_called_empty(tmp_path: Path) -> None:
    """It is not taken for a plaintext file that was added."""
    store, one = store_at(tmp_path, KEY), snapshot("one")
    store.save(one)
    (tmp_path / "store" / f"{one.id}.json").write_bytes(b"")
    assert "it is empty" in str(error_of(lambda: store.load(one.id)))
    assert "it is empty" in store.verify()[0].reason


# ---- the lock --------------------------------------------------------------------------------------------------------


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
