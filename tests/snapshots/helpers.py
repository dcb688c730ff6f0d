"""Snapshots, and stores that keep them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from transcript_store import FileStore, Snapshot, TranscriptStoreError

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
IMAGE = base64.b64encode(bytes(range(256)) * 8).decode()
OTHER_IMAGE = base64.b64encode(bytes(range(255, -1, -1)) * 8).decode()
IMAGE_NAME = sha256(IMAGE.encode()).hexdigest()
BOTH = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


def snapshot(*messages: Any, **fields: Any) -> Snapshot:
    return Snapshot.create(**{"provider": "claude", "model": "a-model", "messages": messages, **fields})


def store_at(path: Path, key: bytes | None = None, **options: Any) -> FileStore:
    return FileStore(path / "store", encryption_key=key, **options)


def error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except TranscriptStoreError as error:
        return error
    return None


def kinds(store: FileStore) -> list[str]:
    return [finding.kind for finding in store.verify()]


def everything(directory: Path) -> bytes:
    return b"".join(path.name.encode() + path.read_bytes() for path in directory.rglob("*") if path.is_file())
