"""From conversations to snapshots and back.

A snapshot carries the provider's native history; a transcript holds what was said, and no system prompt, unless another
program logged it there. So where the native history begins with the prompt (OpenAI's does), it is added on the way out and
taken off on the way in: the prompt itself, and no other system message.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transcript_store._conversation.metadata import ConversationMetadata, family
from transcript_store._json import verbatim
from transcript_store._json.strict import parse
from transcript_store._json.usage import tokens_in
from transcript_store._json.verbatim import NotJSONError
from transcript_store._log.record import Record
from transcript_store._snapshots import gemini, media
from transcript_store._snapshots.snapshot import APPROXIMATE_TOKENS, BYTES_PER_TOKEN, OURS, Snapshot
from transcript_store._snapshots.tool import ToolSnapshot, warn_of_tools
from transcript_store.conversation import ConversationStore
from transcript_store.errors import CorruptSnapshotError

_log = logging.getLogger("transcript_store.snapshots")

PROMPT_ROLES = ("system", "developer")


def snapshot_of(conversation: ConversationStore) -> Snapshot:
    """A loaded conversation as a snapshot, with a fresh id: its messages, all of them of one moment, as they are.

    With an OpenAI provider the system prompt is put before the messages, as it stands in that history, and in the place of
    one that another program logged there; no other system message is left out. Gemini's messages get the names and the
    base64 of the API.

    What the format has no member for travels in ``metadata`` under ``transcript_store.``: the conversation's id, generation,
    seq (records), head, labels, compaction count, and the approximate tokens: what the last reply's recorded usage says (an
    ``extra`` with ``usage``, ``usageMetadata`` or ``usage_metadata``) and a quarter of the bytes of the messages after it, or
    of all messages, without media.

    What is lost: the time and the ``extra`` of each record, records without a message, and members of a tool other than
    name, description and parameters. A tool whose parameters the Go library cannot read is kept, and a warning that names it
    goes to the logger ``transcript_store.snapshots``.

    What it holds is on the medium: appends that were not synced are, and a reader (``read_only=True``) is refreshed, for it may
    have been shown what its writer was told is not stored.

    Raises ``ConversationNotLoadedError``, ``InvalidMessageError`` for what a snapshot cannot hold (a message that another program
    wrote, nested more than 500 deep), and what reading raises.
    """
    if not isinstance(conversation, ConversationStore):
        raise TypeError(f"snapshot_of() takes a loaded ConversationStore, not {type(conversation).__name__}")
    metadata, records, (seq, head), at_start = conversation.state()
    origin = metadata.restored_from or {}
    provider, prompt = metadata.provider or "", metadata.system_prompt or ""
    said = [record.message for record in records if record.message is not None]
    logged = said[:1] if prompt and family(provider) == "openai" and begins_with_prompt(said, prompt, at_start) else []
    messages = native_history(provider, prompt, said[len(logged) :], carriers=(*logged, origin.get("system_message")))
    kept = origin.get("metadata")
    return Snapshot.create(
        provider=provider,
        model=metadata.model or "",
        messages=messages,
        system_prompt=prompt,
        tools=tool_snapshots(metadata.tools or ()),
        metadata={
            **(kept if type(kept) is dict else {}),
            OURS + "conversation": metadata.id,
            OURS + "generation": str(metadata.generation),
            OURS + "seq": str(seq),
            OURS + "head": head,
            OURS + "labels": json.dumps(metadata.labels, ensure_ascii=False, sort_keys=True),
            OURS + "compaction_count": str(metadata.compaction_count),
            APPROXIMATE_TOKENS: str(_approximate_tokens(records, prompt)),
        },
    )


def restore_snapshot(snapshot: Snapshot, conversation: ConversationStore) -> None:
    """Make a conversation continue from a snapshot, in one commit; it is loaded when this returns.

    If there is no conversation yet it is created, with an id of its own; if there is one, it is loaded unless it is, its
    transcript is replaced (what was there stays in ``archive/``), and so are model, prompt and tools, and labels and
    compaction count if the snapshot has them. ``get_metadata().restored_from`` says where it is from. On return all of it
    survives a power cut; before, what was there is untouched.

    Raises ``ProviderMismatchError`` if the conversation is another provider's (``openai`` and ``openai-compatible`` are
    one), ``InvalidMessageError`` for what a transcript cannot hold (an integer beyond 64 bits, a lone surrogate, a key
    twice in one object, a message that is not an object), and what ``initialize()`` and ``replace_transcript()`` raise.
    """
    if not isinstance(snapshot, Snapshot) or not isinstance(conversation, ConversationStore):
        given = f"{type(snapshot).__name__} and {type(conversation).__name__}"
        raise TypeError(f"restore_snapshot() takes a Snapshot and then a ConversationStore, not {given}")
    messages, prompt, taken_off = said_in(snapshot)
    metadata = snapshot.metadata
    fields: dict[str, Any] = {
        "model": snapshot.model or None,
        "system_prompt": prompt or None,
        "tools": tool_members(snapshot.tools) or None,
    }
    if (labels := metadata.get(OURS + "labels")) is not None:
        fields["labels"] = _labels(labels)
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


# ---- messages ----------------------------------------------------------------------------------------------------------


def native_history(
    provider: str, prompt: str, messages: Sequence[dict[str, Any]], *, carriers: Sequence[Any] = ()
) -> list[dict[str, Any]]:
    """What was said as the provider's own history: with the system prompt in front where it belongs there, exactly once.

    ``carriers`` are messages that carried a prompt before; the first that says the same as ``prompt`` comes back as it was.
    """
    if provider == "gemini":
        return [gemini.as_the_api_writes(message) for message in messages]
    if not prompt or family(provider) != "openai":
        return list(messages)
    plain = {"role": "system", "content": prompt}
    return [next((one for one in carriers if _prompt_in(one) == prompt), plain), *messages]


def begins_with_prompt(messages: Sequence[dict[str, Any]], prompt: str | None, at_start: ConversationMetadata) -> bool:
    """Whether a transcript's first message is the system prompt, as a program that logs all it sends writes it.

    It is if it says the prompt of today, or that of ``at_start``, or if there was none at the start. Other system messages
    are messages like all others; so is the first, if a prompt was taken off when the transcript was restored.
    """
    said = _prompt_in(messages[0]) if messages else None
    if not said or "system_message" in (at_start.restored_from or {}):
        return False
    return not at_start.system_prompt or said in (prompt, at_start.system_prompt)


def said_in(snapshot: Snapshot) -> tuple[list[dict[str, Any]], str, dict[str, Any] | None]:
    """What was said in a snapshot: the messages without the system prompt, the prompt, and the message that carried it.

    Raises ``InvalidMessageError`` for what a transcript cannot hold.
    """
    messages = _messages(snapshot)
    prompt = snapshot.system_prompt
    first = _prompt_in(messages[0]) if messages and family(snapshot.provider) == "openai" else None
    if first and prompt in ("", first):
        return messages[1:], first, messages[0]
    return messages, prompt, None


def _messages(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The messages as a transcript can hold them; raises ``InvalidMessageError``."""
    elements = verbatim.elements(snapshot.messages_json) if snapshot.message_count else []
    messages = [parse(element, f"messages[{number}]") for number, element in enumerate(elements)]
    return [gemini.as_the_api_writes(message) for message in messages] if snapshot.provider == "gemini" else messages


