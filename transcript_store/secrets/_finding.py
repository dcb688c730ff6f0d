"""Where secrets stand: each part of each conversation that holds some, with how many of which kind."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

from transcript_store.conversation import ConversationMetadata, ConversationStore, Verify
from transcript_store.errors import ConversationNotFoundError, GenerationNotFoundError, TranscriptStoreError
from transcript_store.formats import redacted_record, redaction_of
from transcript_store.import_notes import covers, first_shown, note_of
from transcript_store.keys import KeyProvider
from transcript_store.library import ConversationLibrary, ConversationSummary, list_conversations
from transcript_store.maintenance import verify
from transcript_store.redaction import SecretRedactor, require_redactor
from transcript_store.snapshots import SnapshotStore

Part = Literal["live", "generation", "quarantine", "snapshot"]
_FIELDS = ("model", "system_prompt", "tools", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSecrets:
    """A part of a conversation, or a snapshot, that holds secrets; or one that could not be read."""

    id: str | None
    directory: str
    """The conversation's folder, or what stands for it on a backend; of a snapshot its store."""
    title: str | None = None
    """Without secrets."""
    part: Part
    """``live``: what the conversation says now, and its metadata; ``generation``: an earlier one; ``quarantine``: bytes that recovery
    or a repair took out; ``snapshot``."""
    generation: int | None = None
    """The number of the generation, of the live one too."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of each kind."""
    is_unknown: bool = False
    """Whether the generation is from before secrets were taken out that this redactor does not know: it may hold them."""
    reason: str | None = None
    """Why it could not be read; None if it was."""
    error: TranscriptStoreError | None = field(default=None, compare=False)
    """The same as a value, if the library refused it."""


class Library(NamedTuple):
    """A library that is looked through: a directory with all its folders, or one on a backend."""

    given: ConversationLibrary
    keys: Mapping[str, Any]

    def conversations(self) -> Iterator[ConversationSummary]:
        """Those that there are; of a directory also folders that are not named by an id."""
        if not os.path.isabs(self.given.directory):
            yield from self.given.iter_list()
            return
        with suppress(ConversationNotFoundError):
            yield from list_conversations(self.given.directory)

    def open(self, summary: ConversationSummary, **options: Any) -> AbstractContextManager[ConversationStore]:
        """A store of it that is loaded."""
        if not os.path.isabs(self.given.directory):
            return self.given.open(str(summary.id), **options)
        verify: Verify = options.pop("verify", "all")
        store = ConversationStore(summary.directory, **self.keys, **options)
        try:
            store.load(verify=verify)
        except BaseException:
            store.close()
            raise
        return store


def open_library(
    library: ConversationLibrary | str | os.PathLike[str],
    key: bytes | KeyProvider | None,
    retired: Sequence[bytes | KeyProvider],
) -> Library:
    """A library and its keys, from what a caller gave."""
    keys: dict[str, Any] = {} if key is None else {"encryption_key": key, "retired_keys": retired}
    if not isinstance(library, ConversationLibrary):
        library = ConversationLibrary(library, **keys)
    return Library(library, keys)


def find_secrets(
    library: ConversationLibrary | str | os.PathLike[str],
    *,
    redact: SecretRedactor | None = None,
    encryption_key: bytes | KeyProvider | None = None,
    retired_keys: Sequence[bytes | KeyProvider] = (),
) -> Iterator[FoundSecrets]:
    """The parts of a library's conversations that hold secrets, one conversation after another. Reads only, and takes no lock.

    Args:
        library: a library, or its directory; of a directory every conversation in it, also one in a folder with a name of its own.
        redact: what knows the secrets; None for one that knows those with a form.
        encryption_key: the key of conversations that are sealed; of a library on a backend, the library has it.
        retired_keys: earlier keys.

    Raises:
        TypeError: ``redact`` is no ``SecretRedactor``.
        StorageError: while it is iterated; the library cannot be listed.
    """
    redactor = SecretRedactor() if redact is None else redact
    require_redactor(redactor)
    return _found(open_library(library, encryption_key, retired_keys), redactor)


def _found(library: Library, redactor: SecretRedactor) -> Iterator[FoundSecrets]:
    for summary in library.conversations():
        try:
            with library.open(summary, read_only=True) as store:
                found = found_in(store, summary, redactor)
        except TranscriptStoreError as error:
            found = [unreadable(summary, redactor, error)]
        yield from found
        yield from in_quarantine(summary, redactor)


