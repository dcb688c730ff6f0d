"""How the golden stores of snapshots were made, and what a reader sees of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.compat.writers import MESSAGES
from tests.crash.snapshot_stores import STORE
from transcript_store import FileStore, Snapshot, ToolSnapshot
from transcript_store.testing import SimulatedFileSystem, SimulatedStop

KEY = bytes.fromhex("00112233445566778899aabbccddeeff" * 2)
OLD_KEY = bytes.fromhex("ffeeddccbbaa99887766554433221100" * 2)
IMAGE = "data:image/png;base64," + "iVBORw0KGgo" * 60 + "="
"""Long enough to be kept as media."""


def _snapshot(number: int, **members: Any) -> Snapshot:
    return Snapshot.create(
        id=f"00000000-0000-4000-8000-{number:012d}",
        provider="claude",
        created_at=f"2026-03-31T12:00:0{number}.12345678+02:00",
        **members,
    )


SNAPSHOTS = [
    _snapshot(1, messages=None),
    _snapshot(
        2,
        model="m-1",
        system_prompt="Be brief.\n<&>",
        messages=MESSAGES,
        tools=[
            ToolSnapshot("search", "Looks for it", {"type": "object", "properties": {"q": {"type": "string"}}}),
            ToolSnapshot("now"),
        ],
        metadata={"transcript_store.labels": '{"title":"A test"}', "": "\u2028", "transcript_store.seq": "6"},
    ),
    _snapshot(
        3, messages=[{"role": "user", "content": [{"data": IMAGE}, {"data": IMAGE}, "chatmedia+sha256:not one"]}]
    ),
]
FROM_GO = b"""{
  "id": "00000000-0000-4000-8000-000000000009",
  "provider": "openai",
  "model": "gpt\\u003c\\u2028",
  "messages": [{"b": 1.0, "a": 12345678901234567890123, "a": 1e400}],
  "later": {"unknown": [true]},
  "created_at": "0001-01-01T00:00:00Z",
  "version": 0
}"""
"""As another program may spell it: with a member that we do not know, a repeated key, and numbers that Python has no type for."""


def plain() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    store = FileStore(STORE, file_system=disk)
    for snapshot in SNAPSHOTS:
        store.save(snapshot)
    disk.write_file(f"{STORE}/00000000-0000-4000-8000-000000000009.json", FROM_GO)
    return disk


def sealed() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    store = FileStore(STORE, encryption_key=KEY, file_system=disk)
    for snapshot in SNAPSHOTS:
        store.save(snapshot)
    return disk


def half_rotated() -> SimulatedFileSystem:
    """From one key to another, killed on the way: a part is sealed with each."""
    disk = SimulatedFileSystem()
    store = FileStore(STORE, encryption_key=OLD_KEY, file_system=disk)
    for snapshot in SNAPSHOTS:
        store.save(snapshot)
    return _killed_in_rotation(disk, store)


def half_sealed() -> SimulatedFileSystem:
    """A plain store that was being sealed, killed on the way: the file ``sealing`` says so."""
    disk = plain()
    return _killed_in_rotation(disk, FileStore(STORE, file_system=disk))


def _killed_in_rotation(disk: SimulatedFileSystem, store: FileStore) -> SimulatedFileSystem:
    """With its temporary still there, a part of the files in their new form."""
    renames = 0

    def stop(call: Any) -> None:
        nonlocal renames
        renames += call.name == "rename"
        if renames == 5:
            raise SimulatedStop

    disk.on_call = stop
    try:
        store.rotate_key(KEY)
    except SimulatedStop:
        return disk.kill_process()
    raise AssertionError("it was not killed")


STORES: dict[str, Callable[[], SimulatedFileSystem]] = {
    writer.__name__.replace("_", "-"): writer for writer in (plain, sealed, half_rotated, half_sealed)
}
KEYS: dict[str, tuple[bytes, ...]] = {"sealed": (KEY,), "half-rotated": (KEY, OLD_KEY), "half-sealed": (KEY,)}
"""What opens each: the key, and the retired ones."""


def opened(path: Path, name: str) -> FileStore:
    key, *retired = KEYS.get(name, (None,))
    return FileStore(path, encryption_key=key, retired_keys=retired)


def seen(store: FileStore) -> dict[str, Any]:
    """Everything that a reader is told of it."""
    return {
        "list": [asdict(summary) for summary in store.list()],
        "snapshots": {summary.id: _members(store.load(summary.id)) for summary in store.list()},
        "findings": sorted((finding.kind, Path(finding.path).name) for finding in store.verify()),
    }


def _members(snapshot: Snapshot) -> dict[str, Any]:
    """As text where JSON would be read differently by different readers."""
    return {
        **asdict(snapshot),
        "messages_json": snapshot.messages_json.decode(),
        "to_json": snapshot.to_json().decode(),
    }


def files(disk: SimulatedFileSystem) -> dict[str, bytes]:
    """What is in the store's folder: path below it → content."""
    below = (
        (path.removeprefix(f"{STORE}/"), data) for path, data in disk.tree().items() if path.startswith(f"{STORE}/")
    )
    return {path: data for path, data in below if data is not None}


def as_json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"
