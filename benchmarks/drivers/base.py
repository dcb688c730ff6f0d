"""What a driver does: what its users would write, through the public API, and nothing cleverer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Message = dict[str, Any]
THREADS = 8


class Driver:
    """One conversation, kept one way, in a folder of its own. Each call does what its name says, and is timed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def translate(self, message: Message) -> Any:
        """A message in the form that this way takes; not timed."""
        return message

    def fill(self, given: list[Any]) -> None:
        """Make the conversation as long as this, as fast as can be; not timed, and the files are those that append() writes."""
        self.append(given)

    def prepare(self, given: list[Any]) -> list[Any]:
        """What append() takes, where that is made of more than one message; not timed."""
        return given

    def append(self, given: list[Any]) -> None:
        """Store these messages, each in a call of its own."""
        raise NotImplementedError

    def load(self) -> Sequence[Any]:
        """Open the conversation again, and hand out all of it."""
        raise NotImplementedError

    def last(self, count: int) -> Sequence[Any]:
        """Open the conversation again, and hand out the last messages. Without a call for it, that is: load all."""
        return self.load()[-count:]

    def append_by_threads(self, given: list[Any]) -> None:
        """Store these messages in the one conversation, each in a call of its own, from eight threads."""
        raise NotImplementedError

    def replace(self, given: list[Any]) -> None:
        """Put these in the place of all that is there."""
        raise NotImplementedError

    def create(self, count: int) -> None:
        """Make so many conversations; not timed."""
        raise NotImplementedError

    def list(self) -> int:
        """Say which conversations there are, with what a list shows of each; returns how many."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of it."""


def by_threads(append: Callable[[list[Any]], None], given: list[Any]) -> None:
    """Let eight threads append a share each."""
    with ThreadPoolExecutor(THREADS) as pool:
        for done in pool.map(append, (given[number::THREADS] for number in range(THREADS))):
            assert done is None


def blocks(message: Message) -> list[dict[str, Any]]:
    """The content of a message as blocks, which it may be already."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def result_text(block: dict[str, Any]) -> str:
    """What a tool answered, as the one text that some ways want."""
    content = block["content"]
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
