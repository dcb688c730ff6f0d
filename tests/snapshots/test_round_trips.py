"""A loaded snapshot equals the saved one; and which texts are moved to media."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.kit.cases import few, for_each
from tests.snapshots.helpers import IMAGE, IMAGE_NAME, KEY, snapshot, store_at
from transcript_store import FileStore, Snapshot
from transcript_store._snapshots import media as _media
from transcript_store.testing import SimulatedFileSystem
from transcript_store.testing.strategies import json_values

values = json_values(integers=st.integers())

awkward = st.sampled_from(
    [
        IMAGE,
        "data:image/png;base64," + IMAGE,
        "chatmedia+sha256:",
        "chatmedia+sha256:" + "0" * 64,
        "a" * 511,
        "a" * 512,
        "\n" * 512,
        "=" * 512,
        "<&>\u2028" * 200,
    ]
)


@settings(max_examples=few(60))
@given(st.lists(values | awkward | st.dictionaries(awkward, awkward, max_size=2), max_size=4), st.booleans())
def test_any_json_value_survives_sealed_and_plain(held: list[Any], is_sealed: bool) -> None:
    """Saved and loaded, by another store: equal, whatever it holds, media or not."""
    disk = SimulatedFileSystem()
    options: dict[str, Any] = {"encryption_key": KEY if is_sealed else None, "file_system": disk}
    one = snapshot(*held)
    FileStore("/store", **options).save(one)
    again = FileStore("/store", **options)
    assert again.load(one.id).messages == held
    assert again.load(one.id) == one
    assert again.list()[0].message_count == len(held)
    assert again.verify() == []


@for_each(
    "text, moves",
    [
        ("a" * 512, True), ("a" * 511, False), ("a" * 508, False), ("a" * 513, False), ("a" * 514 + "==", True), ("a" * 515 + "=", True),
        ("a" * 513 + "===", False), ("=" * 512, False), ("-_" * 300, False), (("a" * 76 + "\r\n") * 8, True), ("a" * 600 + " ", False),
        ("data:x;base64," + "?" * 498, True), ("data:x;base64," + "?" * 497, False), ("data:x," + "?" * 600, False), ("xdata:;base64," + "?" * 600, False),
        ("é" * 300, False), ("data:;base64," + "é" * 250, True), ("chatmedia+sha256:", True), ("chatmedia+sha256", False), ("\n" * 512, True), ("word " * 200, False),
    ],
)  # fmt: skip
def test_which_texts_are_moved(text: str, moves: bool) -> None:
    """The rule of Go's ``StdEncoding``, and one more: a text that looks like a reference is moved at any length."""
    moved: dict[str, bytes] = {}
    for written in (
        json.dumps([text], separators=(",", ":")),
        json.dumps([text], ensure_ascii=False, separators=(",", ":")),
    ):
        moved.clear()
        out = _media.move_out(written.encode(), moved.__setitem__)
        assert bool(moved) is moves
        assert json.loads(_media.move_in(out, moved.__getitem__)) == [text]


def test_what_looks_like_a_reference_however_it_is_spelled() -> None:
    r"""``\u0063hatmedia`` is ``chatmedia``: both ways, and never in a key."""
    written = b'["\\u0063hatmedia+sha256:x",{"chatmedia+sha256:k":"\\u0063hat"}]'
    moved: dict[str, bytes] = {}
    out = _media.move_out(written, moved.__setitem__)
    assert list(moved.values()) == [b"chatmedia+sha256:x"]
    assert out.endswith(b',{"chatmedia+sha256:k":"\\u0063hat"}]')
    spelled = out.replace(b'"chat', b'"\\u0063hat', 1)
    assert json.loads(_media.move_in(spelled, moved.__getitem__)) == json.loads(written)
    assert _media.references(spelled) == set(moved)


@pytest.mark.parametrize("text", ["chatmedia+sha256:x", "data:x;base64," + "?" * 498, "a" * 512])
def test_one_character_that_is_escaped_hides_nothing(text: str) -> None:
    """Wherever it stands."""
    for at in range(min(20, len(text))):
        moved: dict[str, bytes] = {}
        written = f'[0,"{text[:at]}\\u{ord(text[at]):04x}{text[at + 1 :]}"]'
        _media.move_out(written.encode(), moved.__setitem__)
        assert [value.decode() for value in moved.values()] == json.loads(written)[1:]


