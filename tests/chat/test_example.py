"""The example of a chat: it is run, killed while it waits for an answer, and run again; and it says what is missing.

The client has its own tests, in which it is killed wherever it can be.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chat.dialects import DIALECTS
from tests.chat.server import Server
from transcript_store import verify

EXAMPLE = Path(__file__).parent.parent.parent / "examples/claude.py"


def test_a_chat_without_a_key_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "chat"), "Hello?"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert "Traceback" not in done.stderr


ON_THIS_MACHINE = """
import functools, runpy
from transcript_store import chat
chat.create_client = functools.partial(chat.create_client, allow_insecure_base_url=True)
runpy.run_path(EXAMPLE, run_name="__main__")
"""
"""The example as it is, at a server that has no https."""


@pytest.mark.long
def test_a_chat_that_is_killed_continues(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question was sent and not answered when the process is killed: the next one sends it again, once, with its own."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-nobody")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    claude = DIALECTS["claude"]

    def start(question: str) -> subprocess.Popen[str]:
        program = f"EXAMPLE = {str(EXAMPLE)!r}{ON_THIS_MACHINE}"
        command = [sys.executable, "-c", program, str(tmp_path / "chat"), question]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    server.answers += [
        claude.reply("Zubrowka."),
        replace(claude.reply("never"), cut_after=20, stalls=True),
        claude.reply("No."),
    ]
    first = start("What is the capital of Freedonia?")
    said, complaints = first.communicate(timeout=120)
    assert (said, first.returncode) == ("Zubrowka.\n", 0), complaints
    second = start("Is it large?")
    server.stalls = second.kill
    second.communicate(timeout=120)
    server.released.set()
    assert second.returncode == -signal.SIGKILL
    third = start("Well?")
    said, complaints = third.communicate(timeout=120)
    assert (said, third.returncode) == ("No.\n", 0), complaints
    sent = json.dumps(claude.messages(server.requests[-1].body))
    asked = ["What is the capital of Freedonia?", "Zubrowka.", "Is it large?", "Well?"]
    assert [sent.count(text) for text in asked] == [1, 1, 1, 1]
    assert verify(tmp_path / "chat").is_intact
