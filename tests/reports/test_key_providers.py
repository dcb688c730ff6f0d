"""A key provider that wraps or unwraps wrongly, at any of its calls: a named error, and each conversation can be read as before.

The incident: a rotation to a provider that returned five bytes for each key said ``rotated=5``, and neither key opened any of the five
conversations afterwards. A create acknowledged messages that nobody could read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from transcript_store import (
    ConversationLibrary,
    ConversationLockedError,
    ConversationStore,
    CorruptKeyFileError,
    KeyProviderError,
    TranscriptStoreError,
)
from transcript_store._sealing.keys import Keyring, RawKey
from transcript_store.testing import (
    FileSystemCall,
    SimulatedBackend,
    SimulatedFileSystem,
    SimulatedObjectStore,
    check_key_provider,
)

KEY = bytes(range(32))
MESSAGES = [{"role": "user", "content": "acknowledged"}]


class PanicError(BaseException):
    """What a provider that is written in Rust raises when it panics."""


class Vault:
    """A good provider, until its call number ``fails_at``; from then on it does what ``fault`` says."""

    def __init__(
        self, key: bytes, fault: str = "", fails_at: int = 0, on_call: Callable[[], None] = lambda: None
    ) -> None:
        self._key = RawKey(hashlib.sha256(key).digest())
        self.id = "vault:" + self._key.id
        self.fault, self.fails_at, self.on_call = fault, fails_at, on_call
        self.calls: list[str] = []
        self._last = b"the answer before the first one!"

    def wrap(self, data_key: bytes) -> Any:
        return self._answered("wrap", self._key.wrap(data_key))

    def unwrap(self, wrapped: bytes) -> Any:
        return self._answered("unwrap", self._key.unwrap(wrapped))

    def _answered(self, call: str, right: bytes) -> Any:
        self.on_call()
        self.calls.append(call)
        last, self._last = self._last, right
        if not 0 < self.fails_at <= len(self.calls):
            return right
        if self.fault == "raises":
            raise ConnectionError("token hunter2 expired")
        if self.fault == "panics":
            raise PanicError
        if self.fault == "renames itself":
            self.id += "!"
            return right
        return {
            "answers late": last,
            "short": b"12345",
            "another key": hashlib.sha256(right).digest(),  # each time the same
            "at random": os.urandom(len(right)),
            "constant": bytes(32),
            "as a bytearray": bytearray(right),
            "as text": right.hex(),
            "nothing": None,
        }[self.fault]


FAULTS = [
    "raises", "panics", "answers late", "short", "another key", "at random", "constant", "as a bytearray", "as text", "nothing",
    "renames itself",
]  # fmt: skip


EACH = [
    pytest.param("another key"),
    *(pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS if fault != "another key"),
]
"""The plain suite takes one of them, which nothing but a comparison with what is sealed can find."""


def _same(vault: Any) -> Any:
    return vault


class Home:
    """Where a library lives; each library is of another process."""

    def __init__(self, kind: str) -> None:
        self.disk = SimulatedFileSystem()
        homes: dict[str, Any] = {
            "folder": lambda: "/library",
            "place": SimulatedBackend,
            "objects": SimulatedObjectStore,
        }
        self.at: Any = homes[kind]()

    def library(self, key: Any, *retired: Any) -> ConversationLibrary:
        self.disk = self.disk.another_process()
        return ConversationLibrary(self.at, encryption_key=key, retired_keys=retired, file_system=self.disk)

    def readable(self, *keys: Any) -> dict[str, list[Any]]:
        """What each conversation says to somebody who has all of these keys."""
        found = {}
        for summary in self.library(*keys).list():
            assert summary.id is not None
            with self.library(*keys).open(summary.id, read_only=True) as store:
                found[summary.id] = store.get_messages()
        return found


@pytest.fixture(params=["folder", "place", "objects"])
def home(request: pytest.FixtureRequest) -> Home:
    return Home(request.param)


def create(library: ConversationLibrary) -> None:
    library.create(messages=MESSAGES).close()


def create_group(library: ConversationLibrary) -> None:
    with library.group() as group:
        for _ in range(2):
            group.add(messages=MESSAGES)


def rotate(library: ConversationLibrary) -> None:
    library.rotate_key()


def fork(library: ConversationLibrary) -> None:
    (first, *_) = library.list()
    assert first.id is not None
    library.fork(first.id)


def storm(home: Home, fault: str, operation: Callable[[ConversationLibrary], None], fails: str) -> int:
    """The operation with providers that fail at each of their calls in turn; returns how often there was an error.

    ``fails`` says which: the key of today, or the earlier one, with which a conversation is sealed already.
    """
    old = Vault(b"old")
    create(home.library(old))
    errors, said = 0, list[str]()
    for fails_at in range(1, 100):
        before = home.readable(Vault(b"new"), Vault(b"old"))
        new = Vault(b"new", fault, fails_at if fails == "new" else 0)
        earlier = Vault(b"old", fault, fails_at if fails == "old" else 0)
        try:
            operation(home.library(new, earlier))
        except KeyProviderError as error:
            errors += 1
            said.append(str(error))
        after = home.readable(Vault(b"new"), Vault(b"old"))
        assert after | before == after
        assert all(messages == MESSAGES for messages in after.values())
        assert "hunter2" not in "".join(said)
        if len((new if fails == "new" else earlier).calls) < fails_at:
            return errors
    raise AssertionError("it never ends without an error")


@pytest.mark.parametrize("fault", EACH)
@pytest.mark.parametrize("operation", [create, create_group, fork, rotate], ids=lambda operation: operation.__name__)
def test_a_provider_that_fails_at_any_call_loses_nothing(home: Home, fault: str, operation: Any) -> None:
    """What was readable is readable, with the same messages; what is new is readable; and the error is named."""
    assert storm(home, fault, operation, "new") > 0


@pytest.mark.parametrize("fault", EACH)
def test_an_earlier_key_that_unwraps_another_data_key_is_not_rotated_away(home: Home, fault: str) -> None:
    """The old provider answers, and wrongly: what the new one would wrap then opens nothing."""
    assert storm(home, fault, rotate, "old") > 0 or fault == "renames itself"  # it was asked its id before


@pytest.mark.parametrize("fault", EACH)
def test_a_provider_that_fails_at_a_seal_leaves_it_plain(home: Home, fault: str) -> None:
    """And at a seal of what was unsealed: there the data key that earlier generations have is unwrapped."""
    with home.library(None).create(messages=MESSAGES) as store:
        own_id = store.id
    for _ in range(2):
        for fails_at in range(1, 100):
            vault = Vault(b"new", fault, fails_at)
            is_sealed = True
            try:
                with home.library(vault).store(own_id) as store:
                    store.seal(keep_plain=True)
            except KeyProviderError:
                is_sealed = False
            key = Vault(b"new") if is_sealed else None
            assert home.readable(key) == {own_id: MESSAGES}
            if is_sealed:
                with home.library(key).open(own_id) as store:
                    store.unseal()
            if len(vault.calls) < fails_at:
                break


def test_a_provider_that_unwraps_another_data_key_is_not_called_damage(home: Home) -> None:
    """A load said that the first line was not written with the key, and to restore it from a backup."""
    create(home.library(Vault(b"new")))
    (own_id,) = home.readable(Vault(b"new"))
    for read_only in (True, False):
        with pytest.raises(KeyProviderError, match="another data key"):
            home.library(Vault(b"new", "another key", 1)).open(own_id, read_only=read_only)


def test_without_the_comparison_the_storm_finds_what_is_lost(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The incident itself: the storm sees it."""

    def believed(self: Keyring, data_key: bytes, path: str) -> tuple[str, bytes]:
        return self.current.id, self.current.wrap(data_key)

    monkeypatch.setattr(Keyring, "wrap", believed)
    with pytest.raises(TranscriptStoreError):
        storm(home, "at random", rotate, "new")


