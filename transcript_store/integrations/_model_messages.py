"""How are pydantic-ai's messages stored: their JSON, their order, and a run's changes of stored messages?

A run changes a few things of a message after it was stored: a dynamic system prompt gets today's value, a request that
is sent again gets a new time. Such a change stands in the ``extra`` of the next record, under ``pydantic-ai.now``: a
list of the message's index in the history and the members, or parts by their number, that it has now. So nothing is
written again, and the history is to the letter what the run has.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any, NamedTuple

import orjson
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)

from transcript_store.conversation import Record
from transcript_store.integrations._values import restored, restored_extra

NOW = "pydantic-ai.now"
WAITING = "pydantic-ai.waiting"
"""In the extra of an event: the calls that the run left for approval or results from outside."""

Change = dict[str, Any]


class RecordedHistory(NamedTuple):
    """The history in a transcript's records."""

    plain: list[Any]
    """The current messages as JSON."""
    records: list[Record]
    """The record of each."""
    waiting: dict[str, str]
    """The calls that wait, by their id: ``approval`` or ``result``."""


def history_in(records: Sequence[Record]) -> RecordedHistory:
    """Go through the records in their order: messages, retractions, and later changes."""
    plain: list[Any] = []
    there: list[Record] = []
    waiting: dict[str, str] = {}
    for record in records:
        if record.retracts:
            first, last = record.retracts
            kept = [n for n, each in enumerate(there) if not first <= each.seq <= last]
            plain, there = [plain[n] for n in kept], [there[n] for n in kept]
        extra = restored_extra(record.extra)
        for number, change in extra.get(NOW, ()):
            if number < len(plain):
                plain[number] = apply_change(plain[number], change)
        if record.message is not None:
            plain.append(restored(record.message))
            there.append(record)
            if plain[-1].get("kind") == "response":
                waiting = {}
        waiting = extra.get(WAITING, waiting)
    return RecordedHistory(plain, there, waiting)


# ---- JSON ----------------------------------------------------------------------------------------------------------


def message_json(message: ModelMessage) -> Any:
    """A message as JSON. ``metadata`` that JSON cannot carry, which no model gets, is left out with a warning that names its tool.

    Raises:
        TypeError: JSON cannot carry something else of it.
    """
    try:
        return _dumped(message)
    except Exception:
        without = replace(message, parts=[_without_metadata(message, part) for part in message.parts])
        if without.metadata is not None and not _can_be_dumped(replace(without, parts=[])):
            _warn(f"the metadata of a {message.kind}", without.metadata)
            without = replace(without, metadata=None)
        try:
            return _dumped(without)
        except Exception as error:
            raise TypeError(f"{_culprit(without)} cannot be stored as JSON: {error}") from error


def _dumped(message: ModelMessage) -> Any:
    return ModelMessagesTypeAdapter.dump_python([message], mode="json", warnings=False)[0]


def _can_be_dumped(message: ModelMessage) -> bool:
    try:
        _dumped(message)
    except Exception:
        return False
    return True


def _without_metadata(message: ModelMessage, part: Any) -> Any:
    metadata = getattr(part, "metadata", None)
    if metadata is None or _can_be_dumped(replace(message, metadata=None, parts=[part])):
        return part
    name = getattr(part, "tool_name", None)
    _warn(f"the metadata of tool {name!r}" if name else f"the metadata of a {part.part_kind}", metadata)
    return replace(part, metadata=None)


def _culprit(message: ModelMessage) -> str:
    for part in message.parts:
        if not _can_be_dumped(replace(message, metadata=None, parts=[part])):
            name = getattr(part, "tool_name", None)
            return f"what tool {name!r} gave" if name else f"a {part.part_kind}"
    return f"a {message.kind}"


def _warn(what: str, value: object) -> None:
    warnings.warn(
        f"{what} is not stored: JSON cannot carry it ({type(value).__name__}). Later runs do not have it.",
        UserWarning,
        stacklevel=2,
    )


# ---- what became different -----------------------------------------------------------------------------------------


def change_of(before: Any, now: Any) -> Change | None:
    """The change of a message with equal contents: times, usage or dynamic system prompts. None if the contents differ."""
    if before["kind"] != now["kind"] or len(before["parts"]) != len(now["parts"]):
        return None
    parts = {}
    for number, (part, other) in enumerate(zip(before["parts"], now["parts"], strict=True)):
        if part != other:
            if _comparable(part) != _comparable(other):
                return None
            parts[str(number)] = other
    members = {name: value for name, value in now.items() if name != "parts" and before.get(name) != value}
    gone = before.keys() - now.keys()
    return None if gone else {"members": members, "parts": parts}


