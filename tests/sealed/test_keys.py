"""Keys of sealed conversations: valid keys, key providers, and key files.

Promises: P17 (a wrong key, a changed or a moved key file is an error, each told apart), P16 (files are 0600).
"""

import base64
import copy
import os
import pickle
import secrets
import zlib
from pathlib import Path

import pytest

from tests.kit.cases import for_each
from tests.kit.trees import tree
from transcript_store import (
    ConversationLibrary,
    ConversationNotFoundError,
    ConversationShreddedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptTranscriptError,
    InvalidKeyError,
    KeyProvider,
    KeyProviderError,
    UnsupportedVersionError,
    WrongKeyError,
    read_key_file,
    write_key_file,
)
from transcript_store._sealing.data_key import DataKey
from transcript_store._sealing.keys import (
    Keyring,
    RawKey,
    WrappedKey,
    decode_key_file,
    encode_key_file,
    encode_shredded,
    keyring_of,
)
from transcript_store.testing import check_key_provider

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
CONVERSATION = "be8288fa-26fa-4885-afbc-0927ce01869f"
ANOTHER = "0e5a3c52-7f0b-4c39-9b60-0d6f3f2a9b11"


class Vault:
    """A provider of somebody else's: it keeps what it was given, and gives out a ticket."""

    def __init__(self, name="vault:1", fails=None):
        self.id, self.fails, self.kept = name, fails, {}

    def wrap(self, data_key):
        if self.fails:
            raise self.fails
        ticket = secrets.token_bytes(16)
        self.kept[ticket] = data_key
        return ticket

    def unwrap(self, wrapped):
        if self.fails:
            raise self.fails
        return self.kept[wrapped]


def ring(key, retired=()):
    return keyring_of(key, retired)


# ---- the contract ----------------------------------------------------------------------------------------------------


def test_a_key_of_32_bytes_keeps_the_contract():
    check_key_provider(lambda: RawKey(KEY), lambda: RawKey(OTHER))


def test_a_vault_keeps_the_contract():
    one, other = Vault(), Vault("vault:2")
    check_key_provider(lambda: one, lambda: other)
    assert isinstance(one, KeyProvider)


class NoId(Vault):
    id = property(lambda self: "", lambda self, name: None)


class Forgets(Vault):
    def unwrap(self, wrapped):
        return bytes(32)


class Bare(Vault):
    def wrap(self, data_key):
        return b"wrapped:" + data_key

    def unwrap(self, wrapped):
        return wrapped.removeprefix(b"wrapped:")


class Spelled(Vault):
    """The key in other letters, with a sum that tells what was changed: that is no wrapping, and it passed."""

    def __init__(self, spell, read, before=b""):
        super().__init__()
        self.spell, self.read, self.before = spell, read, before

    def wrap(self, data_key):
        spelled = self.spell(self.before + data_key)
        return spelled + b":%08x" % zlib.crc32(spelled)

    def unwrap(self, wrapped):
        spelled, _, known = wrapped.rpartition(b":")
        if known != b"%08x" % zlib.crc32(spelled):
            raise ValueError("it was changed")
        return self.read(spelled)[len(self.before) :]


SPELLINGS = {
    "hex": (lambda key: key.hex().encode(), lambda text: bytes.fromhex(text.decode())),
    "capital hex": (lambda key: key.hex().upper().encode(), lambda text: bytes.fromhex(text.decode())),
    "base64": (base64.b64encode, base64.b64decode),
    "base64 for addresses": (base64.urlsafe_b64encode, base64.urlsafe_b64decode),
    "base64 in lines": (base64.encodebytes, base64.decodebytes),
}


@for_each("before", [0, 1, 2, 61])
@for_each("spelling", SPELLINGS)
def test_a_key_that_is_only_spelled_otherwise_is_not_wrapped(spelling, before):
    """Whatever stands before it: that moves it within the letters of base64."""
    one = Spelled(*SPELLINGS[spelling], bytes(range(before)))
    with pytest.raises(AssertionError, match=r"^K3, .*it contains the data key: in (hex|base64)"):
        check_key_provider(lambda: one)


@pytest.mark.parametrize(("number", "broken"), [("K1", NoId), ("K2", Forgets), ("K3", Bare)])
def test_a_provider_that_breaks_the_contract_is_told_by_its_number(number, broken):
    one = broken()
    with pytest.raises(AssertionError, match=f"^{number}, "):
        check_key_provider(lambda: one)


