"""An interrupted stream: Ctrl-C stays Ctrl-C, the received part is recorded, and the conversation works.

Also the way out that nobody plans: the iterator is dropped, or another turn begins before it is finished.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import Dialect
from tests.chat.server import Answer, Server
from transcript_store import ConversationStore, TranscriptStoreError
from transcript_store.chat import ChatConfig, TextDelta, Tool, ToolCallStarted, TurnEnded, create_client
from transcript_store.errors import IncompleteResponseError, InvalidMessageError

CALLS = (("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def kept(conversation: ConversationStore) -> dict[str, Any]:
    """The last record's note on an incomplete reply."""
    (record,) = conversation.get_records(last=1)
    assert record.extra is not None
    note: dict[str, Any] = record.extra["incomplete"]
    return note


def begun(client: Any, prompt: str = "Go") -> Any:
    """A stream whose first text has come, and that is held."""
    stream = client.stream_chat(prompt)
    assert next(event for event in stream if isinstance(event, TextDelta))
    return stream


def stop(stream: Any, how: str) -> None:
    """Stop as Ctrl-C in the program, or in the SDK, or ``close()`` would."""
    if how == "close":
        stream.close()
    else:
        with pytest.raises(KeyboardInterrupt):
            stream.throw(KeyboardInterrupt)


