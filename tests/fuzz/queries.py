"""Any query is accepted without an error, and finds the messages that match."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.search.libraries import begun, found
from transcript_store import ConversationLibrary
from transcript_store.search import SearchIndex
from transcript_store.search._query import Query, matcher, parse_query
from transcript_store.search._tokens import texts_of, tokens

SAID = (
    "The socket timed out: --dry-run, foo-bar, std::vector, https://example.com/a?b=c",
    "not near AND or, (a b) {text} : + ^ *",
    "東京都の天気 서울 날씨 ab東cd",
    "café CAFÉ naïve İstanbul ß ﬁ",
    "1234 12 34 a1b2 _x_ é",
)


@cache
def _library() -> tuple[SearchIndex, dict[int, str]]:
    """An index over one conversation with these messages, and those by their numbers."""
    home = Path(tempfile.mkdtemp(prefix="fuzzed-"))
    library = ConversationLibrary(home / "library")
    begun(library, *SAID)
    index = SearchIndex(library, cache=home / "cache")
    index.update()
    return index, dict(enumerate(SAID, 1))


def query(data: bytes) -> None:
    """Every text is one; no term has what FTS5 would obey; the index finds what a scan finds; an excerpt's marks are in it."""
    text = data.decode("utf-8", "surrogateescape")
    read = parse_query(text)
    for term in (*(term for group in read.groups for term in group), *read.without):
        assert term.tokens
        assert all(token and not set(token) & set("\"'*^:+(){} \n\0") for token in term.tokens), term
    if (read.after, read.before) == (None, None):  # 7d is another moment each time
        assert parse_query(text) == read
    index, messages = _library()
    hits = {seq for _, _, seq in found(index, text)}
    accepted = {seq for seq, said in messages.items() if _matches(read, said)}
    assert hits <= accepted, (text, read, hits, accepted)
    if (read.groups or read.without) and not (read.filters or read.after or read.before):
        assert hits == accepted, (text, read, hits, accepted)
    index.list(filter=text, limit=3)


def _matches(read: Query, said: str) -> bool:
    excerpt = matcher(read)(texts_of({"role": "user", "content": said}))
    if excerpt is None:
        return False
    for start, end in excerpt.highlights:
        assert 0 <= start < end <= len(excerpt.text)
        assert list(tokens(excerpt.text[start:end])), "a mark without a word"
    return True


QUERIES = {"query": query}
