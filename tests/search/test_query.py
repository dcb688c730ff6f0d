"""Any text is a query."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.kit.cases import for_each
from tests.search.libraries import begun, found
from transcript_store import ConversationLibrary, FileStore
from transcript_store.display import period
from transcript_store.search import SearchIndex, list_snapshots
from transcript_store.search._query import Filter, Query, Term, parse_query

WORDS = r"""AND OR NOT NEAR NEAR(a b,3) " ' ( ) { } * - ^ : + text: rowid:1 -- title: title:x label:a= label:= label:"a=it's"
    in:nowhere in:result after:never after:9999-12-31 before:0001-01-01 role: id:% source:_ socket 東京 -socket *ock* sock* é*"""
PIECES = st.sampled_from([*WORDS.split(), "\0", "\ud800", "\U0003ffff"])
QUERIES = st.lists(PIECES | st.text(max_size=8), max_size=8).map(" ".join)


@given(st.text())
def test_every_text_is_a_query(text):
    parse_query(text)


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


@pytest.mark.long
@given(query=QUERIES)
@example(query="x" * 1_000_000)
@example(query="東" * 20_000)
@example(query=" ".join(f"word{number}" for number in range(10_000)))
@example(query=" OR ".join(f"word{number}" for number in range(1_500)))
@example(query=" ".join(f"-word{number}" for number in range(1_500)))
@example(query=" ".join(f"{name}:word{number}" for number in range(400) for name in ("title", "-role", "label")))
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


@for_each(
    "text, query",
    {
        "": Query(),
        "a b": Query(groups=((Term(("a",)),), (Term(("b",)),))),
        "a OR b c": Query(groups=((Term(("a",)), Term(("b",))), (Term(("c",)),))),
        "OR a OR": Query(groups=((Term(("a",)),),), ignored=("OR", "OR")),
        '"a b': Query(groups=((Term(("a", "b")),),)),
        "-a": Query(without=(Term(("a",)),)),
        "--dry-run": Query(groups=((Term(("dry", "run")),),)),
        "ab* *cd*": Query(groups=((Term(("ab",), "beginning"),), (Term(("cd",), "part"),))),
        "*b_cd* *b-cd": Query(groups=((Term(("b", "cd"), "beginning", is_end=True),),)),
        '"*b cd" -*b/東京': Query(groups=((Term(("b", "cd")),),), without=(Term(("b", "東京"), is_end=True),)),
        "*京_ab* *ab/京*": Query(
            groups=((Term(("京", "ab"), "beginning"),), (Term(("ab", "京"), "beginning", is_end=True),))
        ),
        '日本 a日 "日本 x"': Query(  # the last run's last character is left out, where its pair has it, and only there
            groups=((Term(("日本",)),), (Term(("a", "日"), "beginning"),), (Term(("日本", "本", "x")),))
        ),
        "東京大 東": Query(groups=((Term(("東京", "京大")),), (Term(("東",), "beginning"),))),
        "in:call in:result": Query(columns=("call", "result"), is_limited=True),
        "in:all": Query(is_limited=True),
        "-in:call -in:result": Query(columns=("text", "thinking", "scaffolding"), is_limited=True),
        "in:text -in:TEXT": Query(ignored=("-in:text",)),
        "-after:2026-01-02": Query(before="2026-01-02T00:00:00.000000Z"),
        "-until:2026-01-02": Query(after="2026-01-03T00:00:00.000000Z"),
        "-before:soon": Query(ignored=("-before:soon",)),
        'title:"a b" -model:x': Query(filters=(Filter("title", "a b"), Filter("model", "x", is_not=True))),
        "http://a": Query(groups=((Term(("http", "a")),),)),
        "after:2026-01-02": Query(after="2026-01-02T00:00:00.000000Z"),
        "before:2026-01-02T03:00+02:00": Query(before="2026-01-02T01:00:00.000000Z"),
        "after:soon": Query(ignored=("after:soon",)),
        'before: x "after:soon"': Query(groups=((Term(("before",)),), (Term(("x",)),), (Term(("after", "soon")),))),
        "…": Query(ignored=("…",)),
    }.items(),
)
def test_queries_are_parsed(text, query):
    assert parse_query(text) == query


@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        ("*oo_ba*", {1, 2, 3, 5}),
        ("*oo_ba", {1, 2, 3, 5}),
        ("foo_ba*", {1, 3, 5}),
        ("*oo_bar_ba*", {3}),
        ("a -*oo_ba*", {4}),
        ("nothing OR *o_bar", {1, 2, 3, 5}),
        ("*oo_京*", {6}),
    ],
)
def test_a_part_that_punctuation_cuts_begins_and_ends_within_words(query, seqs, tmp_path):
    """The star before it was lost: `*oo_ba*` found nothing in foo_bar, and was not told as ignored."""
    library = ConversationLibrary(tmp_path / "library")
    begun(library, "a foo_bar", "a zoo bars", "a foo_bar_baz", "a foobar, foo x bar", "a fôo_bar é", "foo_京都")
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        assert {seq for _, _, seq in found(index, query)} == seqs
        assert index.search(query, wait=True).total in (len(seqs), None)
        assert index.search(query).ignored == ()


def test_the_model_is_the_assistant_whatever_its_provider_calls_it(tmp_path):
    """`role:assistant` found no reply of Gemini's. A part that is longer than those which the index knows is looked for in the messages."""
    said, part = f"socket {'x' * 70}", f"*{'x' * 66}*"
    library = ConversationLibrary(tmp_path / "library")
    replies: dict[str, dict[str, Any]] = {
        "claude": {"role": "assistant", "content": said},
        "gemini": {"role": "model", "parts": [{"text": said}]},
    }
    for provider, reply in replies.items():
        asked: dict[str, Any] = {
            "role": "user",
            ("parts" if provider == "gemini" else "content"): [{"type": "text", "text": said}],
        }
        library.create(provider=provider, messages=[asked, reply]).close()
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        for query in ("role:assistant", "role:model", "role:ASSIST", "-role:user"):
            for word in ("socket", part):
                hits = index.search(f"{word} {query}", wait=True)
                assert sorted(hit.role for hit in hits) == ["assistant", "model"], query
        for query in ("role:user", "-role:assistant", "-role:model"):
            assert [hit.role for hit in index.search(f"socket {query}", wait=True)] == ["user", "user"], query


