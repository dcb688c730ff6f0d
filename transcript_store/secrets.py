"""Find secrets in conversations, by part, and remove them from a library.

.. code-block:: python

    from transcript_store.secrets import find_secrets, forget_secrets

    for found in find_secrets("chats"):
        print(found.directory, found.part, found.generation, dict(found.counts))
    for forgotten in forget_secrets("chats"):
        print(forgotten.directory, forgotten.part, forgotten.generation, forgotten.reason)

Neither ever returns a secret. A :class:`~transcript_store.redaction.SecretRedactor` defines what a secret is.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

from transcript_store.conversation import ConversationMetadata, ConversationStore, Verify
from transcript_store.errors import ConversationNotFoundError, GenerationNotFoundError, TranscriptStoreError
from transcript_store.formats import redacted_fields, redacted_record, redaction_of
from transcript_store.import_notes import first_shown, note_of, redaction_covers
from transcript_store.keys import KeyProvider
from transcript_store.library import ConversationLibrary, ConversationSummary, list_conversations
from transcript_store.maintenance import verify
from transcript_store.redaction import SecretRedactor, require_redactor
from transcript_store.snapshots import SnapshotStore

__all__ = [
    "ForgottenSecrets",
    "FoundSecrets",
    "find_secrets",
    "find_secrets_in_snapshots",
    "forget_secrets",
    "keeping_what_was_redacted",
]

Part = Literal["live", "generation", "quarantine", "snapshot"]
_FIELDS = ("model", "system_prompt", "tools", "labels", "restored_from")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSecrets:
    """A part of a conversation, or a snapshot, that holds secrets; or one that could not be read."""

    id: str | None
    directory: str
    """The conversation's folder, or its address on a backend; of a snapshot its store."""
    title: str | None = None
    """Without secrets."""
    part: Part
    """``live``: the live generation and the metadata; ``generation``: an earlier one; ``quarantine``: bytes that recovery
    or a repair removed, or a torn tail, which the next load puts there; ``snapshot``."""
    generation: int | None = None
    """The number of the generation, of the live one too."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of each kind."""
    is_unknown: bool = False
    """True if the generation precedes a redaction by patterns that this redactor lacks: it may hold their secrets."""
    reason: str | None = None
    """Why it could not be read; None if it was."""
    error: TranscriptStoreError | None = field(default=None, compare=False)
    """The same as a value, if the library refused it."""


