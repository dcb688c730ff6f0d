r"""One message with a NUL, and the documented query over ``ts_line`` failed for every conversation of the database.

The report: https://github.com/langchain-ai/langgraph/issues/1878. PostgreSQL's ``json`` takes ``\u0000`` and halves of surrogate pairs, and
raises when an operator looks into the value.
"""

from __future__ import annotations

import json

import pytest

psycopg = pytest.importorskip("psycopg", reason="needs the extra `postgres`")

from tests.backends.conftest import postgres  # noqa: E402
from tests.kit.postgres import PostgresServer  # noqa: E402
from transcript_store import ConversationLibrary  # noqa: E402
from transcript_store.backends import PostgresBackend  # noqa: E402

__all__ = ["postgres"]

pytestmark = pytest.mark.long

TEXTS = {
    "a\0b": "a\ufffdb",
    "\0\0": "\ufffd\ufffd",
    "\\u0000": "\\u0000",  # the text of an escape is no NUL
    "\\\0": "\\\ufffd",
    "\\\\u0000\0": "\\\\u0000\ufffd",
    "😀\0": "😀\ufffd",
    "ordinary": "ordinary",
}


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.schema()


def test_the_documented_query_has_the_messages_of_all_conversations(url: str) -> None:
    library = ConversationLibrary(PostgresBackend(url, create=True))
    for text in TEXTS:
        with library.create(provider="claude", holder="worker\0one" if "\0" in text else "") as conversation:
            conversation.append_message({"role": "user", "content": text})
    with psycopg.connect(url) as database:
        found = database.execute(
            "SELECT line::json -> 'message' ->> 'content', exact FROM ts_line WHERE kind = 'append'"
        ).fetchall()
        assert sorted(text for text, _ in found) == sorted(TEXTS.values())
        assert sorted(json.loads(line)["message"]["content"] for _, line in found) == sorted(TEXTS)
        assert database.execute("SELECT count(*) FROM ts_line WHERE line::jsonb ? 'message'").fetchone() == (
            len(TEXTS),
        )


def test_halves_of_surrogate_pairs_are_replaced_and_pairs_are_not(url: str) -> None:
    PostgresBackend(url, create=True).conversations()
    with psycopg.connect(url) as database:
        for line, readable in (
            (r'["\ud83d\ude00"]', "\U0001f600"),
            (r'["\ud83d"]', "\ufffd"),
            (r'["\uDE00 \ud83d\ud83d\ude00\ude00"]', "\ufffd \ufffd\U0001f600\ufffd"),
            (r'["\\ud83d"]', r"\ud83d"),
        ):
            assert database.execute("SELECT ts_readable(%s)::json ->> 0", (line,)).fetchone() == (readable,), line