def test_two_keys_of_one_id_are_told_apart_by_what_they_open(home: Home) -> None:
    """A rotation said ``already``, so the earlier key was thrown away with what only it could open."""
    old, new = Vault(b"old"), Vault(b"new")
    old.id = new.id = "vault"
    create(home.library(old))
    (own_id,) = home.readable(old)
    assert home.library(new, old).rotate_key().rotated == (own_id,)
    assert home.readable(new) == {own_id: MESSAGES}
    assert home.library(new).rotate_key().already_current == (own_id,)


def test_how_often_a_provider_is_asked(home: Home) -> None:
    """As docs/encryption.md says: once more than before at a create, a seal and a rotation; and once to open."""
    old, new = Vault(b"old"), Vault(b"new")

    def asked(operation: Callable[[], object]) -> tuple[list[str], list[str]]:
        old.calls, new.calls = [], []
        operation()
        return old.calls, new.calls

    assert asked(lambda: create(home.library(old))) == (["wrap", "unwrap"], [])
    assert asked(lambda: home.readable(old)) == (["unwrap"], [])
    assert asked(lambda: create_group(home.library(old))) == (["wrap", "unwrap"] * 2, [])
    assert asked(lambda: home.library(new, old).rotate_key()) == (["unwrap"] * 3, ["wrap", "unwrap"] * 3)
    assert asked(lambda: home.library(new, old).rotate_key()) == ([], [])


