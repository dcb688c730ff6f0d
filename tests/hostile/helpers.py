"""A conversation to disturb, and a separate process that uses it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from transcript_store import ConversationStore

MESSAGES = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]


def conversation_at(directory: Path) -> Path:
    """A whole conversation with two messages and an archive, its writer gone."""
    with ConversationStore(directory) as store:
        store.initialize(provider="claude", messages=[{"role": "user", "content": "before"}])
        store.replace_transcript(MESSAGES[:1])
        store.append_message(MESSAGES[1])
    return directory


TRANSCRIPT, METADATA = "transcript.jsonl", "metadata.json"


def load(store: ConversationStore) -> None:
    store.load()


def load_or_initialize(store: ConversationStore) -> None:
    store.load_or_initialize(messages=[{"never": "stored"}])


def child(script: str, *arguments: object) -> str:
    """Run a script in a fresh interpreter; returns what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
