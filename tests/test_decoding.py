"""Lines are decoded a block at a time where that is certain to come to the same as one after the other (P10)."""

from __future__ import annotations

import json

import pytest

from tests.kit.cases import for_each
from tests.kit.meanwhile import CHAT, SAID, TRANSCRIPT, a_conversation, messages
from transcript_store import ConversationStore, CorruptTranscriptError
from transcript_store._log.record import close_line
from transcript_store.testing import SimulatedFileSystem


def forged(*bodies: str) -> SimulatedFileSystem:
    """A transcript whose lines verify, written by somebody who knows how, with these bodies behind what was said."""
    disk = a_conversation()
    data = disk.tree()[TRANSCRIPT]
    assert data is not None
    head = data[-35:-3]
    for body in bodies:
        line, head = close_line(head, body.encode())
        data += line
    disk.write_file(TRANSCRIPT, data)
    return disk


def body(seq: int, rest: str) -> str:
    return f'{{"seq":{seq},"at":"2099-01-01T00:00:00.000000Z",{rest}'


def test_events_are_passed_over() -> None:
    disk = forged(body(4, '"extra":{"event":1}'), body(5, '"message":{"role":"user","content":"and then"}'))
    assert messages(disk) == [*SAID, {"role": "user", "content": "and then"}]


@for_each(
    "bodies",
    [
        [body(4, '"message":"a text"')],
        [body(4, '"message":[1]')],
        [body(4, '"message":{"a":1')],
        # Each is no JSON. Together, with a comma between them, they are one record.
        [body(4, '"message":{"a":[{"b":1'), body(5, '"x":1}]}')],
        # And here they are three values on three lines, of which one is no record.
        [body(4, '"message":{}},[{"z":1'), body(5, '"x":1}],{"m":[{"z":1'), body(6, '"x":1}]')],
    ],
)
def test_what_verifies_and_is_no_record_is_refused_with_its_line(bodies: list[str]) -> None:
    disk = forged(*bodies)
    with ConversationStore(CHAT, file_system=disk, read_only=True) as store:
        store.load()
        with pytest.raises(CorruptTranscriptError) as refused:
            store.get_messages()
        assert (refused.value.kind, refused.value.line_number) == ("foreign", 5)


@pytest.mark.parametrize("deep", [1, 199])
def test_what_is_nested_as_deep_as_it_may_be_comes_back(deep: int) -> None:
    """The array around the lines is one level more."""
    disk = SimulatedFileSystem()
    message = {"role": "user", "content": json.loads("[" * deep + "]" * deep)}
    with ConversationStore(CHAT, file_system=disk) as store:
        store.initialize(messages=[message, *SAID])
        assert store.get_messages() == [message, *SAID]
