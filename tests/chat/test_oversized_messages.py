"""Messages longer than a line of the record may be: single and joined results, sealed and redacted, and replies.

Incident: twelve results of a sealed conversation were each short enough, and together not. The last tool had run, its result was
lost, and every later turn of every later process ended in the same error.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Dialect, sse
from tests.chat.server import Server
from transcript_store import ConversationStore, generate_encryption_key
from transcript_store.chat import Tool, ToolCallEnded
from transcript_store.errors import IncompleteResponseError, InvalidMessageError

LIMIT = 100_000
UNRECORDED = "its result could not be recorded"
ONE_MESSAGE = [DIALECTS["claude"], DIALECTS["gemini"]]
"""Those that want all results of a reply in one message."""


def opened(folder: Path, **more: Any) -> ConversationStore:
    return ConversationStore(folder / "c", **{"max_line_bytes": LIMIT, **more})


def now(lengths: list[int]) -> Tool:
    """A tool whose results have these lengths, one call after the other."""
    left = iter(lengths)
    return Tool("now", "", {"type": "object"}, handler=lambda: "x" * next(left))


def lengthened(value: dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(json.dumps(value).replace("xx", "x[redacted:x]x"))
    return parsed


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("how", "lengths", "told_together", "told_alone"),
    [
        ("plain", [120_000], 1, 1),
        ("plain", [60_000, 1_000, 1_000], 0, 0),
        ("plain", [40_000, 40_000, 40_000], 1, 0),
        ("sealed", [7_400] * 12, 3, 0),
        ("sealed", [14_000] * 6, 1, 0),
        ("redacted", [12_000, 12_000], 1, 0),
        ("redacted", [40_000, 10], 1, 1),
    ],
)
def test_results_that_are_too_long(
    dialect: Dialect,
    server: Server,
    tmp_path: Path,
    how: str,
    lengths: list[int],
    told_together: int,
    told_alone: int,
) -> None:
    """Alone or together: the model is told of the longest, and neither this turn nor any later one ends in an error."""
    more: dict[str, Any] = {"sealed": {"encryption_key": generate_encryption_key()}, "redacted": {"redact": lengthened}}
    server.answers += [dialect.reply("", (("now", {}),) * len(lengths)), dialect.reply("I see."), dialect.reply("Yes.")]
    with opened(tmp_path, **more.get(how, {})) as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([now(lengths)])
        assert client.chat("Go") == "I see."
        assert dialect.messages(server.bodies[1]) == conversation.get_messages()[:-1]
    with opened(tmp_path, **more.get(how, {})) as conversation:
        assert connect(dialect, server, conversation).chat("Go on") == "Yes."
    told = server.requests[1].raw.decode().count(UNRECORDED)
    assert told == (told_together if dialect in ONE_MESSAGE else told_alone)
    assert "outcome is unknown" not in server.requests[1].raw.decode()


def test_the_caller_is_told_as_the_model_is(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """The event of a result that is not recorded has what the model gets instead."""
    server.answers += [dialect.stream("", (("now", {}), ("now", {}))), dialect.stream("I see.")]
    with opened(tmp_path) as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([now([10, 120_000])])
        short, long = [event for event in client.stream_chat("Go") if isinstance(event, ToolCallEnded)]
        assert (short.result, short.is_error) == ("x" * 10, False)
        assert UNRECORDED in long.result
        assert long.is_error
        assert long.result in json.dumps(conversation.get_messages()[-2])


def test_a_result_that_must_not_be_stored(
    dialect: Dialect, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``redact`` raises at it: the model is told, the operator too, and the turn goes on. The next result is on record."""

    def redact(value: dict[str, Any]) -> dict[str, Any]:
        if "x" * 50 in json.dumps(value):
            raise ValueError("x" * 50)
        return value

    server.answers += [dialect.reply("", (("now", {}), ("now", {}))), dialect.reply("I see.")]
    with opened(tmp_path, redact=redact) as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([now([50, 10])])
        assert client.chat("Go") == "I see."
    sent = server.requests[1].raw.decode()
    assert sent.count(UNRECORDED) == sent.count('"' + "x" * 10 + '"') == 1
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "transcript_store.chat"]
    assert "redact raised ValueError" in warning
    assert "x" * 50 not in warning


