"""No public name changes unnoticed, nor what it takes: docs/compatibility.md says what a change of it means."""

from __future__ import annotations

from difflib import unified_diff

from tests.compat.api import FILE, surface


def test_the_public_surface_is_the_one_that_was_agreed_on() -> None:
    """After a change that is meant: ``python -m tests.compat.api``, and a line in CHANGELOG.md."""
    agreed, found = FILE.read_text().splitlines(), surface()
    assert found == agreed, "\n".join(unified_diff(agreed, found, "agreed on", "found", lineterm="", n=0))


def test_it_sees_what_matters() -> None:
    """Names, arguments and their defaults, members of values, kinds of an enum, bases of an error."""
    lines = "\n".join(surface())
    assert "class transcript_store.ConversationStore()" in lines
    assert "  append_message(self, message: " in lines
    assert "class transcript_store.CorruptTranscriptError(" in lines
    assert "  WAIT = " in lines
    assert "transcript_store.testing.SimulatedFileSystem" in lines
    assert "transcript_store.chat.create_client(config: " in lines
