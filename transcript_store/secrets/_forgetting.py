"""Secrets, removed from a library: out of what its conversations say now, and with each earlier generation and quarantine that has some.

Each step is a commit of the store, and each can be made again: after a crash, or an error, the same call goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transcript_store.conversation import ConversationStore
from transcript_store.errors import GenerationNotFoundError, TranscriptStoreError
from transcript_store.formats import redacted_record, redaction_of
from transcript_store.import_notes import covers, note_of
from transcript_store.keys import KeyProvider
from transcript_store.library import ConversationLibrary
from transcript_store.redaction import SecretRedactor, require_redactor
from transcript_store.secrets._finding import (
    FoundSecrets,
    Library,
    found_in,
    in_quarantine,
    metadata_values,
    open_library,
    unreadable,
)

_Changed = dict[int, tuple[dict[str, Any] | None, dict[str, Any] | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenSecrets(FoundSecrets):
    """A part that held secrets: they are gone from it, or it is; unless there is a ``reason``. Then it is as it was."""


def forget_secrets(
    library: ConversationLibrary | str | os.PathLike[str],
    *,
    redact: SecretRedactor | None = None,
    encryption_key: bytes | KeyProvider | None = None,
    retired_keys: Sequence[bytes | KeyProvider] = (),
    lock_timeout_seconds: float = 0.0,
) -> Iterator[ForgottenSecrets]:
    """Remove the secrets of a library's conversations, forks among them; says what was done, part by part.

    What a conversation says now stays, with ``[redacted:kind]`` in the place of each secret. Earlier generations and quarantines that
    hold secrets are deleted, and so are generations from before a redaction that this redactor cannot check. When a part is
    reported it is durably done. Snapshots, copies elsewhere and the files that were imported stay as they are. The next import of
    such a file needs a redactor that takes out as much.

    Args:
        library: as in :func:`find_secrets`.
        redact: as there.
        encryption_key: as there.
        retired_keys: as there.
        lock_timeout_seconds: how long to wait for a conversation that somebody is writing to; then it is reported with the reason.

    Raises:
        TypeError: ``redact`` is no ``SecretRedactor``.
        StorageError: while it is iterated; the library cannot be listed. What was reported is done; the same call goes on.
    """
    redactor = SecretRedactor() if redact is None else redact
    require_redactor(redactor)
    return _forgotten(open_library(library, encryption_key, retired_keys), redactor, lock_timeout_seconds)


def _forgotten(library: Library, redactor: SecretRedactor, seconds: float) -> Iterator[ForgottenSecrets]:
    for summary in library.conversations():
        try:
            with library.open(summary, read_only=True) as reader:
                found = found_in(reader, summary, redactor)
        except TranscriptStoreError as error:
            found = [unreadable(summary, redactor, error)]
        found += in_quarantine(summary, redactor)
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
            for one in readable[done:]:
                yield ForgottenSecrets(**{**_members(one), "reason": str(error), "error": error})


def _forget(
    store: ConversationStore, found: Sequence[FoundSecrets], redactor: SecretRedactor
) -> Iterator[ForgottenSecrets]:
    """What is said now, then the generations that had it, then the quarantine: in the order of ``found``."""
    ended = _redact_live(store, redactor, is_needed=found[0].part == "live")
    left = None if ended is None else _without_generation(store, ended)
    if left is not None:  # the live one is without its secrets now, and they are in the archive
        yield ForgottenSecrets(**{**_members(found[0]), "part": "generation", "generation": ended, **left})
    for one in found:
        left = None
        if one.part == "generation" and one.generation is not None:
            left = _without_generation(store, one.generation)
        elif one.part == "quarantine":
            store.purge_quarantine()
        yield ForgottenSecrets(**{**_members(one), **(left or {})})


def _without_generation(store: ConversationStore, number: int) -> dict[str, Any] | None:
    """Delete an earlier generation; says why it is still there, if it is: those of a backend cannot be deleted."""
    try:
        store.delete_generation(number)
    except GenerationNotFoundError:
        return None
    except TranscriptStoreError as error:
        return {"reason": str(error), "error": error}
    return None


def _redact_live(store: ConversationStore, redactor: SecretRedactor, *, is_needed: bool) -> int | None:
    """Take the secrets out of what the conversation says now; returns the number of the generation that this ended, if it did."""
    changed: _Changed = {}
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
        if (note := note_of(record)) is not None and not covers(note.get("redaction"), redaction_of(redactor)):
            extra = _noted(record.extra or {}, extra or {}, note, redactor)
        if extra != record.extra or counts:
            changed[record.seq] = (message, extra)
    metadata = store.get_metadata()
    now = metadata_values(metadata)
    clean = redactor.redact(now).value
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
    """The note of an import as one with this redactor would have left it: then the next import compares, and brings nothing back."""
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
