"""What a person types is a query, whatever it is."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.search.libraries import begun, found
from transcript_store import ConversationLibrary, FileStore
from transcript_store.search import SearchIndex, list_snapshots
from transcript_store.search._query import Filter, Query, Term, parse

WORDS = r"""AND OR NOT NEAR NEAR(a b,3) " ' ( ) { } * - ^ : + text: rowid:1 -- title: title:x label:a= label:= label:"a=it's"
    in:nowhere in:result after:never after:9999-12-31 before:0001-01-01 role: id:% source:_ socket 東京 -socket *ock* sock* é*"""
PIECES = st.sampled_from([*WORDS.split(), "\0", "\ud800", "\U0003ffff"])
QUERIES = st.lists(PIECES | st.text(max_size=8), max_size=8).map(" ".join)


@given(st.text())
def test_every_text_is_a_query(text):
    parse(text)


@pytest.mark.parametrize("given", [None, ["socket"], b"socket"])
def test_what_is_no_text_is_no_query(given, tmp_path):
    with SearchIndex(ConversationLibrary(tmp_path), cache=tmp_path / "cache") as index:
        for call in (index.search, lambda query: index.list(filter=query)):
            with pytest.raises(TypeError, match=f"a query must be a str, not {type(given).__name__}"):
                call(given)


def test_the_directory_of_the_index_may_begin_with_a_tilde(tmp_path, monkeypatch):
    """And no folder that is called ~ is made where the program runs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with SearchIndex(ConversationLibrary("~/library"), cache="~/cache") as index:
        index.update()
    list_snapshots(FileStore("~/snapshots"), cache="~/cache")
    assert (tmp_path / "home/cache").is_dir()
    assert not (tmp_path / "~").exists()


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    library = ConversationLibrary(home / "library")
    begun(library, "a socket in 東京", "not near, or and", labels={"title": "it's", "a": "it's"})
    with SearchIndex(library, cache=home / "cache") as index:
        yield index


@given(query=QUERIES)
@example(query="x" * 1_000_000)
@example(query="東" * 100_000)
@example(query=" ".join(f"word{number}" for number in range(10_000)))
@example(query=" OR ".join(f"word{number}" for number in range(10_000)))
@example(query=" ".join(f"-word{number}" for number in range(10_000)))
@example(query=" ".join(f"{name}:word{number}" for number in range(2_000) for name in ("title", "-role", "label")))
def test_no_query_is_an_error(index, query):
    """Operators of FTS5, quotes that are not closed, ten thousand terms, a word of a megabyte."""
    index.search(query, limit=3)
    index.list(filter=query, limit=3)


def test_ten_thousand_terms_are_all_asked_for(tmp_path):
    library = ConversationLibrary(tmp_path / "library")
    words = [f"word{number}" for number in range(10_000)]
    begun(library, " ".join(words), " ".join(words[:-1]))
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        assert {seq for _, _, seq in found(index, " ".join(words))} == {1}


def test_a_moment_is_compared_to_the_microsecond(tmp_path):
    """The index has whole seconds; a day may have a fraction of one."""
    library = ConversationLibrary(tmp_path / "library")
    with library.open(begun(library, "socket")) as conversation:
        at = datetime.fromisoformat(conversation.get_records()[-1].at)
    later = at + timedelta(microseconds=1)
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        for words in ("", "socket ", "-pipe "):
            for bound, moment, count in (
                ("after", at, 1),
                ("after", later, 0),
                ("before", later, 1),
                ("before", at, 0),
            ):
                answer = index.search(f"{words}{bound}:{moment.isoformat()}")
                assert len(answer) == count
                assert answer.total in (count, None)


def test_operators_are_words(index):
    assert {seq for _, _, seq in found(index, "not near and")} == {2}
    assert {seq for _, _, seq in found(index, '"OR" and')} == {2}


@pytest.mark.parametrize(
    ("text", "query"),
    {
        "": Query(),
        "a b": Query(groups=((Term(("a",)),), (Term(("b",)),))),
        "a OR b c": Query(groups=((Term(("a",)), Term(("b",))), (Term(("c",)),))),
        "OR a OR": Query(groups=((Term(("a",)),),)),
        '"a b': Query(groups=((Term(("a", "b")),),)),
        "-a": Query(without=(Term(("a",)),)),
        "--dry-run": Query(groups=((Term(("dry", "run")),),)),
        "ab* *cd*": Query(groups=((Term(("ab",), "beginning"),), (Term(("cd",), "part"),))),
        "東京大 東": Query(groups=((Term(("東京", "京大")),), (Term(("東",), "beginning"),))),
        "in:call in:result": Query(columns=("call", "result")),
        "in:all": Query(columns=("text", "thinking", "call", "result")),
        'title:"a b" -model:x': Query(filters=(Filter("title", "a b"), Filter("model", "x", is_not=True))),
        "http://a": Query(groups=((Term(("http", "a")),),)),
        "after:2026-01-02": Query(after="2026-01-02T00:00:00.000000Z"),
        "before:2026-01-02T03:00+02:00": Query(before="2026-01-02T01:00:00.000000Z"),
        "after:soon": Query(ignored=("after:soon",)),
        'before: x "after:soon"': Query(groups=((Term(("before",)),), (Term(("x",)),), (Term(("after", "soon")),))),
        "…": Query(ignored=("…",)),
    }.items(),
)
def test_what_a_query_means(text, query):
    assert parse(text) == query


@pytest.mark.parametrize("written", ["24h", "7d", "2w", "today", "Yesterday"])
def test_a_date_is_what_since_takes(index, written):
    """``after:7d`` is a moment, and needs no word beside it: all that was said since then is found."""
    query = parse(f"after:{written}")
    assert (query.groups, query.ignored) == ((), ())
    assert {seq for _, _, seq in found(index, f"after:{written}")} == {1, 2}
    assert found(index, f"before:{written}") == set()