_PIECES = [
    "a" * 511,
    "a" * 512,
    "a",
    "=",
    "\r\n",
    '"',
    "\\",
    "/",
    "data:",
    ";base64,",
    "chatmedia+sha256:",
    "c",
    "d",
    " ",
    ",",
    ":",
    "é",
    "\0",
]
_texts = st.lists(st.sampled_from(_PIECES), max_size=5).map("".join)
_documents = json_values(integers=st.integers() | st.just(10**600), strings=_texts, max_leaves=12)


@given(value=_documents, spelling=st.randoms(use_true_random=False), how_many=st.sampled_from([0, 0.001, 0.3]))
@example(value=10**600, spelling=Random(0), how_many=0).via(
    "a number alone: no quotation mark before its digits, ValueError"
)
@example(value="a" * 512, spelling=Random(0), how_many=0).via("a string alone: its mark is the first byte")
def test_media_are_moved_as_if_every_string_were_read(value: Any, spelling: Random, how_many: float) -> None:
    """Wherever it stands, whatever stands beside it, and however its characters are escaped."""

    def is_meant(text: str) -> bool:
        data, digits = text.encode(), re.sub("[\r\n]", "", text)
        is_base64 = re.fullmatch("[A-Za-z0-9+/]*={0,2}", digits) is not None and len(digits) % 4 == 0
        is_media = len(data) >= 512 and (is_base64 or (text.startswith("data:") and ";base64," in text))
        return is_media or text.startswith("chatmedia+sha256:")

    def moved_out(node: Any) -> Any:
        if isinstance(node, str) and is_meant(node):
            expected.add(node.encode())
            return f"chatmedia+sha256:{sha256(node.encode()).hexdigest()}"
        if isinstance(node, list):
            return [moved_out(child) for child in node]
        return {key: moved_out(child) for key, child in node.items()} if isinstance(node, dict) else node

    def character(one: str) -> str:
        if one == "/" or spelling.random() >= how_many:
            return "\\/" if one == "/" and how_many else json.dumps(one, ensure_ascii=False)[1:-1]
        return f"\\u{ord(one):04X}"

    def written_as(node: Any) -> str:
        if isinstance(node, str):
            return '"{}"'.format("".join(map(character, node)))
        if isinstance(node, list):
            return "[{}]".format(",".join(map(written_as, node)))
        if isinstance(node, dict):
            return "{{{}}}".format(",".join(f"{written_as(key)}:{written_as(child)}" for key, child in node.items()))
        return json.dumps(node)

    written = written_as(value)
    assert json.loads(written) == value
    expected: set[bytes] = set()
    moved: dict[str, bytes] = {}
    out = _media.move_out(written.encode(), moved.__setitem__)
    assert json.loads(out) == moved_out(value)
    assert set(moved.values()) == expected
    assert json.loads(_media.move_in(out, moved.__getitem__)) == value
    if not expected:
        assert out == written.encode()


@for_each("offset", range(16))
def test_media_beside_media_is_found(offset: int) -> None:
    """Wherever it begins, though nothing but a few characters stands between two, and neither is longer than it must be."""
    texts = ["word " * 3 + "x" * offset, "a" * 512, "b" * 512, "c" * 1024, "d" * 511, "e" * 512]
    moved: dict[str, bytes] = {}
    _media.move_out(json.dumps(texts, separators=(",", ":")).encode(), moved.__setitem__)
    assert list(moved.values()) == [text.encode() for text in texts if len(text) >= 512]


def test_media_is_stored_once(tmp_path: Path) -> None:
    """Twice in one snapshot and once in another: one file, and the snapshots are small."""
    store = store_at(tmp_path)
    store.save(snapshot(IMAGE, {"data": IMAGE}))
    store.save(snapshot(IMAGE))
    assert [path.name for path in (tmp_path / "store/media").iterdir()] == [IMAGE_NAME]
    assert all(summary.size_bytes < 500 for summary in store.list())


def test_the_order_of_keys_stays_when_media_is_moved() -> None:
    """Go sorts them and rewrites numbers; here only the text of the media changes."""
    disk = SimulatedFileSystem()
    written = b'[{"z":1.0,"a":1e3,"z":12345678901234567890123,"m":"%b"}]' % IMAGE.encode()
    one = Snapshot.from_json(b'{"id":"%b","messages":%b}' % (snapshot().id.encode(), written))
    FileStore("/store", file_system=disk).save(one)
    assert FileStore("/store", file_system=disk).load(one.id).messages_json == written