def test_a_provider_that_takes_what_was_changed_is_told_by_its_number():
    class Trusting(Vault):
        def unwrap(self, wrapped):
            return self.kept.get(wrapped, bytes(32))

    one = Trusting()
    with pytest.raises(AssertionError, match=r"^K4, "):
        check_key_provider(lambda: one)


# ---- what is given ---------------------------------------------------------------------------------------------------


@for_each("wrong", [b"", bytes(31), bytes(33), "0" * 64, 7, object(), RawKey])
def test_anything_but_32_bytes_or_a_provider_is_refused(wrong):
    with pytest.raises(InvalidKeyError):
        keyring_of(wrong, ())


def test_retired_keys_are_a_sequence_and_never_alone():
    assert keyring_of(None, ()) is None
    with pytest.raises(ValueError, match="encryption_key"):
        keyring_of(None, [KEY])
    with pytest.raises(TypeError):
        keyring_of(KEY, OTHER)


def test_a_key_that_is_wiped_by_its_owner_was_copied():
    """A caller may wipe a bytearray as soon as the store is made."""
    given = bytearray(KEY)
    keyring = ring(given)
    given[:] = bytes(32)
    key_id, wrapped = keyring.wrap(OTHER, "key.json")
    assert ring(KEY).unwrap(key_id, wrapped, "key.json") == OTHER


@pytest.mark.parametrize("secret", [RawKey(KEY), ring(KEY, [OTHER]), DataKey(KEY, CONVERSATION)])
def test_no_key_is_shown_pickled_or_copied(secret):
    """P17, P18."""
    assert KEY.hex() not in repr(secret)
    assert repr(KEY)[2:-1] not in repr(secret)
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            way(secret)


# ---- wrapping --------------------------------------------------------------------------------------------------------


def test_each_key_opens_what_it_wrapped_and_no_other_does():
    data_key = secrets.token_bytes(32)
    key_id, wrapped = ring(OTHER).wrap(data_key, "key.json")
    assert ring(KEY, [OTHER]).unwrap(key_id, wrapped, "key.json") == data_key
    with pytest.raises(WrongKeyError) as raised:
        ring(KEY).unwrap(key_id, wrapped, "key.json")
    assert raised.value.key_id == key_id
    with pytest.raises(WrongKeyError, match="changed"):
        ring(OTHER).unwrap(key_id, wrapped[:-1] + bytes([wrapped[-1] ^ 1]), "key.json")


@pytest.mark.parametrize("call", ["wrap", "unwrap"])
def test_what_a_provider_raises_is_the_cause_of_an_error_of_ours(call):
    failure = ConnectionError("the vault at 10.0.0.7 says: token s.hunter2 expired")
    keyring = Keyring(Vault(fails=failure))
    with pytest.raises(KeyProviderError) as raised:
        keyring.wrap(KEY, "key.json") if call == "wrap" else keyring.unwrap("vault:1", b"x", "key.json")
    assert raised.value.__cause__ is failure
    assert raised.value.key_id == "vault:1"
    assert "hunter2" not in str(raised.value)


@for_each("given", [None, "text", b"", bytes(70_000), KEY, b"!" + KEY])
def test_what_is_no_wrapped_key_is_not_stored(given):
    vault = Vault()
    vault.wrap = lambda data_key: given  # type: ignore[method-assign]
    with pytest.raises(KeyProviderError):
        Keyring(vault).wrap(KEY, "key.json")


@for_each("given", [None, "text", b"", bytes(31)])
def test_what_is_no_data_key_is_not_used(given):
    vault = Vault()
    vault.unwrap = lambda wrapped: given  # type: ignore[method-assign]
    with pytest.raises(KeyProviderError):
        Keyring(vault).unwrap("vault:1", b"wrapped", "key.json")


@for_each("name", ["", "two\nlines", "\x1b[31m", "ü", "x" * 201, 7])
def test_an_id_that_cannot_stand_in_sight_is_refused(name):
    with pytest.raises(KeyProviderError):
        Keyring(Vault(name)).wrap(KEY, "key.json")


# ---- key.json --------------------------------------------------------------------------------------------------------