@pytest.mark.parametrize("dialect", ONE_MESSAGE, ids=lambda dialect: dialect.name)
def test_a_result_that_must_not_be_stored_takes_no_other_along(
    dialect: Dialect, server: Server, tmp_path: Path
) -> None:
    """It is the last of its reply, and short; the longer one before it was journaled, and is sent."""

    def redact(value: dict[str, Any]) -> dict[str, Any]:
        if "SECRET" in json.dumps(value):
            raise ValueError
        return value

    results = iter(["good " * 50, "SECRET"])
    server.answers += [dialect.reply("", (("now", {}), ("now", {}))), dialect.reply("I see.")]
    with opened(tmp_path, redact=redact) as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("now", "", {"type": "object"}, handler=lambda: next(results))])
        assert client.chat("Go") == "I see."
    sent = server.requests[1].raw.decode()
    assert (sent.count("good " * 50), sent.count(UNRECORDED)) == (1, 1)


@pytest.mark.parametrize("dialect", ONE_MESSAGE, ids=lambda dialect: dialect.name)
def test_a_store_that_is_opened_with_a_smaller_limit(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """Results on record that no message of this store can hold together: the longest are told, the conversation goes on."""
    lengths = iter([15_000, 15_000, 1_000, 15_000])

    def at_last() -> str:
        if (length := next(lengths, None)) is None:
            raise KeyboardInterrupt
        return "x" * length

    server.answers += [dialect.reply("", (("now", {}),) * 5), dialect.reply("Yes."), dialect.reply("Yes.")]
    with opened(tmp_path) as conversation:
        client = connect(dialect, server, conversation)
        client.set_tools([Tool("now", "", {"type": "object"}, handler=at_last)])
        with pytest.raises(KeyboardInterrupt):
            client.chat("Go")
    for _ in range(2):
        with opened(tmp_path, max_line_bytes=20_000) as conversation:
            assert connect(dialect, server, conversation).chat("Go on") == "Yes."
        sent = server.requests[-1].raw.decode()
        assert (sent.count(UNRECORDED), sent.count("x" * 1_000 + '"'), sent.count("outcome is unknown")) == (2, 2, 1)


def test_a_reply_that_is_too_long_is_kept_in_part(dialect: Dialect, server: Server, tmp_path: Path) -> None:
    """As much as there is room for, as text, and the conversation goes on."""
    server.answers += [dialect.reply("y\n" * 200_000), dialect.reply("Yes.")]
    with opened(tmp_path) as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(InvalidMessageError, match="limit for one line"):
            client.chat("Go")
        (record,) = conversation.get_records(last=1)
        assert record.extra is not None
        assert "y" in record.extra["incomplete"]["partial"]
        assert client.chat("Go on") == "Yes."


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("length", "kept"), [(40_000, (True, True)), (60_000, (False, True)), (95_000, (False, False))]
)
def test_what_came_of_a_long_stream_is_a_message(
    dialect: Dialect, server: Server, tmp_path: Path, length: int, kept: tuple[bool, bool]
) -> None:
    """The text that was shown can be sent again, as long as it fits itself; what else came of the reply gives way.

    Incident: the text stood twice in its record, as the message and in what had come. An answer of more than half a line was
    refused, and kept as a piece of text that no request carries.
    """
    text = "y" * length
    server.answers += [dialect.stream(text, stop=False), dialect.reply("Yes.")]
    with opened(tmp_path) as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(IncompleteResponseError) as caught:
            list(client.stream_chat("Go"))
        assert caught.value.text == text
        (record,) = conversation.get_records(last=1)
        assert record.extra is not None
        partial = record.extra["incomplete"]["partial"]
        assert (text in json.dumps(partial), bool(partial)) == kept
        assert client.chat("Go on") == "Yes."
        assert text in json.dumps(dialect.messages(server.bodies[1])[1])
        assert dialect.messages(server.bodies[1]) == conversation.get_messages()[:-1]


def test_what_came_beside_a_message_cannot_be_stored(server: Server, tmp_path: Path) -> None:
    """Half a surrogate pair at the end of thinking that was cut: the text before it is a message all the same."""
    dialect = DIALECTS["claude"]
    stream = dialect.stream("Well.", stop=False)
    half = {"type": "thinking", "thinking": "\ud800", "signature": ""}
    event = sse({"type": "content_block_start", "index": 2, "content_block": half}, "content_block_start")
    server.answers += [replace(stream, body=stream.body + event.encode()), dialect.reply("Yes.")]
    with opened(tmp_path) as conversation:
        client = connect(dialect, server, conversation)
        with pytest.raises(IncompleteResponseError):
            list(client.stream_chat("Go"))
        (record,) = conversation.get_records(last=1)
        assert "\\ud800" in (record.extra or {})["incomplete"]["partial"]
        assert "Well." in json.dumps(record.message)
        assert client.chat("Go on") == "Yes."
