"""Files of a later version are refused as a whole and never rewritten; unknown additions are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.conversation.helpers import ONE, TWO, both
from tests.kit.trees import tree
from transcript_store import ConversationExistsError, ConversationStore, UnsupportedVersionError, verify
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document
from transcript_store._log.record import GENESIS, close_line


def _header(**changes: Any) -> Callable[[Path], None]:
    """Rewrite a transcript's header with the real hash, as a later version would write it."""

    def change(path: Path) -> None:
        members = json.loads((path / "transcript.jsonl").read_bytes().split(b"\n")[0])
        del members["hash"]
        body = json.dumps({**members, **changes}, separators=(",", ":")).encode()[:-1]
        (path / "transcript.jsonl").write_bytes(close_line(GENESIS, body)[0])

    return change


def _metadata_version(version: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        members = json.loads((path / "metadata.json").read_bytes())
        del members["hash"]
        body = json.dumps({**members, "version": version}, indent=2).encode()[:-1]
        digest = sha256(body).hexdigest()[:32].encode()
        (path / "metadata.json").write_bytes(body + b',"hash":"' + digest + b'"}\n')

    return change


LATER: dict[str, Callable[[Path], None]] = {
    "a header of version 2": _header(version=2),
    "a header of a version that is no number": _header(version="1"),
    "a header that requires sealing": _header(requires=["sealing"]),
    "a header that requires something odd": _header(requires={"x": 1}),
    "metadata of version 2": _metadata_version(2),
    "metadata of version 99 and a header of version 99": both(_header(version=99), _metadata_version(99)),
}


@pytest.mark.parametrize("name", LATER)
def test_a_later_version_is_refused_and_never_rewritten(tmp_path, name):
    """P20: a greater version, or a feature that a reader must know, is an UnsupportedVersionError; the files stay as they are."""
    path = tmp_path / "c"
    with ConversationStore(path) as store:
        store.initialize(messages=[ONE])
    LATER[name](path)
    before = tree(tmp_path, but=("lock",))
    for read_only in (False, True):
        store = ConversationStore(path, read_only=read_only)
        for call in (store.load, store.load_or_initialize):
            with pytest.raises(UnsupportedVersionError, match="upgrade") as caught:
                call()
            assert caught.value.path.startswith(str(path))
    assert ConversationStore(path).exists()
    with pytest.raises(ConversationExistsError):
        ConversationStore(path).initialize()
    assert "version" in {finding.kind for finding in verify(path).findings}
    assert tree(tmp_path, but=("lock",)) == before


def test_unknown_members_of_header_and_records_are_kept(tmp_path):
    """P20: a reader keeps members that it does not know, where nothing says that it must know them."""
    path = tmp_path / "c"
    with ConversationStore(path) as store:
        store.initialize()
    _header(colour="blue")(path)
    data = (path / "transcript.jsonl").read_bytes()
    line, _ = close_line(
        data[-35:-3], b'{"seq":1,"at":"2026-01-01T00:00:00.000000Z","message":{"a":1},"mood":{"x":[1]},"list":[1]'
    )
    (path / "transcript.jsonl").write_bytes(data + line)
    metadata = decode_document((path / "metadata.json").read_bytes())
    assert isinstance(metadata, MetadataDocument)
    # Whoever rewrites a header has another head, and so another mark.
    assert metadata.mark is not None
    mark = metadata.mark._replace(position=metadata.mark.position._replace(offset_bytes=len(data), head=data[-35:-3]))
    (path / "metadata.json").write_bytes(encode_document(metadata.members, mark))
    with ConversationStore(path) as store:
        store.load()
        assert store.get_messages() == [{"a": 1}]
        store.append_message(TWO)
    assert (path / "transcript.jsonl").read_bytes().startswith(data + line)
    assert verify(path).is_intact
