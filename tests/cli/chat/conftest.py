"""Shared fixtures for `transcript-store chat`: the command beside a test server that plays the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chat.conftest import VARIABLES, no_certificates
from tests.chat.dialects import DIALECTS
from tests.chat.server import Answer, Server, serving
from tests.cli.helpers import Cli, Result
from transcript_store import ConversationStore
from transcript_store.cli.chat import answering, session
from transcript_store.cli.chat.local import QWEN

__all__ = ["no_certificates"]

MODEL = QWEN.name
OPENAI = DIALECTS["openai-compatible"]
BUSY = Answer(b'{"error": {"message": "busy \\u001b[2J"}}', status=402)


def trouble(status: int, message: str = "because") -> Answer:
    return Answer(json.dumps({"error": {"message": message, "type": "x"}}).encode(), status=status)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No key, no address and no folder of whoever runs this; returns the folder of the library."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that what the command sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: tmp_path / "data" / name)
    monkeypatch.setattr(session, "find_servers", lambda _ports: [])  # whatever runs on the machine of whoever runs this
    return tmp_path / "data" / "transcript-store" / "conversations"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


class Chat:
    """The command, talking to the test server."""

    def __init__(self, cli: Cli, server: Server) -> None:
        self.cli, self.server = cli, server

    def __call__(self, *arguments: str, lines: str = "") -> Result:
        where = ("--base-url", self.server.url, "--allow-insecure-base-url")
        return self.cli("chat", *arguments, *where, stdin=lines.encode())


@pytest.fixture
def chat(cli: Cli, server: Server) -> Chat:
    return Chat(cli, server)


def said(directory: Path) -> list[tuple[str, str]]:
    with ConversationStore(directory, read_only=True) as stored:
        stored.load()
        return [(message["role"], message["content"]) for message in stored.get_messages()]


class StandIn:
    """In place of the server of the local model: the test server, and tokens that are words."""

    token = "local-token"
    is_running = True

    def __init__(self, server: Server) -> None:
        self.base_url = server.url

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def count_tokens(self, text: str) -> int:
        return len(text.split())


@pytest.fixture
def local(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a conversation with the local model, whose part the test server plays."""
    monkeypatch.setattr(answering, "weights_path", lambda _: tmp_path / "weights")
    monkeypatch.setattr(answering, "fetched", lambda *_: tmp_path / "weights")
    monkeypatch.setattr(answering, "LocalServer", lambda *_: StandIn(server))
    return tmp_path / "c"
