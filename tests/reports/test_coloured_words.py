"""Words that a program printed in colours (lagrange#802, chipmunk#2003, hermes-agent#40121).

A colour stood in front of a word or within it, so that no search found the word, and excerpts showed the sequences.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from transcript_store import ConversationLibrary
from transcript_store.mcp import LibraryTools
from transcript_store.search import SearchIndex

PRINTED = (
    "\x1b[31m\x1b[1mFAILED\x1b[0m tests/test_\x1b[1mretry\x1b[0m.py\x1b[K\r\n"
    "\x1b]8;;https://example.org/log\x1b\\the log\x1b]8;;\x07 \x1b[38;2;255;0;0mzebra\x1b[m\x1b[2Kcrossing \x1b[broken"
)


@pytest.fixture
def library(tmp_path: Path) -> ConversationLibrary:
    """A conversation whose tool printed in colours."""
    library = ConversationLibrary(tmp_path / "chats")
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "pytest"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": PRINTED}
    with library.create(provider="claude") as conversation:
        conversation.append_message({"role": "user", "content": "Run the tests."})
        conversation.append_message({"role": "assistant", "content": [call]})
        conversation.append_message({"role": "user", "content": [result]})
    return library


@pytest.mark.parametrize("query", ["FAILED", "retry", '"FAILED tests"', '"the log"', "zebra", "crossing"])
def test_a_word_in_colours_is_found_and_shown_as_a_word(query: str, library: ConversationLibrary) -> None:
    with SearchIndex(library) as index:
        index.update()
        (hit,) = index.search(query)
        assert index.search("31m").total == 0
    assert "\x1b[3" not in hit.excerpt
    assert "FAILED tests/test_retry.py" in hit.excerpt or query not in ("FAILED", "retry")


def test_an_expression_sees_what_is_read(library: ConversationLibrary) -> None:
    with SearchIndex(library) as index:
        index.update()
        assert len(index.search("", regex=r"FAILED tests/test_\w+\.py")) == 1


def test_an_agent_gets_words_and_the_record_keeps_its_bytes(library: ConversationLibrary) -> None:
    (one,) = library.list()
    with LibraryTools(library) as past:
        read = str(past.read_conversation(str(one.id))["messages"])
    assert "FAILED tests/test_retry.py" in read
    assert "x1b[3" not in read
    with library.open(str(one.id), read_only=True) as conversation:
        (result,) = conversation.get_messages()[-1]["content"]
    assert result["content"] == PRINTED
