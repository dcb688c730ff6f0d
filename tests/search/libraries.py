"""Libraries to search, and a naive scan that shares no line with the index."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.kit.messages import user_message
from transcript_store import ConversationLibrary
from transcript_store.search import SearchIndex, SearchResult

EVERYTHING = 1_000_000

Place = tuple[str, int, int]
"""A message: the id of its conversation, its generation, its seq."""


def begun(library: ConversationLibrary, *texts: str, **fields: Any) -> str:
    """A new conversation with these messages; returns its id."""
    with library.create(durability="process-crash", messages=map(user_message, texts), **fields) as conversation:
        return conversation.id


def appended(library: ConversationLibrary, id: str, *texts: str) -> None:
    with library.open(id, durability="process-crash") as conversation:
        conversation.append_messages(map(user_message, texts))


def replaced(library: ConversationLibrary, id: str, *texts: str) -> None:
    with library.open(id, durability="process-crash") as conversation:
        conversation.replace_transcript(map(user_message, texts))


def places(answer: SearchResult) -> set[Place]:
    return {(hit.conversation, hit.generation, hit.seq) for hit in answer}


def found(index: SearchIndex, query: str, **options: Any) -> set[Place]:
    """All that a search finds, after an update that was not cut short."""
    answer = index.search(query, limit=EVERYTHING, wait=True, **options)
    assert answer.not_indexed == 0
    return places(answer)


def naive(directory: Path, accepts: Callable[[str], bool]) -> set[Place]:
    """The messages whose text is accepted, read line by line."""
    return {place for place, text in _texts(directory) if accepts(text)}


def _texts(directory: Path) -> Iterator[tuple[Place, str]]:
    for folder in sorted(directory.iterdir()):
        if folder.name.startswith(".") or not (folder / "transcript.jsonl").is_file():
            continue
        header, *lines = (json.loads(line) for line in (folder / "transcript.jsonl").read_bytes().splitlines())
        named = [line["retracts"] for line in lines if line.get("retracts")]
        for line in lines:
            if any(first <= line["seq"] <= last for first, last in named):
                continue
            if (message := line.get("message")) is not None:
                yield (header["conversation"], header["generation"], line["seq"]), message["content"]


def has_word(word: str) -> Callable[[str], bool]:
    """Whether a text has a word of small ASCII letters."""
    return lambda text: word in re.findall(r"[a-z0-9]+", text.lower())


def contains(part: str) -> Callable[[str], bool]:
    """Whether a text has this part anywhere."""
    return lambda text: part in text
