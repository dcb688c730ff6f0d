"""Which tool call has its result: every provider refuses a request in which one stands without the other.

Two questions, both answered by functions of messages alone. What may a *request* carry: :func:`paired`. What does the *record*
owe before it may go on: :func:`owed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from transcript_store.chat._provider import JSON, Message, ToolCall, ToolResult, Wire

INTERRUPTED = "The tool was interrupted before its result was recorded. Its outcome is unknown: it may have run, in part or whole."
NEVER_RUN = "The tool was not run: the reply that called it was cut short."
LEFT_OUT = "The result of this call is not in this conversation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """What a conversation that ends behind tool calls needs before the next message.

    ``messages`` are native results messages; ``interrupted`` are the ids (or names) of the calls whose result nobody knows.
    """

    messages: tuple[Message, ...] = ()
    interrupted: tuple[str, ...] = ()


def owed(wire: Wire, tail: Sequence[Message], journaled: Mapping[int, JSON], *, cut_short: bool) -> Owed:
    """The results that are still owed to the last reply.

    ``tail`` is the last reply and the messages behind it; ``journaled`` are the results of its calls that are on record
    without a message yet, by the place of the call; ``cut_short`` says that the reply was incomplete, so that none ran.
    """
    if not tail or not wire.is_reply(tail[0]) or any(map(wire.without_results, tail[1:])):
        return (
            Owed()
        )  # nobody said anything yet, or the conversation went on all the same: that is for paired() to mend
    calls = wire.calls(tail[0])
    given = _matched(calls, [result for message in tail[1:] for result in wire.results(message)])
    missing = [place for place in range(len(calls)) if place not in given]
    if not missing:
        return Owed()
    unknown = [place for place in missing if place not in journaled]
    text = NEVER_RUN if cut_short else INTERRUPTED
    results = [
        journaled[place] if place in journaled else wire.result(calls[place], text, is_error=True) for place in missing
    ]
    return Owed(
        messages=tuple(results) if wire.results_are_messages else (wire.results_message(results),),
        interrupted=tuple(calls[place].id or calls[place].name for place in unknown),
    )


def opened(wire: Wire, chosen: Sequence[Message], record: Sequence[Message]) -> list[Message]:
    """What was chosen of the record, from the first message that may open a request.

    Claude and Gemini refuse a request that begins with a reply. In a long turn nothing that was chosen may open one (the
    last n messages are calls and results): then the last message on record that may stands in front of it; and results
    that were chosen without a reply, which nobody could send, are taken together with the reply that they belong to.
    """
    messages = _from_the_opening(wire, chosen)
    if not messages and not any(map(wire.is_reply, chosen)):
        replies = [place for place, message in enumerate(record) if wire.is_reply(message)]
        chosen = record[replies[-1] :] if replies else record
        messages = _from_the_opening(wire, chosen)
    if messages:
        return messages
    openings = [message for message in record if wire.may_open(message)]
    return [*openings[-1:], *chosen]


def _from_the_opening(wire: Wire, messages: Sequence[Message]) -> list[Message]:
    return list(dropwhile(lambda message: not wire.may_open(message), messages))


def paired(wire: Wire, messages: Sequence[Message]) -> list[Message]:
    """The messages as a request may carry them: each call has its result directly behind it, and no result stands alone.

    What is in order stays the very same object. Otherwise the results that are there are moved to their call, missing
    ones are made up and say so, and results without a call are left out.
    """
    out: list[Message] = []
    at = 0
    while at < len(messages):
        end = at + 1
        while end < len(messages) and not wire.is_reply(messages[end]):
            end += 1
        out += _paired_section(wire, messages[at:end])
        at = end
    return out


def _paired_section(wire: Wire, section: Sequence[Message]) -> Sequence[Message]:
    """The same for a reply and the messages up to the next one, or for the messages before the first reply."""
    calls = wire.calls(section[0]) if wire.is_reply(section[0]) else []
    found = [(place, result) for place, message in enumerate(section) for result in wire.results(message)]
    if not calls and not found:
        return section
    results = [result for _, result in found]
    given = _matched(calls, results)
    last = len(calls) if wire.results_are_messages else 1
    in_place = all(1 <= place <= last for place, _ in found)
    if in_place and len(given) == len(calls) == len(results):
        return section
    rest = [message for message in map(wire.without_results, section) if message is not None]
    if not calls:
        return rest
    natives = [
        given[place].native if place in given else wire.result(call, LEFT_OUT, is_error=True)
        for place, call in enumerate(calls)
    ]
    return [rest[0], *(natives if wire.results_are_messages else [wire.results_message(natives)]), *rest[1:]]


def _matched(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> dict[int, ToolResult]:
    """Which result belongs to which call: by id; by name and order where either has none; by order where both have neither."""
    given: dict[int, ToolResult] = {}
    for result in results:
        for place, call in enumerate(calls):
            if place not in given and _belongs(result, call):
                given[place] = result
                break
    return given


def _belongs(result: ToolResult, call: ToolCall) -> bool:
    if result.id is not None and call.id is not None:
        return result.id == call.id
    if result.name is None:
        return result.id is None and call.id is None
    return result.name is not None and result.name == call.name