def _comparable(part: Mapping[str, Any]) -> Any:
    if part["part_kind"] == "system-prompt" and part.get("dynamic_ref"):
        return part["part_kind"], part["dynamic_ref"]
    return {name: value for name, value in part.items() if name != "timestamp"}


def is_dynamic(message: ModelMessage) -> bool:
    """True if it has a system prompt that each run computes again."""
    return any(part.part_kind == "system-prompt" and part.dynamic_ref for part in message.parts)


def apply_change(message: Any, change: Change) -> Any:
    """The message with a change that ``change_of`` found."""
    parts = [change["parts"].get(str(number), part) for number, part in enumerate(message["parts"])]
    return {**message, **change["members"], "parts": parts}


# ---- what a request can carry --------------------------------------------------------------------------------------


def with_whole_characters(messages: Sequence[ModelMessage], plain: Sequence[Any]) -> list[ModelMessage]:
    """The messages, with U+FFFD instead of half a character (a lone surrogate, as in a file name that is not UTF-8).

    No request can carry one, so every run of the history would fail. A message without one is the same object.

    Args:
        messages: those of a history.
        plain: the JSON of each.
    """
    return [
        message if _is_utf8(each) else of_json([_with_whole_characters(each)])[0]
        for message, each in zip(messages, plain, strict=True)
    ]