FILE = encode_key_file(WrappedKey(CONVERSATION, "vault:1", b"wrapped"))


def test_a_key_file_is_read_as_it_was_written():
    assert decode_key_file(FILE, "key.json", CONVERSATION) == (CONVERSATION, "vault:1", b"wrapped")


def test_no_byte_of_a_key_file_can_be_changed_or_cut_unseen():
    """P17."""
    for k in range(len(FILE)):
        for other in (FILE[:k] + bytes([FILE[k] ^ 1]) + FILE[k + 1 :], FILE[:k]):
            with pytest.raises(CorruptKeyFileError) as raised:
                decode_key_file(other, "key.json", CONVERSATION)
            assert raised.value.kind == "damaged"


def test_the_key_file_of_another_conversation_is_told():
    with pytest.raises(CorruptKeyFileError) as raised:
        decode_key_file(FILE, "key.json", ANOTHER)
    assert raised.value.kind == "wrong-conversation"


def test_a_key_that_was_destroyed_says_when():
    shredded = encode_shredded(CONVERSATION, "2026-11-24T00:00:00.000000Z")
    with pytest.raises(ConversationShreddedError) as raised:
        decode_key_file(shredded, "key.json", CONVERSATION)
    assert raised.value.shredded_at == "2026-11-24T00:00:00.000000Z"


def test_a_key_file_of_a_later_version_is_refused(monkeypatch):
    monkeypatch.setattr("transcript_store._sealing.keys.VERSION", 2)
    later = encode_key_file(WrappedKey(CONVERSATION, "vault:1", b"wrapped"))
    monkeypatch.undo()
    with pytest.raises(UnsupportedVersionError):
        decode_key_file(later, "key.json", CONVERSATION)


# ---- the data key ----------------------------------------------------------------------------------------------------


def test_what_is_sealed_opens_at_its_place_and_nowhere_else():
    """P17."""
    key, nonce = DataKey(KEY, CONVERSATION), bytes(12)
    place = key.place_of_records(3) + b"7/2026-11-24T00:00:00.000000Z"
    sealed = key.seal(nonce, b"a secret", place)
    assert key.open(sealed, place) == b"a secret"
    elsewhere = (
        key.place_of_records(2) + b"7/2026-11-24T00:00:00.000000Z",
        key.place_of_records(3) + b"8/2026-11-24T00:00:00.000000Z",
        DataKey(KEY, ANOTHER).place_of_records(3) + b"7/2026-11-24T00:00:00.000000Z",
        key.place_of_metadata,
    )
    assert [key.open(sealed, other) for other in elsewhere] == [None] * 4
    assert DataKey(OTHER, CONVERSATION).open(sealed, place) is None
    for k in range(len(sealed)):
        assert key.open(sealed[:k], place) is None
        assert key.open(sealed[:k] + b"%c" % (sealed[k] ^ 1) + sealed[k + 1 :], place) is None


def test_the_check_of_what_is_in_sight_needs_the_key():
    check = DataKey(KEY, CONVERSATION).check(b"in sight")
    assert len(check) == 64
    assert DataKey(KEY, CONVERSATION).is_checked(b"in sight", check)
    assert not DataKey(KEY, CONVERSATION).is_checked(b"in sighs", check)
    assert not DataKey(OTHER, CONVERSATION).is_checked(b"in sight", check)


# ---- the user's own file ---------------------------------------------------------------------------------------------


def test_a_key_file_of_the_user_is_made_once_and_only_its_owner_reads_it(tmp_path):
    """P16."""
    path = tmp_path / "my.key"
    write_key_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    key = read_key_file(path)
    assert len(key) == 32
    with pytest.raises(OSError):
        write_key_file(path)
    assert read_key_file(path) == key


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o602])
def test_a_key_that_others_may_read_is_refused(tmp_path, mode):
    path = tmp_path / "my.key"
    write_key_file(path)
    path.chmod(mode)
    with pytest.raises(InvalidKeyError, match="others"):
        read_key_file(path)


@pytest.mark.parametrize("content", [KEY, KEY.hex().encode(), b" " + KEY.hex().upper().encode() + b"\r\n"])
def test_both_forms_of_a_key_are_read(tmp_path, content):
    path = tmp_path / "my.key"
    path.write_bytes(content)
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)
    assert read_key_file(path) == read_key_file(tmp_path / "link") == KEY