class Library(NamedTuple):
    """A library to search: a directory with all its folders, or one on a backend."""

    given: ConversationLibrary
    keys: Mapping[str, Any]

    def conversations(self) -> Iterator[ConversationSummary]:
        """All conversations; in a directory also folders that are not named by an id."""
        if not os.path.isabs(self.given.directory):
            yield from self.given.iter_list()
            return
        with suppress(ConversationNotFoundError):
            yield from list_conversations(self.given.directory)

    def open(self, summary: ConversationSummary, **options: Any) -> AbstractContextManager[ConversationStore]:
        """A loaded store of one conversation."""
        # A library may have both kinds: with its keys a store refuses a plaintext one, whose secrets would stay.
        keys = self.keys if summary.sealed else {"encryption_key": None, "retired_keys": ()}
        if not os.path.isabs(self.given.directory) or os.path.basename(summary.directory) == summary.id:
            return self.given.open(summary.id or "", **keys, **options)
        verify: Verify = options.pop("verify", "all")
        store = ConversationStore(summary.directory, **keys, **options)
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
    """A library and its keys, from a caller's arguments."""
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
        redact: the redactor that finds the secrets; None for one that knows all built-in forms.
        encryption_key: the key of conversations that are sealed; not needed for a library that has it.
        retired_keys: earlier keys.

    Raises:
        TypeError: ``redact`` is not a ``SecretRedactor``.
        StorageError: while it is iterated; the library cannot be listed.
    """
    redactor = SecretRedactor() if redact is None else redact
    require_redactor(redactor)
    return _found(open_library(library, encryption_key, retired_keys), redactor)


def _found(library: Library, redactor: SecretRedactor) -> Iterator[FoundSecrets]:
    for summary in library.conversations():
        try:
            with library.open(summary, read_only=True) as store:
                found, is_refused = found_in(store, summary, redactor), False
        except TranscriptStoreError as error:
            found, is_refused = [unreadable(summary, redactor, error)], True
        yield from found
        yield from in_quarantine(summary, redactor, is_refused=is_refused)


def found_in(store: ConversationStore, summary: ConversationSummary, redactor: SecretRedactor) -> list[FoundSecrets]:
    """The generations of a loaded conversation that hold secrets, the live one first."""
    live = store.get_metadata()
    of = _of(summary, redactor, live)
    found = []
    counts: Mapping[str, int] = _sum(_in_metadata(live, redactor), _in_records(store, None, redactor))
    # The first line of the transcript has the metadata of that time.
    if counts := counts or _in_metadata(store.get_metadata(at_start=True), redactor):
        found.append(FoundSecrets(**of, part="live", generation=live.generation, counts=counts))
    shown_from = first_shown(store)
    is_unknown = bool(shown_from) and not _knows(store, shown_from, redactor)
    for number in range(live.generation):
        try:
            counts = _sum(
                _in_metadata(store.get_metadata(generation=number), redactor), _in_records(store, number, redactor)
            )
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


def in_quarantine(
    summary: ConversationSummary, redactor: SecretRedactor, *, is_refused: bool = False
) -> list[FoundSecrets]:
    """The quarantine of a conversation in a folder, its torn tail included, if the bytes in it hold secrets.

    ``is_refused``: the conversation could not be opened, and that is reported.
    """
    if not os.path.isabs(summary.directory):
        return []
    counts: Counter[str] = Counter()
    of = _of(summary, redactor)
    try:
        verified = verify(summary.directory)
        torn = [(one.path, one.offset_bytes or 0) for one in verified.findings if one.kind == "torn-tail"]
        for path, offset in [*((path, 0) for path in verified.quarantined), *torn]:
            with open(path, "rb", opener=_without_waiting) as file:
                file.seek(offset)
                for line in file:  # damaged bytes: only their text is searched
                    counts.update(redactor.redact(line.decode("utf-8", "replace")).counts)
    except TranscriptStoreError as error:
        # If the conversation was refused too, it is reported already. A quarantine that is closed alone must not pass for one
        # without secrets.
        return [] if is_refused else [FoundSecrets(**of, part="quarantine", reason=str(error), error=error)]
    except OSError as error:
        return [FoundSecrets(**of, part="quarantine", reason=f"cannot be read: {error.strerror}")]
    return [FoundSecrets(**of, part="quarantine", counts=dict(sorted(counts.items())))] if counts else []


def _without_waiting(path: str, flags: int) -> int:
    """Open a file of the quarantine. A FIFO would be waited for, and a link may lead anywhere."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.EINVAL, f"{os.path.basename(path)} is not a file")
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def keeping_what_was_redacted(
    library: ConversationLibrary | str | os.PathLike[str], redact: SecretRedactor
) -> Iterator[str]:
    """The directories of the conversations that keep a generation from before secrets were taken out, with those secrets.

    Unreadable conversations are left out: every other command reports them.
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
        values = [orjson.loads(snapshot.messages_json), snapshot.system_prompt, [asdict(one) for one in snapshot.tools]]
        if counts := redactor.redact([*values, snapshot.model, snapshot.metadata]).counts:
            yield FoundSecrets(id=summary.id, directory=where, part="snapshot", counts=counts)


def unreadable(summary: ConversationSummary, redactor: SecretRedactor, error: TranscriptStoreError) -> FoundSecrets:
    """The report for a conversation that the library refused."""
    of = _of(summary, redactor)
    return FoundSecrets(**of, part="live", generation=summary.generation, reason=str(error), error=error)


def _of(
    summary: ConversationSummary, redactor: SecretRedactor, metadata: ConversationMetadata | None = None
) -> dict[str, Any]:
    title = summary.title if metadata is None else metadata.labels.get("title")
    return {"id": summary.id, "directory": summary.directory, "title": redactor.redact(title).value}


def metadata_values(metadata: ConversationMetadata) -> dict[str, Any]:
    """The metadata that a user can write."""
    return {name: getattr(metadata, name) for name in _FIELDS if getattr(metadata, name)}


def _in_metadata(metadata: ConversationMetadata, redactor: SecretRedactor) -> Mapping[str, int]:
    return redacted_fields(metadata_values(metadata), redactor)[1]


def _in_records(store: ConversationStore, generation: int | None, redactor: SecretRedactor) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for record in store.iter_records(generation=generation):
        counts.update(redacted_record(record.message, record.extra, redactor)[2])
    return dict(sorted(counts.items()))


def _knows(store: ConversationStore, generation: int, redactor: SecretRedactor) -> bool:
    """True if the redactor removes everything that was removed when this generation started."""
    redaction, kinds = None, set()
    for record in store.iter_records(generation=generation):
        note = note_of(record) or {}
        redaction = redaction or note.get("redaction")
        kinds |= (record.extra or {}).get("redacted", {}).keys()
    # A pattern, or a user's own function, that no note distinguishes.
    return redaction_covers(redaction_of(redactor), redaction) if redaction else not kinds & {"pattern", "changed"}


def _sum(*counts: Mapping[str, int]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


# ---- forgetting ----
# Removes secrets from a library: from the current messages, and with every earlier generation and quarantine that has
# some. Each step is a commit of the store, and each can be repeated: after a crash or an error, the same call
# continues.

_Changed = dict[int, tuple[dict[str, Any] | None, dict[str, Any] | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenSecrets(FoundSecrets):
    """A part that held secrets: they were removed, or the part was deleted. With a ``reason`` it is unchanged."""


def forget_secrets(
    library: ConversationLibrary | str | os.PathLike[str],
    *,
    redact: SecretRedactor | None = None,
    encryption_key: bytes | KeyProvider | None = None,
    retired_keys: Sequence[bytes | KeyProvider] = (),
    lock_timeout_seconds: float = 0.0,
) -> Iterator[ForgottenSecrets]:
    """Remove the secrets of a library's conversations, forks included; yield a report for each part.

    The live messages stay, with ``[redacted:kind]`` instead of each secret. Earlier generations and
    quarantines that hold secrets are deleted, and so are generations from before a redaction that this redactor cannot
    check. When a part is reported it is durably done. Snapshots, copies elsewhere and the files that were imported stay
    as they are. The next import of such a file needs a redactor that takes out as much.

    Args:
        library: as in :func:`find_secrets`.
        redact: as there.
        encryption_key: as there.
        retired_keys: as there.
        lock_timeout_seconds: how long to wait for a conversation that another process is writing to; then it is
            reported with the reason.

    Raises:
        TypeError: ``redact`` is not a ``SecretRedactor``.
        StorageError: while it is iterated; the library cannot be listed. The reported parts are done; repeat the call
            to continue.
    """
    redactor = SecretRedactor() if redact is None else redact
    require_redactor(redactor)
    return _forgotten(open_library(library, encryption_key, retired_keys), redactor, lock_timeout_seconds)


def _forgotten(library: Library, redactor: SecretRedactor, seconds: float) -> Iterator[ForgottenSecrets]:
    _remove_leftovers(library)
    for summary in library.conversations():
        try:
            # Searched without a lock, so that conversations without secrets are never blocked.
            with library.open(summary, read_only=True) as reader:
                found, is_refused = found_in(reader, summary, redactor), False
        except TranscriptStoreError as error:
            found, is_refused = [unreadable(summary, redactor, error)], True
        found += in_quarantine(summary, redactor, is_refused=is_refused)
        readable = [one for one in found if one.reason is None]
        yield from (ForgottenSecrets(**_members(one)) for one in found if one.reason is not None)
        done = 0
        try:
            if readable:
                with library.open(summary, lock_timeout_seconds=seconds) as store:
                    for forgotten in _forget(store, readable, redactor):
                        done += 1
                        yield forgotten
        except TranscriptStoreError as error:
            # The reported parts are durable; the rest is reported with the reason, and can be repeated.
            for one in readable[done:]:
                yield ForgottenSecrets(**{**_members(one), "reason": str(error), "error": error})


def _remove_leftovers(library: Library) -> None:
    """Remove what killed calls left in a directory: deleted conversations, and temporary copies of transcripts.

    They may hold secrets, and no search sees them. A leftover stays if its conversation cannot be opened to write.
    """
    if not os.path.isabs(library.given.directory):
        return
    with library.given.group():
        pass  # its start removes what killed deletes and creates left
    for summary in library.conversations():
        names = [name for _, _, files in os.walk(summary.directory) for name in files]
        if any(name.startswith(".tmp-") for name in names):
            with suppress(TranscriptStoreError), library.open(summary):
                pass  # a load to write removes them


def _forget(
    store: ConversationStore, found: Sequence[FoundSecrets], redactor: SecretRedactor
) -> Iterator[ForgottenSecrets]:
    """The live generation, then the earlier ones, then the quarantine: in the order of ``found``."""
    # First: the replace archives the unredacted generation, which is then deleted like the earlier ones.
    ended = _redact_live(store, redactor, is_needed=found[0].part == "live")
    left = None if ended is None else _without_generation(store, ended)
    if left is not None:  # the live one was redacted, so its earlier form is in the archive
        yield ForgottenSecrets(**{**_members(found[0]), "part": "generation", "generation": ended, **left})
    for one in found:
        left = None
        if one.part == "generation" and one.generation is not None:
            left = _without_generation(store, one.generation)
        elif one.part == "quarantine":
            store.purge_quarantine()
        yield ForgottenSecrets(**{**_members(one), **(left or {})})


def _without_generation(store: ConversationStore, number: int) -> dict[str, Any] | None:
    """Delete an earlier generation; return why it still exists, if it does: those of a backend cannot be deleted."""
    try:
        store.delete_generation(number)
    except GenerationNotFoundError:
        return None
    except TranscriptStoreError as error:
        return {"reason": str(error), "error": error}
    return None


def _redact_live(store: ConversationStore, redactor: SecretRedactor, *, is_needed: bool) -> int | None:
    """Redact the live generation; return the number of the generation that this ended, if any."""
    changed: _Changed = {}
    # Read before the records: with `if_head` the redaction fails if another process appends in between, instead of
    # losing its records.
    head = store.head
    for record in store.iter_records():
        message, extra, counts = redacted_record(record.message, record.extra, redactor)
        if counts:
            there = (record.extra or {}).get("redacted")
            before = there if isinstance(there, dict) else {}
            extra = {
                **(extra or {}),
                "redacted": {**before, **{kind: count + before.get(kind, 0) for kind, count in counts.items()}},
            }
        if (note := note_of(record)) is not None and not redaction_covers(
            note.get("redaction"), redaction_of(redactor)
        ):
            extra = _noted(record.extra or {}, extra or {}, note, redactor)
        if extra != record.extra or counts:
            changed[record.seq] = (message, extra)
    metadata = store.get_metadata()
    now = metadata_values(metadata)
    clean, _ = redacted_fields(now, redactor)
    changes = {name: value for name, value in clean.items() if value is not now[name]}
    if "labels" in changes:
        changes["replace_labels"] = changes.pop("labels")  # a label whose name was a secret must not stay
    if not (changed or changes or is_needed):
        return None
    store.keep_records(range(1, store.record_count + 1), changed=changed, if_head=head, **changes)
    return metadata.generation


def _noted(
    before: Mapping[str, Any], extra: Mapping[str, Any], note: dict[str, Any], redactor: SecretRedactor
) -> dict[str, Any]:
    """The import note with this redactor's redaction: so the next import compares with it, and brings nothing back."""
    ours = redaction_of(redactor)
    there = note.get("redaction") or {"known": ours["known"], "patterns": []}
    redaction = {
        "known": max(there["known"], ours["known"]),
        "patterns": sorted({*there["patterns"], *ours["patterns"]}),
    }
    cleaned = {name: value for name, value in extra["import"].items() if name in ("findings", "losses", "metadata")}
    return {**before, "import": {**note, **cleaned, "tail_base64": "", "redaction": redaction}}


def _members(found: FoundSecrets) -> dict[str, Any]:
    return {name: getattr(found, name) for name in FoundSecrets.__dataclass_fields__}
