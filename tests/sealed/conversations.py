"""Sealed conversations on the simulated disk, and changes of their files."""

from __future__ import annotations

from typing import Any

from transcript_store import ConversationStore
from transcript_store.testing import SimulatedFileSystem

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
FOLDER = "/library/be8288fa-26fa-4885-afbc-0927ce01869f"
ID = "be8288fa-26fa-4885-afbc-0927ce01869f"
TRANSCRIPT, METADATA, KEY_FILE = (f"{FOLDER}/{name}" for name in ("transcript.jsonl", "metadata.json", "key.json"))
FIRST_ARCHIVED = f"{FOLDER}/archive/transcript-000000.jsonl"
CANARY = "canary-7f3a"
"""Stands in every message, prompt, label, tool and extra: nobody without the key may ever meet it."""
MESSAGES = [{"role": "user", "content": f"{CANARY} {number}"} for number in range(4)]


def opened(disk: SimulatedFileSystem, key: Any = KEY, **options: Any) -> ConversationStore:
    return ConversationStore(FOLDER, encryption_key=key, file_system=disk, **options)


def sealed(*, replaced: bool = False) -> SimulatedFileSystem:
    """Four messages, an event, a batch and a retraction; with ``replaced`` in the second generation."""
    disk = SimulatedFileSystem()
    with opened(disk) as store:
        store.initialize(
            id=ID,
            provider="claude",
            model="m-1",
            system_prompt=f"{CANARY} prompt",
            labels={"title": f"{CANARY} title"},
            tools=[{"name": f"{CANARY}_tool"}],
            features=["retract"],
            messages=MESSAGES[:2],
        )
        if replaced:
            store.keep_records([1, 2])
        store.append_message(MESSAGES[2], extra={"usage": CANARY})
        store.append_event({"marker": CANARY})
        store.append_messages([MESSAGES[3], {"content": f"{CANARY} taken back"}])
        store.retract()
    return disk


def content(disk: SimulatedFileSystem, path: str = TRANSCRIPT) -> bytes:
    return disk.tree()[path] or b""


def lines(disk: SimulatedFileSystem, path: str = TRANSCRIPT) -> list[bytes]:
    return content(disk, path).splitlines()
