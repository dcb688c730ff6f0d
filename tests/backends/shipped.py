"""Folders with a history, what stands in them, and one shipping after another, each of which something may become of."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from tests.kit.messages import user_message
from transcript_store import ConversationLibrary, ConversationStore, TranscriptStoreError
from transcript_store.backends import Shipped, restore, ship
from transcript_store.testing import BackendRequest, Fate, SimulatedBackend, SimulatedFileSystem, SimulatedStop

ID = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"
LIBRARY, FOLDER, BACK = "/library", f"/library/{ID}", "/back/restored"
KEY = bytes(range(32))
WAITS = (0.05, 0.1)
SEEDS = count(1)


def library_on(disk: SimulatedFileSystem, key: bytes | None = None) -> ConversationLibrary:
    return ConversationLibrary(LIBRARY, file_system=disk, encryption_key=key)


def begun(disk: SimulatedFileSystem, key: bytes | None = None) -> ConversationStore:
    """A conversation that began with two messages, of which the library knows a title."""
    return library_on(disk, key).create(
        id=ID, provider="claude", labels={"title": "A ship"}, messages=[user_message("first"), user_message("second")]
    )


def with_a_history(key: bytes | None = None) -> SimulatedFileSystem:
    """Two earlier generations, of which one was deleted; a batch, a retraction, a change of the metadata; closed."""
    disk = SimulatedFileSystem()
    with begun(disk, key) as conversation:
        conversation.append_message(user_message("third"))
        conversation.replace_transcript([user_message(f"summary {number}") for number in range(3)])
        conversation.append_messages([user_message("a"), user_message("b")])
        conversation.replace_transcript([user_message("again")], features=["retract"])
        conversation.append_message(user_message("taken back"))
        conversation.retract()
        conversation.update_metadata(model="second", labels={"title": "A longer one"})
        conversation.append_message(user_message("last"))
        conversation.delete_generation(1)
    return disk.copy()


def files_in(disk: SimulatedFileSystem, folder: str, *, quarantine: bool = False) -> dict[str, bytes]:
    """The files of a folder by name, without the lock, which names its holder."""
    return {
        name: content
        for path, content in disk.tree().items()
        if content is not None
        and path.startswith(f"{folder}/")
        and (name := path.removeprefix(f"{folder}/")) != "lock"
        and (quarantine or not name.startswith("quarantine/"))
    }


def shipped(disk: SimulatedFileSystem, backend: SimulatedBackend, **options: Any) -> Shipped:
    """As a process of its own: it claims with a token that no other has."""
    disk.random_bytes(16 * next(SEEDS))
    return ship(FOLDER, backend, **{"file_system": disk, "waits_seconds": WAITS, **options})


def back(backend: SimulatedBackend, **options: Any) -> dict[str, bytes]:
    """The folder restored from the backend, on its own disk."""
    disk = SimulatedFileSystem()
    restore(backend, ID, BACK, **{"file_system": disk, "with_key": True, **options})
    return files_in(disk, BACK)


def at_request(number: int, act: Callable[[], Fate | None]) -> Callable[[BackendRequest], Fate | None]:
    """A hook for a backend: from request number ``n`` on, ``act`` decides the fate of each request."""
    seen = 0

    def on_request(request: BackendRequest) -> Fate | None:
        nonlocal seen
        seen += 1
        return act() if seen == number else None

    return on_request


def copy_of(backend: SimulatedBackend) -> SimulatedBackend:
    """Another backend with the same contents."""
    made = type(backend)(name=backend.name)
    made._objects, made._keys = dict(backend._objects), dict(backend._keys)
    return made


def requests_of(run: Callable[[SimulatedBackend], object], backend: SimulatedBackend) -> int:
    before = backend.requests
    run(backend)
    return backend.requests - before


def tried(call: Callable[..., object], *arguments: Any, **options: Any) -> BaseException | None:
    """What a call raises of ours, or as one that is killed; None if it returns."""
    try:
        call(*arguments, **options)
    except (TranscriptStoreError, SimulatedStop) as error:
        return error
    return None


def history(disk: SimulatedFileSystem, key: bytes | None, at_each: Callable[[], object]) -> None:
    """Appends, replaces and changes of the metadata, with a look at the closed folder after each."""
    steps: list[Callable[[ConversationStore], object]] = [
        lambda conversation: conversation.append_message(user_message("third")),
        lambda conversation: conversation.append_messages([user_message("a"), user_message("b")]),
        lambda conversation: conversation.update_metadata(labels={"title": "A longer one"}),
        lambda conversation: conversation.replace_transcript(
            [user_message(f"summary {number}") for number in range(3)]
        ),
        lambda conversation: conversation.append_message(user_message("behind it")),
        lambda conversation: conversation.replace_transcript([user_message("again")], features=["retract"]),
        lambda conversation: conversation.append_message(user_message("taken back")),
        lambda conversation: conversation.retract(),
        lambda conversation: conversation.append_message(user_message("last")),
    ]
    begun(disk, key).close()
    at_each()
    for step in steps:
        with library_on(disk, key).open(ID) as conversation:
            step(conversation)
        at_each()


def every_moment(backend: SimulatedBackend, key: bytes | None) -> list[SimulatedFileSystem]:
    """The folder restored at each step of a history, on separate disks; the last equals the backend."""
    disk, moments = SimulatedFileSystem(), list[SimulatedFileSystem]()

    def ship_and_restore() -> None:
        shipped(disk, backend, with_key=True)
        there = SimulatedFileSystem()
        restore(backend, ID, FOLDER, file_system=there, with_key=True)
        moments.append(there)

    history(disk, key, ship_and_restore)
    return moments
