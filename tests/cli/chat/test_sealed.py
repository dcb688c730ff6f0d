"""`chat` with a key: no plaintext is on the disk, and the next process continues with the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chat.conftest import OPENAI, Chat


@pytest.mark.parametrize("where", ["directory", "library"])
def test_a_conversation_that_is_sealed(
    chat: Chat, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """In a folder and in the library; a search from within reads it; without the key it does not go on."""
    monkeypatch.delenv("TRANSCRIPT_STORE_KEY", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    key = str(tmp_path / "key")
    assert chat.cli("new-key", key).code == 0
    chat.server.answers += [OPENAI.stream("Zebrafish eat worms."), OPENAI.stream("You asked of zebrafish.")]
    named = [str(tmp_path / "c")] if where == "directory" else []
    first = chat(*named, "--key-file", key, lines="What do zebrafish eat?\n/search worms\n")
    assert (first.code, "Zebrafish eat worms." in first.out) == (0, True)
    refused = chat(*named, lines="And now?\n")
    assert refused.code == 1
    assert "it is sealed, and no key was given" in refused.err
    second = chat(*named, "--key-file", key, lines="What did I ask?\n")
    assert (second.code, "You asked of zebrafish." in second.out) == (0, True)
    places = [home, tmp_path / "cache", tmp_path / "c"]
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"zebrafish" in file.read_bytes().lower()]