def found_in(store: ConversationStore, summary: ConversationSummary, redactor: SecretRedactor) -> list[FoundSecrets]:
    """The generations of a loaded conversation that hold secrets, the live one first."""
    live = store.get_metadata()
    of = _of(summary, redactor, live)
    found = []
    counts: Mapping[str, int] = _sum(_in_metadata(live, redactor), _in_records(store, None, redactor))
    # The first line of the transcript has the metadata of then.
    if counts := counts or _in_metadata(store.get_metadata(at_start=True), redactor):
        found.append(FoundSecrets(**of, part="live", generation=live.generation, counts=counts))
    shown_from = first_shown(store)
    is_unknown = bool(shown_from) and not _knows(store, shown_from, redactor)
    for number in range(live.generation):
        try:
            counts = _in_records(store, number, redactor)
        except GenerationNotFoundError:
            continue
        except TranscriptStoreError as error:
            found.append(FoundSecrets(**of, part="generation", generation=number, reason=str(error), error=error))
            continue
        hidden = is_unknown and number < shown_from
        if counts or hidden:
            found.append(
                FoundSecrets(
                    **of, part="generation", generation=number, counts=counts, is_unknown=hidden and not counts
                )
            )
    return found


def in_quarantine(summary: ConversationSummary, redactor: SecretRedactor) -> list[FoundSecrets]:
    """The quarantine of a conversation in a folder, if the bytes in it hold secrets."""
    if not os.path.isabs(summary.directory):
        return []
    counts: Counter[str] = Counter()
    of = _of(summary, redactor)
    try:
        for path in verify(summary.directory).quarantined:
            with open(path, "rb") as file:
                for line in file:  # bytes that were damaged: what of them is text
                    counts.update(redactor.redact(line.decode("utf-8", "replace")).counts)
    except TranscriptStoreError:
        return []  # the conversation was refused for the same
    except OSError as error:
        return [FoundSecrets(**of, part="quarantine", reason=f"cannot be read: {error.strerror}")]
    return [FoundSecrets(**of, part="quarantine", counts=dict(sorted(counts.items())))] if counts else []


def keeping_what_was_redacted(
    library: ConversationLibrary | str | os.PathLike[str], redact: SecretRedactor
) -> Iterator[str]:
    """The directories of the conversations that keep a generation from before secrets were taken out, with those secrets.

    What cannot be read is left out: every other command names it.
    """
    through = open_library(library, None, ())
    for summary in through.conversations():
        if summary.generation:
            with suppress(TranscriptStoreError), through.open(summary, read_only=True, verify="tail") as store:
                if first_shown(store) and any(one.part == "generation" for one in found_in(store, summary, redact)):
                    yield summary.directory


def find_secrets_in_snapshots(store: SnapshotStore, *, redact: SecretRedactor | None = None) -> Iterator[FoundSecrets]:
    """The snapshots of a store that hold secrets. Reads only.

    Raises:
        TranscriptStoreError: while it is iterated; the store cannot be listed.
    """
    redactor = SecretRedactor() if redact is None else redact
    require_redactor(redactor)
    where = str(getattr(store, "directory", ""))
    for summary in store.list():
        try:
            snapshot = store.load(summary.id)
        except TranscriptStoreError as error:
            yield FoundSecrets(id=summary.id, directory=where, part="snapshot", reason=str(error), error=error)
            continue
        said = [orjson.loads(snapshot.messages_json), snapshot.system_prompt, [asdict(one) for one in snapshot.tools]]
        if counts := redactor.redact([*said, snapshot.model, snapshot.metadata]).counts:
            yield FoundSecrets(id=summary.id, directory=where, part="snapshot", counts=counts)


def unreadable(summary: ConversationSummary, redactor: SecretRedactor, error: TranscriptStoreError) -> FoundSecrets:
    """What is said of a conversation that the library refused."""
    of = _of(summary, redactor)
    return FoundSecrets(**of, part="live", generation=summary.generation, reason=str(error), error=error)


def _of(
    summary: ConversationSummary, redactor: SecretRedactor, metadata: ConversationMetadata | None = None
) -> dict[str, Any]:
    title = summary.title if metadata is None else metadata.labels.get("title")
    return {"id": summary.id, "directory": summary.directory, "title": redactor.redact(title).value}


def metadata_values(metadata: ConversationMetadata) -> dict[str, Any]:
    """What of the metadata somebody wrote."""
    return {name: getattr(metadata, name) for name in _FIELDS if getattr(metadata, name)}


def _in_metadata(metadata: ConversationMetadata, redactor: SecretRedactor) -> Mapping[str, int]:
    return redactor.redact(metadata_values(metadata)).counts


def _in_records(store: ConversationStore, generation: int | None, redactor: SecretRedactor) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for record in store.iter_records(generation=generation):
        counts.update(redacted_record(record.message, record.extra, redactor)[2])
    return dict(sorted(counts.items()))


def _knows(store: ConversationStore, generation: int, redactor: SecretRedactor) -> bool:
    """Whether the redactor takes out all that was taken out when this generation began."""
    redaction, kinds = None, set()
    for record in store.iter_records(generation=generation):
        note = note_of(record) or {}
        redaction = redaction or note.get("redaction")
        kinds |= (record.extra or {}).get("redacted", {}).keys()
    # A pattern, or a function of somebody's own, that no note tells apart.
    return covers(redaction_of(redactor), redaction) if redaction else not kinds & {"pattern", "changed"}


def _sum(*counts: Mapping[str, int]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))