def _is_utf8(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:  # or it is an integer beyond 64 bits, say
        return not _HALF_CHARACTER.search(json.dumps(value, ensure_ascii=False))
    return True


def _with_whole_characters(value: Any) -> Any:
    return json.loads(_HALF_CHARACTER.sub("\ufffd", json.dumps(value, ensure_ascii=False)))


_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


# ---- the order that providers ask for ------------------------------------------------------------------------------


def is_result(part: Any) -> bool:
    """True if the part is a tool's result, or the text that replaces it."""
    return part.part_kind == "tool-return" or (part.part_kind == "retry-prompt" and part.tool_name is not None)


def tool_calls_of(message: ModelMessage) -> list[ToolCallPart]:
    """The calls of the program's own tools. A provider's tools have their results in the reply itself."""
    return [part for part in message.parts if part.part_kind == "tool-call"]


def in_order(
    messages: Sequence[ModelMessage], instead: Callable[[ToolCallPart], ToolReturnPart], *, also_last: bool
) -> list[ModelMessage]:
    """Each call's result directly after its call, and no two calls of a reply with one id, as providers require.

    A message that needs no change is the same object.

    Args:
        messages: in the order in which they were stored; two runs may have stored theirs by turns.
        instead: the text for the model about a call without a result.
        also_last: whether that goes for the last reply too, whose calls may still be waiting.
    """
    results = _results_by_reply(messages)
    ids = {call.tool_call_id for each in messages for call in tool_calls_of(each)}
    last_reply = max((n for n, each in enumerate(messages) if isinstance(each, ModelResponse)), default=-1)
    ordered: list[ModelMessage] = []
    due: list[Any] = []
    """The results that belong right here."""
    for number, message in enumerate(messages):
        if isinstance(message, ModelRequest):
            found = [part for part in message.parts if is_result(part)]
            if {*map(id, found)} == {*map(id, due)}:
                ordered.append(message)
            elif parts := [*due, *(part for part in message.parts if not is_result(part))]:
                ordered.append(replace(message, parts=parts))
            due = []
            continue
        if due:
            ordered.append(_request_of(due, ordered[-1]))
        parted = _with_ids_of_their_own(message, ids)
        ordered.append(parted)
        due = []
        for call, sent, result in zip(tool_calls_of(message), tool_calls_of(parted), results[number], strict=True):
            if result is None and (also_last or number != last_reply):
                result = instead(call)  # noqa: PLW2901
            if result is not None:
                is_same = result.tool_call_id == sent.tool_call_id
                due.append(result if is_same else replace(result, tool_call_id=sent.tool_call_id))
    if due:
        ordered.append(_request_of(due, ordered[-1]))
    return ordered


def _with_ids_of_their_own(reply: ModelResponse, taken: set[str]) -> ModelResponse:
    """The reply, in which a call with the id of an earlier one has an id that is not ``taken``.

    The framework ends a run with such a reply, and providers refuse every history that contains it.
    """
    calls = tool_calls_of(reply)
    if len({call.tool_call_id for call in calls}) == len(calls):
        return reply
    parts: list[Any] = []
    seen: set[str] = set()
    for part in reply.parts:
        if part.part_kind == "tool-call" and part.tool_call_id in seen:
            new = next(name for n in count(2) if (name := f"{part.tool_call_id}_{n}") not in taken)
            part = replace(part, tool_call_id=new)  # noqa: PLW2901
            taken.add(new)
        if part.part_kind == "tool-call":
            seen.add(part.tool_call_id)
        parts.append(part)
    return replace(reply, parts=parts)


def _request_of(results: Sequence[Any], reply: ModelMessage) -> ModelRequest:
    return ModelRequest(
        parts=list(results), timestamp=reply.timestamp, run_id=reply.run_id, conversation_id=reply.conversation_id
    )


def _results_by_reply(messages: Sequence[ModelMessage]) -> dict[int, list[Any]]:
    """For each reply, by its number, the result of each of its calls; None for a call that has none. A result belongs to one call."""
    results: dict[int, list[Any]] = {}
    waiting: dict[str, deque[tuple[int, int]]] = {}
    for number, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            calls = tool_calls_of(message)
            results[number] = [None] * len(calls)
            for position, call in enumerate(calls):
                waiting.setdefault(call.tool_call_id, deque()).append((number, position))
        else:
            for part in filter(is_result, message.parts):
                if places := waiting.get(part.tool_call_id):
                    reply, position = places.popleft()
                    results[reply][position] = part
    return results


# ---- a history that a run is given ---------------------------------------------------------------------------------


def new_in(
    given: Sequence[ModelMessage], known: Sequence[ModelMessage], *, is_asked: bool = False
) -> list[ModelMessage] | None:
    """The messages of a given history after the stored ones; None if it does not start with those.

    It does if it has the same questions and shows nothing of each reply beyond the stored one. Times, usage,
    thoughts and system prompts may differ, and messages may be joined or parted. A reply may be shown in part, and a
    question without a complete reply may be missing: the page of an AG-UI or Vercel client sends each time what it got
    until it was stopped. But if nothing new is asked, by the history or beside it (``is_asked``), and the last reply
    that it shows has more, the caller wants to go on from before that.
    """
    if not known:
        return [*given]
    turns = _turns(known)
    turn = turns.popleft() if turns and turns[0].question is None else _StoredTurn(None, deque(), False)
    asked: _Said | None = None
    """The last question on the page, and its position."""
    place = 0, 0
    for number, message in enumerate(given):
        for position, part in enumerate(message.parts):
            if (gist := _gist(part)) is None:
                continue
            is_there = turn.shows(gist)
            while (
                not is_there
                and gist[0] != _QUESTION
                and (passed := _until_it_continues(turn, asked, turns)) is not None
            ):
                turn = [turns.popleft() for _ in range(passed + 1)][-1]
                is_there = turn.shows(gist)
            if is_there:
                continue
            if gist[0] == _QUESTION:
                while turns and turns[0].question != gist and turns[0].may_be_missing:
                    turns.popleft()
                if not turns:
                    return _from(given, number, position)
                if turns[0].question != gist:
                    return None
                turn, asked, place = turns.popleft(), gist, (number, position)
            elif turns or (turn.replies and gist[0] != _RESULT):
                return None
            else:
                return _from(given, number, position)
    has_rest = any(each.is_answered and any(one[0] != _RESULT for one in each.replies) for each in (turn, *turns))
    if (has_rest and not is_asked) or not all(each.may_be_missing for each in turns):
        return None
    # A question at the end is asked now. Questions after the equal stored one came later, and the page no longer shows
    # them.
    return _from(given, *place) if turns and asks_something(given[-1]) else []


_Said = tuple[object, ...]
_QUESTION, _RESULT = "user-prompt", "result"


class _StoredTurn(NamedTuple):
    question: _Said | None
    """None before the first question."""
    replies: deque[_Said]
    """The rest that a page may still show."""
    is_answered: bool
    """True if it ends with a complete reply."""
    is_beside_results: bool = False
    """True if the question comes with results: a tool may have said it, and then no page shows it."""

    @property
    def may_be_missing(self) -> bool:
        """True if a page may show nothing of it."""
        return self.is_beside_results or not self.is_answered

    def shows(self, gist: _Said) -> bool:
        """True if this is in the rest, or is the beginning of a text there; the text before it is no longer in the rest.

        Results are an exception: tools that ran side by side end in any order.
        """
        for number, each in enumerate(self.replies):
            if gist == each or (gist[0] == each[0] == "text" and str(each[1]).startswith(str(gist[1]))):
                passed = [*islice(self.replies, number)]
                for _ in range(number + 1):
                    self.replies.popleft()
                self.replies.extendleft(reversed([one for one in passed if _RESULT in {gist[0], one[0]}]))
                return True
        return False


def _until_it_continues(turn: _StoredTurn, asked: _Said | None, turns: Sequence[_StoredTurn]) -> int | None:
    """How many turns precede one that a page may take for a part of this: the same question again, or one that a tool
    said.
    """
    for number, other in enumerate(turns):
        if other.is_beside_results or (other.question == asked and not turn.is_answered):
            return number
        if not other.may_be_missing:
            break
    return None


def _turns(messages: Sequence[ModelMessage]) -> deque[_StoredTurn]:
    turns: deque[_StoredTurn] = deque()
    for message in messages:
        has_results = any(is_result(part) for part in message.parts)
        for part in message.parts:
            if (gist := _gist(part)) is None:
                continue
            if gist[0] == _QUESTION:
                turns.append(_StoredTurn(gist, deque(), False, has_results))
            else:
                if not turns:
                    turns.append(_StoredTurn(None, deque(), False))
                turns[-1].replies.append(gist)
        if turns:
            is_whole = isinstance(message, ModelResponse) and getattr(message, "state", None) != "interrupted"
            turns[-1] = turns[-1]._replace(is_answered=is_whole and not tool_calls_of(message))
    return turns


def _from(given: Sequence[ModelMessage], number: int, position: int) -> list[ModelMessage]:
    """The messages from this part on. What says nothing in front of it, such as a thought, belongs to it if nothing known does."""
    message = given[number]
    if any(_gist(part) is not None for part in message.parts[:position]):
        message = replace(message, parts=message.parts[position:])
    return [message, *given[number + 1 :]]


def _gist(part: Any) -> _Said | None:
    kind = part.part_kind
    if kind == _QUESTION:
        content = [part.content] if isinstance(part.content, str) else part.content
        return kind, *map(_said_by, content)
    if kind == "speech":  # of a realtime session
        return (_QUESTION if part.speaker == "user" else "text", part.transcript) if part.transcript else None
    if kind == "text":
        return (kind, part.content) if part.content else None
    if kind == "tool-call":
        return kind, part.tool_name, part.tool_call_id
    if is_result(part):
        return _RESULT, part.tool_call_id
    return None


def _said_by(content: Any) -> object:
    """A text, the bytes of an image, or an address. What else is beside them (a name, a guessed type) differs from page to page."""
    if isinstance(content, str):
        return content
    gist = (getattr(content, name, None) for name in ("content", "data", "url", "file_id"))
    return next((each for each in gist if each is not None), None) or str(content)


def asks_something(message: ModelMessage) -> bool:
    """True if it ends with a question of the user."""
    return bool(message.parts) and message.parts[-1].part_kind == _QUESTION


def answers_a_call(messages: Sequence[ModelMessage]) -> bool:
    """True if they begin with a result."""
    return any(is_result(part) for message in messages[:1] for part in message.parts)


def asks(message: ModelMessage | None, prompt: object) -> bool:
    """True if the message asks exactly this, and nothing else."""
    if not isinstance(message, ModelRequest):
        return False
    kinds: set[str] = {part.part_kind for part in message.parts}
    questions = [part.content for part in message.parts if part.part_kind == "user-prompt"]
    return kinds <= {"user-prompt", "system-prompt"} and questions == [prompt]


def of_json(plain: Sequence[Any]) -> list[ModelMessage]:
    """The messages that these are the JSON of."""
    return list(ModelMessagesTypeAdapter.validate_python(plain))


def extra_of(changes: Sequence[tuple[int, Change]]) -> dict[str, Any]:
    """The extra of the record after these changes."""
    return {NOW: json.loads(json.dumps(changes))}
