"""``chat --resume`` without a name, and ``/search``: finding a conversation by its subject instead of its id."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chat.server import Server
from tests.cli.chat.conftest import OPENAI, Chat
from tests.cli.helpers import COMMAND, ENVIRONMENT, Cli
from tests.cli.terminal import Terminal
from transcript_store import ConversationLibrary
from transcript_store.cli._shared.terminal import Misuse
from transcript_store.cli.chat.conversation import picked


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def begun(library: ConversationLibrary, title: str | None, text: str = "hi") -> str:
    labels = {} if title is None else {"title": title}
    with library.create(labels=labels, provider="openai-compatible", model="m") as conversation:
        conversation.append_message({"role": "user", "content": text})
        conversation.append_message({"role": "assistant", "content": "Hello."})
        return conversation.id


@pytest.fixture
def library(home: Path) -> ConversationLibrary:
    return ConversationLibrary(home)


def typed(*lines: str) -> Callable[[], str]:
    """A person who types these lines, and then Ctrl-D."""
    waiting = iter(lines)

    def ask() -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    return ask


def test_the_latest_are_offered_and_one_is_picked(
    library: ConversationLibrary, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    ids = [begun(library, f"About {what}") for what in ("a socket", "a pipe", "a house")] + [begun(library, None)]
    for lines, chosen in (
        (("",), ids[3]),
        (("2",), ids[2]),
        (("socket",), ids[0]),
        (("about", "3"), ids[0]),
        (("about", ""), ids[2]),
        (("nowhere", "pipe"), ids[1]),
        ((ids[1],), ids[1]),
        (("99", "house"), ids[2]),
    ):
        assert picked(library.directory, typed(*lines)) == f"{library.directory}/{chosen}", lines
    nameless = library.create(provider="openai").id
    assert picked(library.directory, typed()) is None
    out = capsysbinary.readouterr().out.decode()
    assert re.search(r"  openai, 20\d\d-\d\d-\d\d \d\d:\d\d\n", out), nameless
    assert "  hi\n" in out, "what has no title is called by its first prompt"


def test_a_title_is_no_command_to_the_terminal(
    library: ConversationLibrary, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    begun(library, "\x1b[2J\u202e a title")
    picked(library.directory, typed("1"))
    out = capsysbinary.readouterr().out.decode()
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_where_there_is_none_yet_that_is_said(library: ConversationLibrary) -> None:
    with pytest.raises(Misuse, match="there is no conversation yet"):
        picked(library.directory, typed(""))


def test_what_cannot_be_continued_is_not_offered_and_hides_nothing(library: ConversationLibrary) -> None:
    """The ten that changed last were damaged: it was said that there is no conversation yet."""
    whole = begun(library, "whole")
    damaged = [Path(library.directory, begun(library, "damaged"), "transcript.jsonl") for _ in range(11)]
    for path in damaged:
        path.write_bytes(b"damaged " + path.read_bytes())
    assert picked(library.directory, typed("")) == f"{library.directory}/{whole}"
    path = Path(library.directory, whole, "transcript.jsonl")
    path.write_bytes(b"damaged " + path.read_bytes())
    with pytest.raises(Misuse, match="none of 12 conversations can be continued"):
        picked(library.directory, typed(""))


def test_a_question_is_no_folder(
    cli: Cli, library: ConversationLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer gave the question as an argument: it became the name of a folder, and nothing was asked."""
    monkeypatch.chdir(tmp_path)
    done = cli("chat", "What is 2+2?")
    assert done.code == 2
    assert "looks like a message" in done.err
    assert "echo … | transcript-store chat" in done.err
    begun(ConversationLibrary(tmp_path), "A title")
    next(tmp_path.glob("*-*")).rename(tmp_path / "What is this?")
    assert "reads as" not in cli("chat", "What is this?").err


def test_without_a_terminal_nobody_can_be_asked(cli: Cli, library: ConversationLibrary) -> None:
    begun(library, "A title")
    done = cli("chat", "--resume")
    assert done.code == 2
    assert "needs a terminal" in done.err


def test_at_a_terminal_what_is_typed_filters_and_the_chat_continues(server: Server, tmp_path: Path) -> None:
    data = tmp_path / "xdg"
    library = ConversationLibrary(data / "transcript-store" / "conversations")
    wanted = begun(library, "About a socket", "What did we say of sockets?")
    begun(library, "About a house")
    begun(library, "About a pipe")
    environment = {**ENVIRONMENT, "XDG_DATA_HOME": str(data), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [*COMMAND, "chat", "--ports", "", "--resume"]
    command += ["--base-url", server.url, "--allow-insecure-base-url", "--model", "m"]
    with Terminal(command, environment) as screen:
        screen.wait_for("Ctrl-D leaves.")
        screen.wait_for_prompt()
        screen.type("sock")
        screen.wait_for("About a socket")  # in the menu
        screen.type("\r")
        screen.wait_for(wanted)
        screen.wait_for("What did we say of sockets?")
        screen.wait_for_prompt()
        screen.type("/search house\r")
        screen.wait_for("nothing was found")  # in what was said; a title is no message
        screen.wait_for_prompt()
        screen.type("\x04")
        assert screen.end() == 0


def test_what_was_said_is_found_in_a_chat(chat: Chat, library: ConversationLibrary) -> None:
    own_id = begun(library, "About a socket", "the socket times out")
    chat.server.answers += [OPENAI.stream("Hello.")]
    result = chat("--new", lines="hi\n/search socket\n")
    assert (result.code, result.err) == (0, "")
    assert "About a socket" in result.out
    assert f"transcript-store show {os.path.join(library.directory, own_id[:8])} --around 1" in result.out
    assert len(chat.server.requests) == 1  # the command was not sent


def test_a_search_for_nothing_is_refused(chat: Chat, library: ConversationLibrary) -> None:
    begun(library, "A title")
    chat.server.answers += [OPENAI.stream("Hello.")]
    result = chat("--new", lines="hi\n/search\nnever sent\n")
    assert result.code == 1
    assert "/search takes a query" in result.err
