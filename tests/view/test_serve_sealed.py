"""`serve` and sealed conversations (F13, P17): shown with the key, listed without it, and nothing of them on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.view.server import serving
from transcript_store import ConversationLibrary, write_key_file

pytest.importorskip("uvicorn", reason="needs the extra `view`")


def test_what_is_sealed_is_shown_with_the_key_alone(tmp_path: Path) -> None:
    """The list says `sealed`, the page and a search have it with the key; without it both say why they have not."""
    write_key_file(tmp_path / "key")
    library = ConversationLibrary(
        tmp_path / "chats", encryption_key=bytes.fromhex((tmp_path / "key").read_text().strip())
    )
    with library.create(messages=[{"role": "user", "content": "a zebrafish"}]) as store:
        id = store.get_metadata().id  # noqa: A001
    for key in (str(tmp_path / "key"), ""):
        with serving(tmp_path / "chats", tmp_path / "cache", environment={"TRANSCRIPT_STORE_KEY": key}) as server:
            assert b"sealed" in server.get().body
            page, found = server.get(f"c/{id}/"), server.get("?q=zebrafish")
            if key:
                assert (page.status, b"a zebrafish" in page.body) == (200, True)
                assert b"1 message" in found.body
            else:
                assert (page.status, b"no key was given" in page.body) == (500, True)
                assert b"1 sealed conversation could not be read" in found.body
    files = [file for place in ("chats", "cache") for file in (tmp_path / place).rglob("*") if file.is_file()]
    assert not [file for file in files if b"zebrafish" in file.read_bytes().lower()]