def _prompt_in(message: Any) -> str | None:
    """The text of a system prompt in OpenAI's form, as a string or as parts that are all text; None if it is not one."""
    if type(message) is not dict or message.get("role") not in PROMPT_ROLES:
        return None
    content = message.get("content")
    if type(content) is str:
        return content
    if type(content) is not list:
        return None
    texts = [part.get("text") if type(part) is dict else None for part in content]
    return "".join(text for text in texts if type(text) is str) if all(type(text) is str for text in texts) else None


# ---- tools -------------------------------------------------------------------------------------------------------------


def tool_snapshots(tools: Iterable[Mapping[str, Any]]) -> list[ToolSnapshot]:
    """A conversation's tools as a snapshot remembers them. Warns of those that the Go library cannot read."""
    found = []
    for tool in tools:
        parameters = tool.get("parameters")
        if parameters == {"not": {}}:  # what tool_members() makes of False
            parameters = False
        found.append(ToolSnapshot(tool["name"], tool.get("description", ""), parameters))
    warn_of_tools(found, _log)
    return found


def tool_members(tools: Iterable[ToolSnapshot]) -> list[dict[str, Any]]:
    """Tools as a conversation has them: their parameters, if there are any, are an object, which is what a model is given."""
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


def _approximate_tokens(records: Sequence[Record], prompt: str) -> int:
    """See :func:`snapshot_of`."""
    tokens, rest = 0, list(records)
    for index in range(len(records) - 1, -1, -1):
        if (used := _used_tokens(records[index].extra)) is not None:
            tokens, rest = used, rest[index + 1 :]
            break
    else:
        tokens = len(prompt.encode()) // BYTES_PER_TOKEN
    try:
        messages = verbatim.encode([record.message for record in rest if record.message is not None])
    except NotJSONError:
        return tokens  # Snapshot.create() refuses it, and says which
    return tokens + len(media.move_out(messages, lambda *_: None)) // BYTES_PER_TOKEN


def _used_tokens(extra: dict[str, Any] | None) -> int | None:
    """How many tokens a reply's recorded usage says the conversation had with it; None if it says nothing."""
    for name in ("usage", "usageMetadata", "usage_metadata"):
        usage = (extra or {}).get(name)
        if type(usage) is dict and (total := tokens_in(usage).total) is not None:
            return total
    return None
