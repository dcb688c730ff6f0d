"""Pages of a list: each conversation stands on one of them, in the order that was asked for."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.search.libraries import appended, begun, places
from transcript_store import ConversationLibrary, list_conversations
from transcript_store.search import SearchIndex
from transcript_store.search._query import _filters, parse_query
from transcript_store.search._tokens import fold


@pytest.fixture
def library(seven, tmp_path):
    """A copy of it: each test may change its own."""
    return ConversationLibrary(shutil.copytree(seven, tmp_path / "library"))


@pytest.fixture(scope="module")
def seven(tmp_path_factory):
    """Seven conversations, of which the n-th has n messages."""
    library = ConversationLibrary(tmp_path_factory.mktemp("seven") / "library")
    for number in range(7):
        labels = {"title": f"Title {number % 3}", "parity": str(number % 2)} if number else {}
        begun(library, *["text"] * number, labels=labels, provider="claude", model=f"m{number}")
    return library.directory


@pytest.fixture
def index(library, tmp_path):
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        yield index


def ids(summaries):
    return [summary.id for summary in summaries]


def test_a_list_says_what_the_library_says(library, index):
    assert list(index.list(limit=100)) == library.list()


def test_the_total_is_kept_through_whatever_happens(library, index):
    """It is not counted anew for each page."""
    for number, one in enumerate(library.list()):
        if number % 2:
            library.delete(one.id)
        else:
            appended(library, one.id, "more")
        begun(library, "another")
        assert index.list(wait=True).total == len(library.list()) == index.list(filter="-id:zzzz").total
    index.update()
    assert index.status().messages == sum(one.record_count for one in library.list())
    index.rebuild()
    assert index.list().total == len(library.list())
    assert index.status().messages == sum(one.record_count for one in library.list())


@pytest.mark.parametrize("order", ["updated", "created", "title", "records", "size"])
def test_pages_have_each_conversation_once(library, index, order):
    every = ids(index.list(limit=100, sort=order))
    paged, after = [], None
    while True:
        page = index.list(limit=2, sort=order, after=after)
        assert page.total == 7
        paged += ids(page)
        if (after := page.next) is None:
            break
    assert paged == every
    assert sorted(every) == sorted(ids(library.list()))


def test_an_order_is_what_it_says(index):
    assert [summary.record_count for summary in index.list(sort="records")] == [6, 5, 4, 3, 2, 1, 0]
    assert [summary.title for summary in index.list(sort="title")] == [
        None,
        *["Title 0"] * 2,
        *["Title 1"] * 2,
        *["Title 2"] * 2,
    ]


def test_a_filter_leaves_what_it_says(index):
    assert index.list(filter="label:parity=1").total == 3
    assert index.list(filter="title:title -label:parity=1 model:m").total == 3
    assert index.list(filter="after:2100-01-01").total == 0
    assert index.list(filter='"title 2"').total == index.list(filter="2 title").total == 2


def test_a_list_moves_on_with_the_library(library, index):
    last = index.list(sort="created").summaries[-1].id
    appended(library, last, "more")
    page = index.list(limit=1)
    assert ids(page) == [last]
    assert page.not_looked_at == 0
    library.delete(last)
    assert last not in ids(index.list())


def test_damaged_ones_and_folders_with_names_of_their_own_are_listed(library, index):
    first, second = (summary.directory for summary in library.list()[:2])
    os.rename(first, f"{library.directory}/own name")
    with open(f"{second}/metadata.json", "wb") as file:
        file.write(b"damaged")
    there = {summary.directory: summary for summary in list_conversations(library.directory)}
    assert {summary.directory: summary for summary in index.list()} == there


@pytest.mark.parametrize(
    "after",
    ["", "x", "[]", '["updated", null, 1]', '["title", "x", 1]', '["updated", {}, 1]', f'["updated", 1, {10**30}]'],
)
def test_a_place_that_no_page_gave_is_refused(index, after):
    with pytest.raises(ValueError, match="after must be"):
        index.list(after=after)
    with pytest.raises(ValueError, match="sort"):
        index.list(sort="colour")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("asked", ["needle", "NEEDLE", "éclair", "eclair", "b", "\0b", "x", "京"])
def test_a_title_contains_what_is_asked_whatever_its_letters(tmp_path, asked):
    """SQLite compares what is ASCII, Python the rest. What stands behind a NUL is looked at too."""
    library = ConversationLibrary(tmp_path / "library")
    titles = ["a Needle", "ÉCLAIR", "Eclair", "a\0b", "a\0É b", "東京大学", "q"]
    for title in titles:
        begun(library, "a socket", labels={"title": title})
    expected = {title for title in titles if fold(asked).lower() in fold(title).lower()}
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        assert {one.title for one in index.list(filter=f'title:"{asked}"')} == expected
        assert {hit.title for hit in index.search(f'socket title:"{asked}"')} == expected
        assert {hit.title for hit in index.search(f'socket -title:"{asked}"')} == set(titles) - expected


@pytest.mark.parametrize("many", [1, 32, 33, 1_000])
def test_many_titles_may_be_refused(tmp_path, many):
    """10,000 filters are looked up all at once: one by one, in 10,000 conversations, they took ten seconds."""
    library = ConversationLibrary(tmp_path / "library")
    for title in ("a Needle", "ÉCLAIR", "nothing", "q", "word7 x"):
        begun(library, "a socket", labels={"title": title})
    begun(library, "a socket", labels={"title": "w"})
    others = " ".join(f"-title:word{number}z" for number in range(many - 1))
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        assert index.list(filter=others).total == 6
        for refused, left in (("NEEDLE", 5), ("eclair", 5), ("word7", 5), ("needles", 6), ("x", 5), ("e", 4)):
            assert index.list(filter=f"{others} -title:{refused}").total == left, refused
            assert index.search(f"socket {others} -title:{refused}").total == left, refused
        assert index.list(filter=f"{others} -title:needle title:a").total == 1


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", ["title", "model", "provider", "source", "project", "label", "id", "role"])
def test_many_refused_values_are_one_condition(tmp_path, name):
    """With 33 of them as with one, and as they are asked one by one; 10,000 labels took a minute."""
    library = ConversationLibrary(tmp_path / "library")
    ids = []
    for number, model in enumerate(("Opus", "ÉCLAIR", "x", None)):
        labels = {"title": f"title {model}", "project": f"P{model}", "source": f"from-{model}", f"only{number}": "1"}
        ids.append(begun(library, "a socket", labels=labels, model=model, provider=model))
    one = ConversationLibrary(library.directory).open(ids[0], durability="process-crash")
    with one:
        one.append_message({"role": "assistant", "content": "a socket"})
    refused = {
        "label": ["project=popus", "project=péclair", "only2", "ONLY3", "project=P", "project"],
        "id": [ids[0], ids[1][:8], ids[2][:8].upper(), "-", "zz"],
        "role": ["USER", "assist", "ser", "tool"],
    }.get(name, ["opus", "eclair", "None", "e", "nothing"])
    others = " ".join(f"-{name}:zz{number}=zz" for number in range(40))
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        index.update()
        for value in refused:
            few, many = f"socket -{name}:{value}", f"socket {others} -{name}:{value}"
            assert places(index.search(many)) == places(index.search(few)), value
            assert index.search(many).total == index.search(few).total == len(index.search(few)), value
        kept = {value: len(index.search(f"socket {others} -{name}:{value}")) for value in refused}
        assert len(set(kept.values())) > 1, kept  # some are refused and some are not
    _, values = _filters(parse_query(others), of_messages=name == "role")
    assert len(values) == 1


@pytest.mark.parametrize("limit", [0, -1, 1.5, float("nan"), "3", None])
def test_a_limit_that_is_no_positive_int_is_refused_and_the_index_stays(index, limit):
    """SQLite said "datatype mismatch", which was taken for damage: the index was thrown away, and an error of the disk was told."""
    index.update()
    path = index.status().path
    before = os.stat(path).st_ino
    with pytest.raises(ValueError, match="limit must be an int from 1"):
        index.list(limit=limit)
    with pytest.raises(ValueError, match="limit must be an int from 1"):
        index.search("text", limit=limit)
    assert (index.status().path, os.stat(path).st_ino) == (path, before)


def test_a_limit_may_be_any_number(library, index):
    """SQLite takes none of more than 64 bits."""
    assert len(index.list(limit=10**30)) == len(library.list())
    assert len(index.search("text", limit=10**30)) == sum(range(7))
