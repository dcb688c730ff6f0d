"""How does a conversation become a snapshot, and a snapshot a conversation? (``history`` converts the messages.)"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from transcript_store._snapshots.history import encoded_in, history_json
from transcript_store._snapshots.snapshot import APPROXIMATE_TOKENS, OURS, Snapshot, with_messages
from transcript_store._snapshots.tools import ToolSnapshot, warn_of_tools
from transcript_store.conversation import ConversationStore
from transcript_store.errors import CorruptSnapshotError

_log = logging.getLogger("transcript_store.snapshots")


def snapshot_of(conversation: ConversationStore) -> Snapshot:
    """A loaded conversation as a snapshot with a fresh id: all its messages, of one moment, unchanged.

    With an OpenAI provider the system prompt precedes the messages, in the form that it had there, and replaces one
    that another program logged. Gemini's messages get the names and the base64 of the API.

    ``metadata`` carries what the format has no member for, under names that begin with ``transcript_store.``: the
    conversation's id, generation, seq (records), head, labels, compaction count and approximate tokens. These are what
    the last recorded usage says (an ``extra`` with ``usage``, ``usageMetadata`` or ``usage_metadata``), and a quarter
    of the bytes of the messages after it, or of all, without media.

    A snapshot does not have retracted messages (:meth:`ConversationStore.retract`), the time and the ``extra`` of each
    record, records without a message, and members of a tool other than name, description and parameters. A tool whose
    parameters the Go library cannot read is kept; a warning with its name goes to the logger
    ``transcript_store.snapshots``.

    A snapshot contains only what is on disk. Unsynced appends are synced first. A reader
    (``read_only=True``) is refreshed, because it may have seen records that its writer failed to store.

    Raises:
        ConversationNotLoadedError: the conversation is not loaded.
        InvalidMessageError: a snapshot cannot hold a message: another program wrote it, and it nests more than 500
            levels deep.
        TranscriptStoreError: what ``get_records()`` raises.
    """
    if not isinstance(conversation, ConversationStore):
        raise TypeError(f"snapshot_of() takes a loaded ConversationStore, not {type(conversation).__name__}")
    with conversation.frozen() as (metadata, records, (seq, head), at_start):
        messages, tokens = history_json(records, metadata, at_start)
    kept = (metadata.restored_from or {}).get("metadata")
    snapshot = Snapshot.create(
        provider=metadata.provider or "",
        model=metadata.model or "",
        messages=None,
        system_prompt=metadata.system_prompt or "",
        tools=tool_snapshots(metadata.tools or ()),
        metadata={
            **(kept if type(kept) is dict else {}),
            OURS + "conversation": metadata.id,
            OURS + "generation": str(metadata.generation),
            OURS + "seq": str(seq),
            OURS + "head": head,
            OURS + "labels": json.dumps(metadata.labels, ensure_ascii=False, sort_keys=True),
            OURS + "compaction_count": str(metadata.compaction_count),
            APPROXIMATE_TOKENS: str(tokens),
        },
    )
    return with_messages(snapshot, messages)


def restore_snapshot(snapshot: Snapshot, conversation: ConversationStore) -> None:
    """Make a conversation continue from a snapshot, in one commit; it is loaded on return.

    A missing conversation is created with a new id. An existing one is loaded if necessary, and its transcript is
    replaced (the old one stays in ``archive/``). Model, prompt and tools are replaced too; labels and compaction count
    are if the snapshot has them. ``get_metadata().restored_from`` names the origin. On return all of it survives a
    power loss; before that, the old conversation is unchanged.

    Raises:
        ProviderMismatchError: the conversation is another provider's; ``openai`` and ``openai-compatible`` are one.
        InvalidMessageError: a transcript cannot hold a message: it is not an object, or has a key twice in one object, an
            integer beyond 64 bits, a lone surrogate, or more than 200 levels.
        CorruptSnapshotError: the members under our names were not written by this library.
        TranscriptStoreError: what ``initialize()`` and ``replace_transcript()`` raise.
    """
    if not isinstance(snapshot, Snapshot) or not isinstance(conversation, ConversationStore):
        given = f"{type(snapshot).__name__} and {type(conversation).__name__}"
        raise TypeError(f"restore_snapshot() takes a Snapshot and then a ConversationStore, not {given}")
    messages, prompt, taken_off = encoded_in(snapshot)
    metadata = snapshot.metadata
    fields: dict[str, Any] = {
        "model": snapshot.model or None,
        "system_prompt": prompt or None,
        "tools": tool_members(snapshot.tools) or None,
    }
    if (labels := metadata.get(OURS + "labels")) is not None:
        fields["replace_labels"] = _labels(labels)  # exactly those of the snapshot's conversation
    if (count := _number(metadata, "compaction_count")) is not None:
        fields["compaction_count"] = count

    origin = {
        "snapshot": snapshot.id,
        "conversation": metadata.get(OURS + "conversation"),
        "generation": _number(metadata, "generation"),
        "seq": _number(metadata, "seq"),
        "head": metadata.get(OURS + "head"),
        "system_message": taken_off,
        "metadata": {key: value for key, value in metadata.items() if not key.startswith(OURS)} or None,
    }
    conversation.restore(
        messages,
        provider=snapshot.provider or None,
        restored_from={key: value for key, value in origin.items() if value is not None},
        **fields,
    )


# ---- tools -------------------------------------------------------------------------------------------------------------


def tool_snapshots(tools: Iterable[Mapping[str, Any]]) -> list[ToolSnapshot]:
    """A conversation's tools as a snapshot has them; logs a warning for each that the Go library cannot read."""
    found = []
    for tool in tools:
        parameters = tool.get("parameters")
        if parameters == {"not": {}}:  # what tool_members() makes of False
            parameters = False
        found.append(ToolSnapshot(tool["name"], tool.get("description", ""), parameters))
    warn_of_tools(found, _log)
    return found


def tool_members(tools: Iterable[ToolSnapshot]) -> list[dict[str, Any]]:
    """A snapshot's tools as a conversation has them: parameters, if there are any, are an object, as models require."""
    found = []
    for tool in tools:
        members: dict[str, Any] = {"name": tool.name, "description": tool.description}
        if tool.parameters is not None:
            members["parameters"] = {} if tool.parameters is True else tool.parameters or {"not": {}}
        found.append(members)
    return found


# ---- metadata ----------------------------------------------------------------------------------------------------------


def _labels(text: str) -> dict[str, str]:
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError):
        labels = None
    if type(labels) is not dict or not all(type(value) is str for value in labels.values()):
        raise CorruptSnapshotError(path=None, kind="damaged", reason="its labels are not a JSON object of strings")
    return labels


def _number(metadata: dict[str, str], name: str) -> int | None:
    text = metadata.get(OURS + name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise CorruptSnapshotError(path=None, kind="damaged", reason=f"its {name} is not a number from 0")
    return int(text)
