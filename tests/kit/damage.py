"""Damaged conversations, put where a test wants them."""

from __future__ import annotations

import os
import shutil

NEW = {"role": "user", "content": "after the damage"}


def write(directory: str, metadata: bytes, transcript: bytes) -> None:
    """A conversation of these two files and nothing else, whatever stood there."""
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory, 0o700)
    for name, data in (("metadata.json", metadata), ("transcript.jsonl", transcript)):
        with open(f"{directory}/{name}", "wb") as file:
            file.write(data)


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