@pytest.mark.parametrize("written", ["24h", "7d", "2w", "today", "Yesterday"])
def test_a_date_is_what_since_takes(index, written):
    """``after:7d`` is a moment, and needs no word beside it: all that was said since then is found."""
    query = parse_query(f"after:{written}")
    assert (query.groups, query.ignored) == ((), ())
    assert {seq for _, _, seq in found(index, f"after:{written}")} == {1, 2}
    assert found(index, f"before:{written}") == set()


def test_a_list_reports_what_selects_messages_as_it_was_written(index):
    for text in ("in:all", "in:call", "-in:result", "role:user", "-role:user", 'title:""'):
        assert index.list(filter=text).ignored == (text.replace('"', ""),)


def test_a_filter_that_there_is_not_is_reported_and_all_else_is_a_word():
    """`author:me` was searched as words, and found nothing. What may be in a text is looked for as it is."""
    for text in ("author:me", 'repo:"my shop"', "in:nowhere", "file:main.py"):
        assert parse_query(f"{text} x") == replace(parse_query("x"), ignored=(text.replace('"', ""),))
    for text in (
        "std::vector",
        "https://x.org/a",
        "localhost:8000",
        "C:\\x",
        "TypeError:x",
        '"author:me"',
        "a:b",
        "x:y/z",
    ):
        assert (parse_query(text).ignored, len(parse_query(text).groups)) == ((), 1), text
    for name in ("project", "cwd", "dir", "folder"):
        assert parse_query(f"{name}:shop").filters == (Filter("project", "shop"),)


@for_each("sign, said", [("㋀", "1月"), ("㏠", "1日"), ("㍿", "株式会社"), ("½", "1⁄2"), ("京㋀", "京1月")])
def test_one_sign_for_several_characters_is_looked_for_as_these(sign, said):
    """Only the last character of a run, whose pair stands before it, is left out: ㋀ was looked for as 1, and found every 1."""
    assert parse_query(sign).groups == parse_query(said).groups


def test_a_time_is_a_day_a_month_or_a_moment():
    """`until:` takes in what it names, `before:` does not."""
    assert parse_query("since:2026-02 until:2026-02").after == "2026-02-01T00:00:00.000000Z"
    assert parse_query("since:2026-02 until:2026-02").before == "2026-03-01T00:00:00.000000Z"
    assert parse_query("before:2026-02-28").before == "2026-02-28T00:00:00.000000Z"
    assert parse_query("until:2026-02-28").before == "2026-03-01T00:00:00.000000Z"
    assert parse_query("until:2026-02-28T12:00").before == "2026-02-28T12:00:00.000000Z"
    now = datetime.now(UTC)
    for text, days in (("last month", (28, 31)), ("this month", (28, 31)), ("last week", (7, 7)), ("today", (1, 1))):
        begin, end = period(text) or (now, now)
        assert days[0] <= (end - begin).days <= days[1], text
        assert begin <= now
    assert period("2025") == (datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
    assert period("last year") == (datetime(now.year - 1, 1, 1, tzinfo=UTC), datetime(now.year, 1, 1, tzinfo=UTC))
    assert (now - (period("1y") or (now, now))[0]).days in (364, 365)
    for month in ("january", "feb", "March", "december"):
        begin, end = period(month) or (now, now)
        assert (begin.day, end.day, begin <= now, (now - begin).days < 366) == (1, 1, True, True), month
    assert [
        period(text)
        for text in ("", "m", "7m", "2026-13", "2026-00", "soon", "last", "may be", "may 1", "7 hays", "d ago")
    ] == [None] * 11
