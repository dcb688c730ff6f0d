"""Conversations of a library, created and inspected."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.kit.messages import user_message
from tests.kit.trees import transcript_lines
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store._log.record import close_line

ID = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
OTHER_ID = "ffffffff-0000-4000-8000-000000000001"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def texts(store: ConversationStore) -> list[str]:
    return [message["content"] for message in store.get_messages()]


def make(library: ConversationLibrary, *contents: str, **fields: Any) -> str:
    with library.create(messages=map(user_message, contents), **fields) as store:
        return store.get_metadata().id


def without_number_and_hash(line: bytes) -> bytes:
    return line[line.index(b",") : -44]


def is_found(secret: bytes, root: Path) -> bool:
    return any(secret in path.read_bytes() for path in root.rglob("*") if path.is_file())


def flip_a_byte(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def conversation_with_everything(library: ConversationLibrary, root: Path) -> str:
    """Extras, events, a batch, big numbers, every script, and members that this version does not know."""
    with library.create(provider="claude", model="m", system_prompt="p", labels={"title": "t", "k": "v"}) as store:
        chat = store.get_metadata().id
        store.append_message(user_message("плотность 密度 🎈 \\u0000 \u2028"), extra={"usage": {"tokens": 2**60}})
        store.append_event({"marker": [1, 2]})
        store.append_messages(
            [user_message("b1"), user_message("b2"), {"content": [{"batch": [1, 2]}]}], extras=[None, {"e": 1}, None]
        )
        store.append_message({"a": {"batch": [3, 3]}, "n": 1e300})
    path = root / chat / "transcript.jsonl"
    *lines, last = transcript_lines(root / chat)
    known = last[-35:-3]
    body = b'{"seq":7,"at":"2026-11-22T00:00:00.000000Z","clock":"2026-11-20T00:00:00.000000Z","message":{"x":1},"later":[1,[2]]'
    line, _ = close_line(known, body)
    path.write_bytes(b"".join([*lines, last, line]))
    return chat
