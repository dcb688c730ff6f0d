"""How does a conversation become a snapshot or a provider's native history, and back?

A transcript holds the messages without the system prompt, unless another program logged one there. OpenAI's history
starts with the prompt: it is added on export and removed on import. No other system message is changed.

Both directions work message by message, so that a long conversation takes little more memory than its snapshot.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from transcript_store._conversation.metadata import ConversationMetadata, family
from transcript_store._json import verbatim
from transcript_store._json.parts import PROMPT_ROLES
from transcript_store._json.replies import tokens_in
from transcript_store._json.strict import EncodedMessage, decode, encode, fitted
from transcript_store._json.verbatim import NotJSONError
from transcript_store._log.record import Record
from transcript_store._snapshots import media
from transcript_store._snapshots.snapshot import APPROXIMATE_TOKENS, BYTES_PER_TOKEN, OURS, Snapshot, with_messages
from transcript_store._snapshots.tools import ToolSnapshot, warn_of_tools
from transcript_store.conversation import ConversationStore
from transcript_store.errors import CorruptSnapshotError, InvalidMessageError

# ---- gemini ----
# Gemini's messages as Google's API writes them: camelCase names and standard base64.
#
# The Python SDK's models dump snake_case names and URL-safe base64. Go's ``genai`` reads neither (observed with
# google-genai 3.4). Only the names that the API gives to a content and its parts are changed (``Content`` and ``Part``
# in ``google.ai.generativelanguage``), and nothing inside a tool's arguments or results.

_PART = {
    "inline_data": "inlineData",
    "file_data": "fileData",
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "thought_signature": "thoughtSignature",
    "video_metadata": "videoMetadata",
    "media_resolution": "mediaResolution",
}
_WITHIN = {
    "inlineData": {"mime_type": "mimeType", "display_name": "displayName"},
    "fileData": {"mime_type": "mimeType", "file_uri": "fileUri", "display_name": "displayName"},
    "functionCall": {"partial_args": "partialArgs", "will_continue": "willContinue"},
    "functionResponse": {"will_continue": "willContinue"},
    "videoMetadata": {"start_offset": "startOffset", "end_offset": "endOffset"},
}
_URL_SAFE = re.compile(r"[A-Za-z0-9_-]+={0,2}")


def as_the_api_writes(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the names and the base64 of the API; the same object if it has them."""
    parts = message.get("parts")
    if type(parts) is not list:
        return message
    changed = [_part(part) if type(part) is dict else part for part in parts]
    return message if changed == parts else {**message, "parts": changed}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    part = _renamed(part, _PART)
    for name, names in _WITHIN.items():
        if type(part.get(name)) is dict:
            part[name] = _renamed(part[name], names)
    if "thoughtSignature" in part:
        part["thoughtSignature"] = _standard_base64(part["thoughtSignature"])
    inline = part.get("inlineData")
    if type(inline) is dict and "data" in inline:
        inline["data"] = _standard_base64(inline["data"])
    return part