@pytest.mark.parametrize("how", ["close", "Ctrl-C"])
def test_stopped_in_the_middle(dialect: Dialect, server: Server, tmp_path: Path, how: str) -> None:
    """The text that was shown is a message that can be sent again; what came, and why it ends, stands in its extra."""
    server.answers += [dialect.stream("A long answer", CALLS), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        stop(begun(client), how)
        assert (
            kept(conversation)["reason"]
            == f"the stream was cut ({'GeneratorExit' if how == 'close' else 'KeyboardInterrupt'})"
        )
        message = conversation.get_messages()[-1]
        assert "A long" in json.dumps(message)
        assert "answer" not in json.dumps(message)
        assert client.chat("Go on") == "Yes."
        assert dialect.messages(server.bodies[1]) == conversation.get_messages()[:3]


@pytest.mark.parametrize("silent", [False, True], ids=["in an answer", "before it"])
def test_a_real_ctrl_c(dialect: Dialect, server: Server, tmp_path: Path, silent: bool) -> None:
    """The signal, while the SDK waits for bytes: it comes through as ``KeyboardInterrupt``, and what came is on record."""
    body = dialect.stream("A long answer", stop=False).body
    whole = Answer(body + b": and more", content_type="text/event-stream")
    server.answers += [replace(whole, cut_after=0 if silent else len(body), stalls=True), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        seen = threading.Event()
        if silent:
            seen.set()

        def strike() -> None:
            assert seen.wait(60)
            os.kill(os.getpid(), signal.SIGINT)

        server.stalls = strike
        with pytest.raises(KeyboardInterrupt):
            for _ in client.stream_chat("Go"):
                seen.set()
        server.released.set()
        assert len(conversation.get_records()) == (1 if silent else 2)
        if not silent:
            assert "A long answer" in json.dumps(conversation.get_messages()[1])
            assert kept(conversation)["reason"] == "the stream was cut (KeyboardInterrupt)"
        assert client.chat("Go on") == "Yes."


@pytest.mark.sampled(every=4)
def test_a_server_that_falls_silent(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """``timeout_seconds`` is how long it may be silent: then it is a cut like any other."""
    body = dialect.stream("A long answer", stop=False).body
    silent = Answer(body + b": and more", content_type="text/event-stream", cut_after=len(body), stalls=True)
    server.answers += [silent, dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, timeout_seconds=2)
        with pytest.raises(IncompleteResponseError, match="Timeout"):
            list(client.stream_chat("Go"))
        server.released.set()
        assert client.chat("Go on") == "Yes."


def test_interrupted_before_anything_came(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Ctrl-C while the server still thinks: there is nothing to keep, and the next turn works."""
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(
            dialect, server, conversation, select_messages=lambda _: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            client.chat("Go")
        assert len(conversation.get_records()) == 1
        server.answers += [dialect.reply("Yes.")]
        assert connect(dialect, server, conversation).chat("Again") == "Yes."


def test_ctrl_c_in_a_tool(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """It passes through; the tool may have run, and the next request says that its outcome is unknown."""

    def interrupted(**_: Any) -> None:
        raise KeyboardInterrupt

    server.answers += [dialect.stream("", CALLS), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("add", "", SCHEMA, handler=interrupted)])
        with pytest.raises(KeyboardInterrupt):
            list(client.stream_chat("Go"))
        client.chat("What happened?")
        assert server.requests[1].raw.count(b"outcome is unknown") == 2


class _UiDiedError(Exception):
    pass


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("how", ["break", "an error", "Ctrl-C"])
def test_a_loop_that_is_left(dialect: Dialect, server: Server, tmp_path: Path, how: str) -> None:
    """What was shown is on record when the next line of the program runs, and stands before what that line stores."""
    server.answers += [dialect.stream("A long answer"), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        try:
            for event in client.stream_chat("Go"):
                if isinstance(event, TextDelta):
                    if how == "break":
                        break
                    raise _UiDiedError if how == "an error" else KeyboardInterrupt
        except (_UiDiedError, KeyboardInterrupt):
            pass
        assert kept(conversation)["reason"] == "the stream was cut (GeneratorExit)"
        assert "A long" in json.dumps(conversation.get_messages()[1])
        assert client.chat("Go on") == "Yes."


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_function_that_is_left_within_a_stream(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The conversation closes after the stream."""
    server.answers += [dialect.stream("A long answer")]

    def shown() -> str:
        with ConversationStore(tmp_path / "c") as conversation:
            for event in connect(dialect, server, conversation).stream_chat("Go"):
                if isinstance(event, TextDelta):
                    return event.text
        raise AssertionError

    text = shown()
    with ConversationStore(tmp_path / "c", read_only=True) as conversation:
        conversation.load()
        assert text in json.dumps(conversation.get_messages()[1])


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_an_unfinished_stream_ends_with_its_conversation(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Also if the program holds the iterator: ``close()`` records what came, and releases the lock whatever that raises."""
    server.answers += [dialect.stream("A long answer"), dialect.stream("A long answer")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        stream = begun(client)
    with conversation:
        conversation.load()
        assert "A long" in json.dumps(kept(conversation))
        with pytest.raises(IncompleteResponseError, match="the stream was ended"):
            next(stream)

    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, model="m")
        stream = begun(client, "Again")
        (tmp_path / "c" / "transcript.jsonl").rename(tmp_path / "elsewhere")
        with pytest.raises(TranscriptStoreError, match="the transcript was removed"):
            conversation.close()
        with pytest.raises(TranscriptStoreError, match="was closed"):
            conversation.get_messages()


def test_a_new_turn_ends_an_unfinished_stream(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The program caught Ctrl-C and still holds the iterator: the next turn closes it, and keeps what came of it.

    Incident: whoever read on was told nothing, and took the half that had come for the whole answer.
    """
    server.answers += [dialect.stream("A long answer"), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        stream = begun(client)
        assert client.chat("Something else") == "Yes."
        with pytest.raises(IncompleteResponseError, match="the stream was ended: another turn began"):
            list(stream)
        assert "A long" in json.dumps(conversation.get_messages()[1])


def test_an_unfinished_stream_ends_with_its_client(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """``close()`` records what came, and closes the connections."""
    server.answers += [dialect.stream("A long answer")]
    with ConversationStore(tmp_path / "c") as conversation:
        with connect(dialect, server, conversation) as client:
            stream = begun(client)
        with pytest.raises(IncompleteResponseError, match="the stream was ended"):
            list(stream)
        assert "A long" in json.dumps(kept(conversation))
        assert not client._let_go.alive  # what a connection left open is seen as a warning, and only later


def test_one_turn_at_a_time(dialect: Dialect, server: Server) -> None:
    """A second turn from a tool, or from another thread while one runs, is a mistake that is told."""
    errors: list[BaseException] = []

    def again(**_: Any) -> str:
        for turn in (lambda: client.chat("Now"), lambda: list(client.stream_chat("Now"))):

            def attempt(turn: Any = turn) -> None:
                try:
                    turn()
                except RuntimeError as error:
                    errors.append(error)

            attempt()
            (thread := threading.Thread(target=attempt)).start()
            thread.join()
        return "done"

    server.answers += [dialect.reply("", CALLS[:1]), dialect.reply("Yes.")]
    client = connect(dialect, server)
    client.set_tools([Tool("add", "", SCHEMA, handler=again)])
    assert client.chat("Go") == "Yes."
    assert [str(error) for error in errors] == ["another turn of this conversation is under way"] * 4


def test_whether_it_is_answered_may_be_asked_while_it_is_read(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """In the loop, in a tool, in another thread. Incident: the look at a property ended the loop that looked.

    At its last event the turn is over: the next one may begin in the loop.
    """
    asked: list[bool] = []

    def ask() -> None:
        (thread := threading.Thread(target=lambda: asked.append(client.is_answered))).start()
        thread.join()
        asked.append(client.is_answered)

    for conversation in (ConversationStore(tmp_path / "c"), None):
        server.answers[:] = [
            dialect.stream("I see.", CALLS[:1]),
            dialect.stream("A long answer"),
            dialect.reply("Yes."),
        ]
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("add", "", SCHEMA, handler=lambda **_: ask())])
        asked.clear()
        for event in client.stream_chat("Go"):
            ask()
            if isinstance(event, TurnEnded):
                assert client.chat("On") == "Yes."
        assert asked == [False] * (len(asked) - 2) + [True] * 2
        assert event == TurnEnded(text="A long answer", stop_reason=event.stop_reason)
        assert len(client.export_history()) == 6
        if conversation is not None:
            conversation.close()


def test_a_stream_that_another_thread_reads(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """It may stand between two events: the turn of this thread is refused, and that one reads its answer to the end.

    Incident: that one's loop ended in the middle of the answer, and nothing was raised anywhere.
    """
    shown, go_on = threading.Event(), threading.Event()
    read: list[Any] = []

    def reader() -> None:
        for event in client.stream_chat("Go"):
            read.append(event)
            shown.set()
            assert go_on.wait(60)

    server.answers += [dialect.stream("A long answer"), dialect.stream("A long answer"), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        (thread := threading.Thread(target=reader)).start()
        assert shown.wait(60)
        for turn in (lambda: client.chat("Now"), lambda: client.add("Now"), lambda: list(client.stream_chat("Now"))):
            with pytest.raises(RuntimeError, match="under way"):
                turn()
        go_on.set()
        thread.join()
        assert read[-1].text == "A long answer"
        held: list[Any] = []
        (thread := threading.Thread(target=lambda: held.append(begun(client, "Again")))).start()
        thread.join()
        assert client.chat("Something else") == "Yes."  # the thread has ended, so nobody reads on
        assert len(conversation.get_messages()) == 6


def test_nothing_happens_before_the_first_event_is_asked_for(dialect: Dialect, server: Server) -> None:
    """A stream that was made and never read said nothing to anybody."""
    client = connect(dialect, server)
    client.stream_chat("Never")
    server.answers += [dialect.reply("Yes.")]
    client.chat("Go")
    assert len(client.export_history()) == 2


def test_cut_behind_the_stop_reason(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Everything had come but the end of the stream: the reply is whole, and nobody is troubled."""
    server.answers += [dialect.stream("All of it", cut=True), dialect.reply("Yes.")]
    if dialect.name.startswith("openai"):  # its SDK reads no further than its own end mark
        body = dialect.stream("All of it").body.replace(b"data: [DONE]", b": cut here")
        server.answers[0] = Answer(body, content_type="text/event-stream", cut_after=len(body) - 2)
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        assert list(client.stream_chat("Go"))[-1].text == "All of it"
        assert "incomplete" not in (conversation.get_records()[-1].extra or {})
        assert client.chat("Go on") == "Yes."


def test_a_stream_in_another_thread_is_ended_later(dialect: Dialect, server: Server) -> None:
    """A turn that was refused because a stream was being read does not forget that stream."""
    server.answers += [dialect.stream("A long answer"), dialect.reply("Yes.")]
    refused: list[str] = []

    def look(messages: list[Any]) -> list[Any]:
        if len(messages) == 1 and not refused:
            refused.append("")
            with pytest.raises(RuntimeError, match="under way"):
                client.add("Now")
        return messages

    client = connect(dialect, server, select_messages=look)
    stream = client.stream_chat("Go")
    next(event for event in stream if isinstance(event, TextDelta))
    assert client.chat("Something else") == "Yes."
    assert refused


def test_a_malformed_event_is_a_cut(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Broken JSON, and JSON of another form, in the middle of a stream: an error of ours, the SDK's behind it."""
    good = dialect.stream("A long answer", stop=False).body
    for number, bad in enumerate(
        (
            b"event: content_block_delta\ndata: {broken\n\n",
            b'event: content_block_delta\ndata: {"choices": 1, "candidates": 1, "type": "content_block_delta"}\n\n',
        )
    ):
        server.answers[:] = [Answer(good + bad, content_type="text/event-stream"), dialect.reply("Yes.")]
        with ConversationStore(tmp_path / str(number)) as conversation:
            client = connect(dialect, server, conversation)
            with pytest.raises(IncompleteResponseError) as caught:
                list(client.stream_chat("Go"))
            assert caught.value.__cause__ is not None
            assert caught.value.text == "A long answer"
            assert client.chat("Go on") == "Yes."


def test_a_response_that_is_not_the_providers(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A proxy's page, or JSON of another form, where a reply was due: an error of ours, and the body is on record."""
    answers = [
        Answer(b"[1]"),
        Answer(b'{"content": 1, "choices": 1, "candidates": 1}'),
        Answer(b'"a page"'),
        Answer(
            b'{"choices": [{"message": {"content": [1]}}], "content": [1], "candidates": [{"content": {"parts": [1]}}]}'
        ),
    ]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        for answer in answers:
            server.answers[:] = [answer, dialect.reply("Yes.")]
            with pytest.raises(IncompleteResponseError):
                client.chat("Go")
            assert kept(conversation)["partial"] == json.loads(answer.body)
            assert client.chat("Again") == "Yes."


def test_a_character_that_a_stream_split_is_whole(dialect: Dialect, server: Server) -> None:
    """Some servers send the two halves of a surrogate pair in two events; JSON in UTF-8 can carry neither alone."""
    stream = dialect.stream("<>").body.decode().replace('"<"', r'"\ud83d"').replace('">"', r'"\ude00"')
    server.answers += [Answer(stream.encode(), content_type="text/event-stream")]
    client = connect(dialect, server)
    assert list(client.stream_chat("Go"))[-1].text == "\U0001f600"


def test_a_reply_that_no_record_can_hold(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """A lone surrogate, or an integer beyond 64 bits: the error says so, what came is kept as text, the next turn works."""
    for number, (old, new) in enumerate(((b'"Well."', b'"\\ud800"'), (b'"Well."', b'"Well.", "x": ' + b"9" * 30))):
        server.answers[:] = [Answer(dialect.reply("Well.").body.replace(old, new)), dialect.reply("Yes.")]
        with ConversationStore(tmp_path / str(number)) as conversation:
            client = connect(dialect, server, conversation)
            with pytest.raises(InvalidMessageError):
                client.chat("Go")
            assert new.removeprefix(b'"Well.", "x": ').decode().strip('"') in kept(conversation)["partial"]
            assert client.chat("Again") == "Yes."


@pytest.mark.sampled(every=4)
def test_a_client_that_was_not_closed_lets_go(dialect: Dialect, server: Server) -> None:
    """Its connections are closed with it; pytest would make an error of a socket that is not."""
    server.answers += [dialect.reply("Yes.")]
    config = ChatConfig(provider=dialect.provider, token="t", base_url=server.url)  # type: ignore[arg-type]
    client = create_client(config, allow_insecure_base_url=True)
    client.chat("Go")
    del client
    gc.collect()


def test_errors_that_are_not_ours_pass_through(dialect: Dialect, server: Server) -> None:
    """A refused stream is the SDK's own error, and nothing but the question is on record."""
    server.answers += [Answer(b'{"error": {"message": "no", "code": 401}}', status=401)]
    client = connect(dialect, server)
    with pytest.raises(Exception, match="401") as caught:
        list(client.stream_chat("Go"))
    assert not isinstance(caught.value, TranscriptStoreError)
    assert len(client.export_history()) == 1


def test_a_stream_is_given_up_at_a_tool(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Closed between the announcement of a tool and its run: the call is owed a result, and gets it."""
    server.answers += [dialect.stream("", CALLS), dialect.reply("Yes.")]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation)
        stream = client.stream_chat("Go")
        assert next(event for event in stream if isinstance(event, ToolCallStarted))
        stream.close()
        assert client.chat("Go on") == "Yes."
