"""From conversations to snapshots and back.

A snapshot carries the provider's native history. A transcript holds what was said, and no system prompt, unless another program
logged one there. OpenAI's history begins with the prompt: it is added on the way out and taken off on the way in. No other
system message is touched.

Both ways go message by message, so that a long conversation takes little more memory than its snapshot.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from transcript_store._conversation.metadata import ConversationMetadata, family
from transcript_store._json import verbatim
from transcript_store._json.strict import EncodedMessage, decode, encode, fitted
from transcript_store._json.usage import tokens_in
from transcript_store._json.verbatim import NotJSONError
from transcript_store._log.record import Record
from transcript_store._snapshots import gemini, media
from transcript_store._snapshots.snapshot import APPROXIMATE_TOKENS, BYTES_PER_TOKEN, OURS, Snapshot, with_messages
from transcript_store._snapshots.tool import ToolSnapshot, warn_of_tools
from transcript_store.conversation import ConversationStore
from transcript_store.errors import CorruptSnapshotError, InvalidMessageError

_log = logging.getLogger("transcript_store.snapshots")

PROMPT_ROLES = ("system", "developer")
_PIECE_BYTES = 1 << 18
"""How much text is looked through for media at once."""


def snapshot_of(conversation: ConversationStore) -> Snapshot:
    """A loaded conversation as a snapshot with a fresh id: all its messages, of one moment, as they are.

    With an OpenAI provider the system prompt stands before the messages, in the form that it had there, and in the place of
    one that another program logged. Gemini's messages get the names and the base64 of the API.

    ``metadata`` carries what the format has no member for, under names that begin with ``transcript_store.``: the
    conversation's id, generation, seq (records), head, labels, compaction count and approximate tokens. These are what the last
    recorded usage says (an ``extra`` with ``usage``, ``usageMetadata`` or ``usage_metadata``), and a quarter of the bytes of
    the messages after it, or of all, without media.

    Not in a snapshot are the time and the ``extra`` of each record, records without a message, and members of a tool other
    than name, description and parameters. A tool whose parameters the Go library cannot read is kept; a warning with its
    name goes to the logger ``transcript_store.snapshots``.

    What a snapshot holds is on stable storage. Appends that were not synced are synced first. A reader (``read_only=True``) is
    refreshed, because it may have been shown what its writer was told is not stored.

    Raises:
        ConversationNotLoadedError: the conversation is not loaded.
        InvalidMessageError: a snapshot cannot hold a message: another program wrote it, and it nests more than 500 levels deep.
        TranscriptStoreError: what ``get_records()`` raises.
    """
    if not isinstance(conversation, ConversationStore):
        raise TypeError(f"snapshot_of() takes a loaded ConversationStore, not {type(conversation).__name__}")
    with conversation.held() as (metadata, records, (seq, head), at_start):
        origin = metadata.restored_from or {}
        provider, prompt = metadata.provider or "", metadata.system_prompt or ""
        # Whether the first message is the prompt decides what stands in front of it; records without one may precede it.
        opening = _up_to_a_message(records)
        first = opening[-1].message if opening else None
        logged = (
            first
            if first and prompt and family(provider) == "openai" and begins_with_prompt([first], prompt, at_start)
            else None
        )
        history = _History(provider)
        if (carrier := _prompt_message(provider, prompt, (logged, origin.get("system_message")))) is not None:
            history.put(carrier)
        history.counted(len(prompt.encode()) // BYTES_PER_TOKEN)
        for record in chain(opening, records):
            if record.message is not None and record.message is not logged:
                history.put(record.message)
            if record.extra and (used := _used_tokens(record.extra)) is not None:
                history.counted(used)
    messages, tokens = history.finish()
    kept = origin.get("metadata")
    snapshot = Snapshot.create(
        provider=provider,
        model=metadata.model or "",
        messages=None,
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
            APPROXIMATE_TOKENS: str(tokens),
        },
    )
    return with_messages(snapshot, messages)


def restore_snapshot(snapshot: Snapshot, conversation: ConversationStore) -> None:
    """Make a conversation continue from a snapshot, in one commit; it is loaded on return.

    If there is no conversation yet, it is created with an id of its own. If there is one, it is loaded unless it is, and its
    transcript is replaced (the old one stays in ``archive/``). Model, prompt and tools are replaced too; labels and compaction
    count are if the snapshot has them. ``get_metadata().restored_from`` says where the conversation comes from. On return all
    of it survives a power loss; before, what was there is untouched.

    Raises:
        ProviderMismatchError: the conversation is another provider's; ``openai`` and ``openai-compatible`` are one.
        InvalidMessageError: a transcript cannot hold a message: it is not an object, or has a key twice in one object, an
            integer beyond 64 bits, a lone surrogate, or more than 200 levels.
        CorruptSnapshotError: what the snapshot says under our names was not written by us.
        TranscriptStoreError: what ``initialize()`` and ``replace_transcript()`` raise.
    """
    if not isinstance(snapshot, Snapshot) or not isinstance(conversation, ConversationStore):
        given = f"{type(snapshot).__name__} and {type(conversation).__name__}"
        raise TypeError(f"restore_snapshot() takes a Snapshot and then a ConversationStore, not {given}")
    messages, prompt, taken_off = _said_in(snapshot)
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


class _History:
    """Writes a snapshot's messages one after the other, in compact form, and estimates how many tokens they are."""

    def __init__(self, provider: str) -> None:
        self._is_gemini = provider == "gemini"
        self._count = 0
        self._pieces: list[bytes] = []
        """The text, without its last bracket."""
        self._waiting: list[bytes] = []
        """Messages for the next piece: to escape one by one costs more than to encode it."""
        self._waiting_bytes = 0
        self._tokens = 0
        self._counted_pieces = 0
        """How many of the pieces ``_tokens`` counts."""

    def put(self, message: dict[str, Any]) -> None:
        """Write a message that was decoded from JSON; raises ``InvalidMessageError`` if it nests too deeply."""
        if self._is_gemini:
            message = gemini.as_the_api_writes(message)
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
        """Note that what was written so far is this many tokens."""
        self._end_piece()
        self._tokens, self._counted_pieces = tokens, len(self._pieces)

    def finish(self) -> tuple[bytes, int]:
        """The array of messages, and their tokens: what is counted, and a quarter of the bytes after that, without media."""
        self._end_piece()
        uncounted = self._pieces[self._counted_pieces :]
        length = sum(len(media.move_out(piece, lambda *_: None)) for piece in uncounted)
        return b"".join((*self._pieces, b"]" if self._pieces else b"[]")), self._tokens + length // BYTES_PER_TOKEN

    def _end_piece(self) -> None:
        if self._waiting:
            opening = b"," if self._pieces else b"["
            self._pieces.append(opening + verbatim.escape(b",".join(self._waiting)))
            self._waiting, self._waiting_bytes = [], 0


