"""A simulated disk on which another process does its work at one moment of ours."""

from __future__ import annotations

from collections.abc import Callable

from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.testing import FileSystemCall, SimulatedFileSystem

OTHER_ID = "11111111-2222-4333-8444-555555555555"
ID = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
CHAT = f"/chats/{ID}"
TRANSCRIPT = f"{CHAT}/transcript.jsonl"
SAID = [{"role": "user", "content": f"message {n}"} for n in range(3)]


def a_conversation() -> SimulatedFileSystem:
    """A disk with a library on it that has one conversation."""
    disk = SimulatedFileSystem()
    library_on(disk).create(id=ID, messages=SAID).close()
    return disk.copy()


def library_on(disk: SimulatedFileSystem) -> ConversationLibrary:
    return ConversationLibrary("/chats", file_system=disk)


def opened(disk: SimulatedFileSystem) -> ConversationStore:
    store = ConversationStore(CHAT, file_system=disk)
    store.load()
    return store


def messages(disk: SimulatedFileSystem) -> list[dict[str, object]]:
    """What a reader finds."""
    with ConversationStore(CHAT, file_system=disk, read_only=True) as store:
        store.load()
        return store.get_messages()


def meanwhile(
    disk: SimulatedFileSystem,
    name: str,
    path: str,
    work: Callable[[SimulatedFileSystem], object],
) -> list[FileSystemCall]:
    """Right before this process first makes a call, another one does its work. Returns the calls before which it did."""
    seen: list[FileSystemCall] = []

    def on_call(call: FileSystemCall) -> None:
        if call.name == name and call.path.endswith(path) and not seen:
            seen.append(call)
            work(disk.another_process())

    disk.on_call = on_call
    return seen


def in_folder(other: SimulatedFileSystem, path: str, change: Callable[[int], object]) -> None:
    """What a person does in a shell."""
    folder = other.open_directory(path)
    change(folder)
    other.close(folder)


def file_content(disk: SimulatedFileSystem, path: str = TRANSCRIPT) -> bytes:
    """The bytes of a file that is there."""
    found = disk.tree()[path]
    assert found is not None
    return found