def _renamed(value: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """A copy with other names, in the same order. A name stays if the other one exists too."""
    return {(names[key] if key in names and names[key] not in value else key): member for key, member in value.items()}


def _standard_base64(value: Any) -> Any:
    """URL-safe base64 in the standard alphabet, padded; anything else unchanged."""
    if type(value) is not str or not _URL_SAFE.fullmatch(value):
        return value
    digits = value.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return digits + "=" * (-len(digits) % 4)


# ---- history ----

_PIECE_BYTES = 1 << 18
"""How much text is searched for media at once."""


# ---- out ---------------------------------------------------------------------------------------------------------------


def native_history(
    provider: str, prompt: str, messages: Sequence[dict[str, Any]], *, carriers: Sequence[Any] = ()
) -> list[dict[str, Any]]:
    """The messages as the provider's own history: it starts with the system prompt, once, for providers that want that.

    ``carriers`` are messages that carried a prompt before. The first with the same text as ``prompt`` is used
    unchanged.
    """
    if provider == "gemini":
        return [as_the_api_writes(message) for message in messages]
    carrier = _prompt_message(provider, prompt, carriers)
    return list(messages) if carrier is None else [carrier, *messages]


def history_json(
    records: Iterator[Record], metadata: ConversationMetadata, at_start: ConversationMetadata
) -> tuple[bytes, int]:
    """The messages as the provider's native history, a JSON array in compact form, and its approximate number of tokens.

    See ``snapshot_of``. Raises ``InvalidMessageError`` for a message that nests too deeply for a snapshot.
    """
    provider, prompt = metadata.provider or "", metadata.system_prompt or ""
    # The first message decides whether a prompt is put before it; records without a message may precede it.
    records = (record for record in records if not record.is_retracted)
    opening = _up_to_a_message(records)
    first = opening[-1].message if opening else None
    is_logged = first and prompt and family(provider) == "openai" and begins_with_prompt([first], prompt, at_start)
    logged = first if is_logged else None
    history = _Writer(provider)
    carriers = (logged, (metadata.restored_from or {}).get("system_message"))
    if (carrier := _prompt_message(provider, prompt, carriers)) is not None:
        history.put(carrier)
    history.counted(len(prompt.encode()) // BYTES_PER_TOKEN)
    for record in chain(opening, records):
        if record.message is not None and record.message is not logged:
            history.put(record.message)
        if record.extra and (used := _used_tokens(record.extra)) is not None:
            history.counted(used)
    return history.finish()


def _up_to_a_message(records: Iterator[Record]) -> list[Record]:
    """The records up to the first that has a message."""
    found: list[Record] = []
    while (not found or found[-1].message is None) and (record := next(records, None)) is not None:
        found.append(record)
    return found


class _Writer:
    """Writes a snapshot's messages one after the other, in compact form, and estimates how many tokens they are."""

    def __init__(self, provider: str) -> None:
        self._is_gemini = provider == "gemini"
        self._count = 0
        self._pieces: list[bytes] = []
        """The text, without its last bracket."""
        self._waiting: list[bytes] = []
        """Messages for the next chunk: to escape one by one costs more than to encode it."""
        self._waiting_bytes = 0
        self._tokens = 0
        self._counted_pieces = 0
        """How many of the chunks ``_tokens`` counts."""

    def put(self, message: dict[str, Any]) -> None:
        """Write a message that was decoded from JSON; raises ``InvalidMessageError`` if it nests too deeply."""
        if self._is_gemini:
            message = as_the_api_writes(message)
        try:
            encoded = verbatim.encode_decoded(message)
        except NotJSONError as error:
            raise InvalidMessageError(member=f"messages[{self._count}]", reason=str(error)) from None
        self._count += 1
        self._waiting.append(encoded)
        self._waiting_bytes += len(encoded)
        if self._waiting_bytes > _PIECE_BYTES:
            self._end_piece()

    def counted(self, tokens: int) -> None:
        """Note the number of tokens written so far."""
        self._end_piece()
        self._tokens, self._counted_pieces = tokens, len(self._pieces)

    def finish(self) -> tuple[bytes, int]:
        """The array of messages, and their tokens: the counted ones, and a quarter of the bytes after those, without
        media.
        """
        self._end_piece()
        uncounted = self._pieces[self._counted_pieces :]
        length = sum(len(media.move_out(piece, lambda *_: None)) for piece in uncounted)
        return b"".join((*self._pieces, b"]" if self._pieces else b"[]")), self._tokens + length // BYTES_PER_TOKEN

    def _end_piece(self) -> None:
        if self._waiting:
            opening = b"," if self._pieces else b"["
            self._pieces.append(opening + verbatim.escape(b",".join(self._waiting)))
            self._waiting, self._waiting_bytes = [], 0


def _used_tokens(extra: dict[str, Any]) -> int | None:
    """The tokens of the conversation up to a reply, by its recorded usage; None if none is recorded."""
    for name in ("usage", "usageMetadata", "usage_metadata"):
        usage = extra.get(name)
        if type(usage) is dict and (total := tokens_in(usage).total) is not None:
            return total
    return None


# ---- in ----------------------------------------------------------------------------------------------------------------


def messages_in(snapshot: Snapshot) -> tuple[list[dict[str, Any]], str, dict[str, Any] | None]:
    """The messages of a snapshot without the system prompt, the prompt, and the message that carried it.

    Raises:
        InvalidMessageError: a transcript cannot hold a message; the error says which.
    """
    messages, prompt, carrier = encoded_in(snapshot)
    return [decode(message.text) for message in messages], prompt, carrier


def encoded_in(snapshot: Snapshot) -> tuple[Iterator[EncodedMessage], str, dict[str, Any] | None]:
    """As :func:`messages_in`, but each message is checked and encoded on iteration."""
    messages = _transcribed(snapshot)
    prompt = snapshot.system_prompt
    if family(snapshot.provider) != "openai" or (first := next(messages, None)) is None:
        return messages, prompt, None
    carrier = decode(first.text)
    carried = _prompt_in(carrier)
    if carried and prompt in ("", carried):
        return messages, carried, carrier
    return chain([first], messages), prompt, None


def _transcribed(snapshot: Snapshot) -> Iterator[EncodedMessage]:
    """The messages as a transcript has them; raises ``InvalidMessageError`` for one that it cannot hold."""
    for number, element in enumerate(verbatim.elements(snapshot.messages_json)):
        message = verbatim.as_message(element, name := f"messages[{number}]")
        if snapshot.provider == "gemini":
            as_it_is = decode(message.text)
            if (renamed := as_the_api_writes(as_it_is)) is not as_it_is:
                message = EncodedMessage(fitted(encode(renamed, name, sys.maxsize)))
        yield message


# ---- the prompt --------------------------------------------------------------------------------------------------------


def begins_with_prompt(messages: Sequence[dict[str, Any]], prompt: str | None, at_start: ConversationMetadata) -> bool:
    """True if a transcript's first message is the system prompt, logged by a program that logs everything it sends.

    It is the prompt if it equals the current one, or that of ``at_start``, or if there was none at the start. It is an
    ordinary message if a prompt was removed when the transcript was restored, and so is every later system message.
    """
    carried = _prompt_in(messages[0]) if messages else None
    if not carried or "system_message" in (at_start.restored_from or {}):
        return False
    return not at_start.system_prompt or carried in (prompt, at_start.system_prompt)


def _prompt_message(provider: str, prompt: str, carriers: Sequence[Any]) -> dict[str, Any] | None:
    """The message with the prompt before the provider's own history; None if there is none."""
    if not prompt or family(provider) != "openai":
        return None
    return next((one for one in carriers if _prompt_in(one) == prompt), {"role": "system", "content": prompt})


def _prompt_in(message: Any) -> str | None:
    """The text of a system message in OpenAI's form, a string or parts that are all text; None if it is no such message."""
    if type(message) is not dict or message.get("role") not in PROMPT_ROLES:
        return None
    content = message.get("content")
    if type(content) is str:
        return content
    if type(content) is not list:
        return None
    texts: list[Any] = [part.get("text") if type(part) is dict else None for part in content]
    return "".join(texts) if all(type(text) is str for text in texts) else None


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