def _up_to_a_message(records: Iterator[Record]) -> list[Record]:
    """The records up to the first that has a message."""
    found: list[Record] = []
    while (not found or found[-1].message is None) and (record := next(records, None)) is not None:
        found.append(record)
    return found


def native_history(
    provider: str, prompt: str, messages: Sequence[dict[str, Any]], *, carriers: Sequence[Any] = ()
) -> list[dict[str, Any]]:
    """The messages as the provider's own history: it begins with the system prompt, once, where that belongs there.

    ``carriers`` are messages that carried a prompt before. The first that says the same as ``prompt`` is used as it was.
    """
    if provider == "gemini":
        return [gemini.as_the_api_writes(message) for message in messages]
    carrier = _prompt_message(provider, prompt, carriers)
    return list(messages) if carrier is None else [carrier, *messages]


def _prompt_message(provider: str, prompt: str, carriers: Sequence[Any]) -> dict[str, Any] | None:
    """The message that carries the prompt in front of the provider's own history; None if none does."""
    if not prompt or family(provider) != "openai":
        return None
    return next((one for one in carriers if _prompt_in(one) == prompt), {"role": "system", "content": prompt})


def begins_with_prompt(
    messages: Sequence[dict[str, Any] | None], prompt: str | None, at_start: ConversationMetadata
) -> bool:
    """Whether a transcript's first message is the system prompt, which a program logs that logs all it sends.

    It is the prompt if it says the current one, or that of ``at_start``, or if there was none at the start. It is an ordinary
    message if a prompt was taken off when the transcript was restored, and so is every later system message.
    """
    said = _prompt_in(messages[0]) if messages else None
    if not said or "system_message" in (at_start.restored_from or {}):
        return False
    return not at_start.system_prompt or said in (prompt, at_start.system_prompt)


def said_in(snapshot: Snapshot) -> tuple[list[dict[str, Any]], str, dict[str, Any] | None]:
    """The messages of a snapshot without the system prompt, the prompt, and the message that carried it.

    Raises:
        InvalidMessageError: a transcript cannot hold a message; the error says which.
    """
    messages, prompt, carrier = _said_in(snapshot)
    return [decode(message.text) for message in messages], prompt, carrier


def _said_in(snapshot: Snapshot) -> tuple[Iterator[EncodedMessage], str, dict[str, Any] | None]:
    """As :func:`said_in`, but a message is checked when it is asked for, and encoded."""
    messages = _transcribed(snapshot)
    prompt = snapshot.system_prompt
    if family(snapshot.provider) != "openai" or (first := next(messages, None)) is None:
        return messages, prompt, None
    carrier = decode(first.text)
    said = _prompt_in(carrier)
    if said and prompt in ("", said):
        return messages, said, carrier
    return chain([first], messages), prompt, None


def _transcribed(snapshot: Snapshot) -> Iterator[EncodedMessage]:
    """The messages as a transcript has them; raises ``InvalidMessageError`` for one that it cannot hold."""
    for number, element in enumerate(verbatim.elements(snapshot.messages_json)):
        message = verbatim.as_message(element, name := f"messages[{number}]")
        if snapshot.provider == "gemini":
            as_it_is = decode(message.text)
            if (renamed := gemini.as_the_api_writes(as_it_is)) is not as_it_is:
                message = EncodedMessage(fitted(encode(renamed, name, sys.maxsize)))
        yield message


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


def _used_tokens(extra: dict[str, Any]) -> int | None:
    """How many tokens the conversation had with a reply, by its recorded usage; None if none is recorded."""
    for name in ("usage", "usageMetadata", "usage_metadata"):
        usage = extra.get(name)
        if type(usage) is dict and (total := tokens_in(usage).total) is not None:
            return total
    return None