def test_a_slow_key_provider_blocks_no_other_process() -> None:
    """While it is asked, another process opens the conversation to write, and has its lock."""
    disk = SimulatedFileSystem()
    waited = []

    def look() -> None:
        for path in [path.removesuffix("/lock") for path in disk.tree() if path.endswith("/lock")]:
            try:
                with ConversationStore(path, file_system=disk.another_process()) as other:
                    other.load()
            except ConversationLockedError:
                waited.append(path)

    def store(key: Vault | None, **options: Any) -> ConversationStore:
        return ConversationStore("/mine", encryption_key=key, file_system=disk, **options)

    old, new = Vault(b"old", on_call=look), Vault(b"new", on_call=look)
    for hold_lock in (True, False):
        with store(None, hold_lock=hold_lock) as plain:
            plain.load_or_initialize(messages=MESSAGES)
        with store(old, hold_lock=hold_lock) as sealed:
            sealed.seal()
            assert sealed.get_messages() == MESSAGES
        with store(old, hold_lock=hold_lock) as sealed:
            sealed.load()
        assert (
            ConversationLibrary("/", encryption_key=new, retired_keys=[old], file_system=disk)
            .rotate_key(["mine"])
            .rotated
        )
        with store(new, hold_lock=hold_lock) as sealed:
            sealed.load()
            sealed.unseal()
        disk.unlink(disk.open_directory("/mine"), "key.json")
    assert (len(old.calls), len(new.calls)) == (8, 6)
    assert waited == []


def test_a_disk_that_gives_a_new_key_file_back_otherwise_keeps_the_earlier_one() -> None:
    """The file under its temporary name is read before it takes the place of the earlier one."""
    home = Home("folder")
    create(home.library(Vault(b"old")))
    (own_id,) = home.readable(Vault(b"old"))
    library = home.library(Vault(b"new"), Vault(b"old"))

    def spoil(call: FileSystemCall) -> None:
        if call.name == "open_read" and "/.tmp-" in call.path:
            home.disk.write_file(call.path, b"not what was written")

    home.disk.on_call = spoil
    done = library.rotate_key()
    assert (done.rotated, [name for name, _ in done.skipped]) == ((), [own_id])
    assert home.readable(Vault(b"old")) == {own_id: MESSAGES}


class Latest(Vault):
    """It unwraps only what it wrapped last."""

    def wrap(self, data_key: bytes) -> Any:
        self._kept = super().wrap(data_key)
        return self._kept

    def unwrap(self, wrapped: bytes) -> Any:
        if wrapped != self._kept:
            raise KeyError
        return super().unwrap(wrapped)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_contract_names_such_a_provider(fault: str) -> None:
    """Whichever of its first calls is the one that fails."""
    for fails_at in range(1, 8):
        vault = Vault(b"new", fault, fails_at)
        with pytest.raises(AssertionError, match=r"^K\d, "):
            check_key_provider(partial(_same, vault))
    check_key_provider(lambda: Vault(b"new"), lambda: Vault(b"old"))


def test_the_contract_names_one_that_forgets() -> None:
    """A create and its own comparison would not find it."""
    one = Latest(b"new")
    with pytest.raises(AssertionError, match=r"^K2, "):
        check_key_provider(lambda: one)


def test_a_damaged_key_file_is_not_taken_for_the_provider_s_fault() -> None:
    """The key file is judged before the provider is asked."""
    home = Home("folder")
    create(home.library(Vault(b"old")))
    (own_id,) = home.readable(Vault(b"old"))
    home.disk.write_file(f"/library/{own_id}/key.json", b"{}")
    vault = Vault(b"old")
    with pytest.raises(CorruptKeyFileError):
        home.library(vault).open(own_id)
    assert vault.calls == []