@pytest.mark.parametrize("content", [b"", b"x", KEY.hex().encode() + b"0", KEY + b"\n\n", bytes(5000)])
def test_a_file_that_holds_no_key_is_refused_and_not_shown(tmp_path, content):
    path = tmp_path / "my.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InvalidKeyError) as raised:
        read_key_file(path)
    assert KEY.hex() not in str(raised.value)


def test_what_is_no_file_is_no_key(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("absent", "pipe", "absent/absent"):
        with pytest.raises(InvalidKeyError):
            read_key_file(tmp_path / name)


@pytest.mark.parametrize("lost", [["transcript.jsonl"], ["metadata.json"], ["transcript.jsonl", "metadata.json"]])
@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_key_is_destroyed_whatever_is_left_beside_it(lost: list[str], is_renamed: bool, tmp_path: Path) -> None:
    """A conversation whose transcript was lost, or damaged, could not be shredded, and its key stayed."""
    library = ConversationLibrary(tmp_path, encryption_key=bytes(32))
    for is_damaged in (False, True):
        with library.create() as conversation:
            conversation.append_message({"role": "user", "content": "secret"})
            folder, own_id = tmp_path / conversation.id, conversation.id
        for name in lost:
            folder.joinpath(name).unlink()
            if is_damaged:
                folder.joinpath(name).write_bytes(b"\0" * 600)
        if is_renamed:
            folder = folder.rename(tmp_path / f"of its own {is_damaged}")
        done = library.shred_folder(folder.name) if is_renamed else library.shred(folder.name)
        assert done.id == own_id
        assert b"wrapped" not in folder.joinpath("key.json").read_bytes()
        is_there = is_damaged or "transcript.jsonl" not in lost
        assert len(done.still_readable) == (is_there and "transcript.jsonl" in lost)  # of damaged bytes nobody can tell


def test_a_key_of_another_conversation_is_not_destroyed(tmp_path: Path) -> None:
    """In a folder of another name, whose transcript is lost, metadata.json says whose it is; the key beside it is another's."""
    library = ConversationLibrary(tmp_path, encryption_key=bytes(32))
    ours, other = (library.create(messages=[{"role": "user", "content": "hi"}]) for _ in range(2))
    for store in (ours, other):
        store.close()
    folder = Path(ours.directory).rename(tmp_path / "odd")
    folder.joinpath("transcript.jsonl").unlink()
    key = Path(other.directory, "key.json").read_bytes()
    folder.joinpath("key.json").write_bytes(key)
    with pytest.raises(CorruptTranscriptError):
        library.shred_folder("odd")
    assert folder.joinpath("key.json").read_bytes() == key


def test_what_is_no_key_of_the_conversation_is_not_destroyed(tmp_path: Path) -> None:
    """A key.json that somebody put into a folder of something else is no key of ours."""
    library, folder = ConversationLibrary(tmp_path), tmp_path / "6d2a1c1e-0000-4000-8000-000000000000"
    folder.mkdir()
    folder.joinpath("key.json").write_text("{}")
    with pytest.raises(ConversationNotFoundError):
        library.shred(folder.name)
    with pytest.raises(ConversationNotFoundError):
        library.shred_folder(folder.name)
    assert folder.joinpath("key.json").read_text() == "{}"


@pytest.mark.parametrize("key_file", [b"{}", b"", None])
def test_no_key_is_destroyed_where_nothing_says_whose_it_is(key_file: bytes | None, tmp_path: Path) -> None:
    """A folder of another name, in which the header, the metadata and the key file are damaged: it is a conversation, and no more is known."""
    library = ConversationLibrary(tmp_path, encryption_key=bytes(32))
    with library.create(messages=[{"role": "user", "content": "hi"}]) as store:
        own_id = store.id
    folder = (tmp_path / own_id).rename(tmp_path / "odd")
    transcript = folder / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(own_id.encode(), b"x" * 36))
    folder.joinpath("metadata.json").write_bytes(b"{}")
    folder.joinpath("key.json").unlink()
    if key_file is not None:
        folder.joinpath("key.json").write_bytes(key_file)
    before = tree(tmp_path)
    with pytest.raises(CorruptMetadataError):
        library.shred_folder("odd")
    assert tree(tmp_path) == before
