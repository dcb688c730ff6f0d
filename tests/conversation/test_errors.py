"""Every error survives a process boundary. Two are builtin errors too."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

from tests.kit.cases import for_each
from transcript_store import (
    ConversationChangedError,
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ConversationShreddedError,
    CorruptKeyFileError,
    CorruptMetadataError,
    CorruptSnapshotError,
    CorruptTranscriptError,
    DataKeyExhaustedError,
    DecryptionError,
    FeatureNotEnabledError,
    GenerationNotFoundError,
    Hint,
    IncompleteResponseError,
    InvalidBaseUrlError,
    InvalidIdError,
    InvalidKeyError,
    InvalidMessageError,
    InvalidMetadataError,
    InvalidSnapshotIdError,
    KeyNeededError,
    KeyProviderError,
    MaxStepsError,
    MissingExtraError,
    MissingTokenError,
    NotAPathError,
    NotSealedError,
    PoisonedError,
    ProviderMismatchError,
    ReadOnlyError,
    RedactionError,
    SnapshotNotFoundError,
    StorageError,
    TranscriptStoreError,
    UnsupportedVersionError,
    WrongKeyError,
    errors,
)

ERRORS: list[TranscriptStoreError] = [
    TranscriptStoreError(path="/p", reason="r"),
    ConversationNotLoadedError(path="/p", reason="r", hint=Hint.LOAD_HERE),
    ConversationNotFoundError(path="/p", reason="r"),
    GenerationNotFoundError(path="/p", number=3, available=(0, 4)),
    ConversationExistsError(path="/p", reason="r"),
    ConversationLockedError(path="/p", reason="r", holder_pid=5, holder_host="h"),
    ConversationLockedError(path="/p", reason="r"),
    ConversationChangedError(path="/p", reason="r", expected_head="0" * 32, head="1" * 32),
    FeatureNotEnabledError(path="/p", feature="retract"),
    ReadOnlyError(path="/p"),
    CorruptTranscriptError(path="/p", kind="hole", reason="r", line_number=3, offset_bytes=99),
    CorruptTranscriptError(path="/p", kind="missing", reason="r"),
    CorruptMetadataError(path="/p", kind="damaged", reason="r"),
    UnsupportedVersionError(path="/p", reason="r"),
    InvalidMessageError(member='message["a"]', reason="r"),
    InvalidMetadataError(field="labels", reason="r"),
    RedactionError(member="message", reason="r"),
    InvalidIdError(reason="r"),
    NotAPathError(),
    StorageError(errno=28, strerror="No space left on device", path="/p", doing="append", consequence="So it is."),
    PoisonedError(path="/p", reason="r"),
    InvalidSnapshotIdError(reason="r", id="../etc"),
    SnapshotNotFoundError(id="3b2f"),
    CorruptSnapshotError(path="/p", kind="damaged", reason="r"),
    CorruptSnapshotError(path=None, kind="damaged", reason="r"),
    DecryptionError(path="/p", reason="r"),
    InvalidKeyError(reason="r", length_bytes=33),
    KeyNeededError(path="/p"),
    WrongKeyError(path="/p", key_id="k", reason="r"),
    KeyProviderError(path="/p", key_id="k", reason="r"),
    CorruptKeyFileError(path="/p", kind="missing", reason="r"),
    ConversationShreddedError(path="/p", shredded_at="2026-11-24T00:00:00.000000Z"),
    NotSealedError(path="/p", reason="r"),
    DataKeyExhaustedError(path="/p", count=5),
    ProviderMismatchError(recorded_provider="claude", provider="openai"),
    InvalidBaseUrlError(reason="r"),
    MissingExtraError(provider="claude", extra="claude"),
    MissingExtraError(provider="claude-local", extra=None, program="claude"),
    MissingTokenError(provider="claude", variables=("ANTHROPIC_API_KEY",)),
    MaxStepsError(steps=20),
    IncompleteResponseError(reason="r", text="t"),
]


def test_every_error_class_is_in_the_list():
    """A class that is added to errors.py must be pickled here."""
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert {type(error) for error in ERRORS} == classes


@for_each("error", ERRORS)
def test_errors_survive_pickling_and_copying(error):
    """An error that crosses a process (multiprocessing, a job queue) keeps its class, text, facts and notes."""
    error.add_note("seen in a worker")
    copies = [copy.copy(error), copy.deepcopy(error)]
    copies += [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for again in copies:
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        assert vars(again) == vars(error)
        if isinstance(error, OSError):
            assert (again.errno, again.strerror, again.filename) == (error.errno, error.strerror, error.filename)


def test_only_two_errors_are_builtin_errors_too():
    """In the whole package: code that knows nothing of it catches an ``OSError`` and an ``ImportError``.

    A damaged file, or a conversation that does not exist, is not a wrong argument: ``except ValueError`` lets it pass.
    """
    package = Path(errors.__file__).parent
    code = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    assert re.findall(r"^ *class (\w+)\(\w+Error, (.*)\):", code, re.MULTILINE) == [
        ("StorageError", "OSError"),
        ("MissingExtraError", "ImportError"),
    ]
    assert not [error for error in ERRORS if isinstance(error, (ValueError, LookupError, RuntimeError))]
