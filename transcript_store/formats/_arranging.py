"""A message in any provider's form ⇄ neutral turns. Blocks that the other form cannot hold are counted as losses.

Each provider refuses a request that breaks its rules, so messages are arranged by them (each rule is from a real refusal):

* the result of a call follows it directly. A result elsewhere is moved there; one without a call is left out; a missing one is
  replaced by a text that reports this;
* thinking goes to the provider alone who thought it;
* where roles alternate, the turns of one speaker are one message, and the user starts;
* the id of a call is unique, and of letters, digits, ``_`` and ``-``.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from transcript_store.formats._blocks import Block, Call, Media, Other, Result, Text, Thinking
from transcript_store.formats._forms import ChatCompletions, Claude, Gemini, PydanticAi, Responses, is_item
from transcript_store.formats._neutral import Form, Losses, NeutralMessage, Role, text_in_file
from transcript_store.messages import provider_family

if TYPE_CHECKING:
    from transcript_store.formats._plan import Loss


FORMS: dict[str, Form] = {form.name: form for form in (Claude(), ChatCompletions(), Responses(), Gemini())}
"""``claude``, ``openai`` (chat completions), ``openai-responses``, ``gemini``."""

_PYDANTIC_AI = PydanticAi()
_OF_FRAMEWORKS = {"openai-agents": "openai-responses", "claude-agent-sdk": "claude"}
"""The forms of the items that ``transcript_store.integrations`` stores. pydantic-ai has another form, which is only read."""

MISSING = "The result of this call is not in this conversation."
OPENING = "(This conversation begins with a reply; the message before it is not in it.)"
LOST_THINKING = "thinking was left out: another provider thought it, or its signature is missing"
LOST_MEDIA = "a picture, a sound or a file was left out: the other form has no place for it"
_ID = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Arranged:
    """Turns by the rules of one provider."""

    turns: tuple[NeutralMessage, ...]
    origins: tuple[tuple[int, ...], ...]
    """For each turn the indexes of its source turns; empty for one that was added here."""
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class ArrangedMessages:
    """Messages in a provider's form."""

    messages: tuple[dict[str, Any], ...]
    origins: tuple[tuple[int, ...], ...]
    """For each message the indexes of its source turns; empty for one that was added here."""
    losses: tuple[Loss, ...]


def to_neutral(messages: Iterable[dict[str, Any]], provider: str) -> tuple[NeutralMessage, ...]:
    """One turn per message, in order. A message of an unknown form is read as chat completions, which most servers use.

    ``openai`` covers both of OpenAI's forms: each message shows which one it has.
    """
    family = form_family(provider)
    if family == _PYDANTIC_AI.name:
        return tuple(map(_PYDANTIC_AI.turn_of, messages))
    return tuple(_form(message, family).turn_of(message) for message in messages)


def form_family(provider: str) -> str:
    """The form of a provider's messages, or of a framework that :mod:`transcript_store.integrations` stores."""
    return _OF_FRAMEWORKS.get(provider, provider_family(provider))


def is_form_known(provider: str) -> bool:
    """True if the name tells the form. Of any other provider a message has to show it by itself."""
    return form_family(provider) in {*FORMS, _PYDANTIC_AI.name}


def messages_of(
    turns: Sequence[NeutralMessage], provider: str, *, thinking_as_text: bool = False, join: bool = True
) -> ArrangedMessages:
    """The turns as messages that this provider accepts; ``join`` as in :func:`arranged_for`.

    Raises:
        KeyError: no form has this name; ``FORMS`` lists them.
    """
    form = FORMS[provider_family(provider)]
    arranged = arranged_for(turns, form, thinking_as_text=thinking_as_text, join=join)
    found: list[dict[str, Any]] = []
    origins: list[tuple[int, ...]] = []
    for turn, origin in zip(arranged.turns, arranged.origins, strict=True):
        # The provider gets its own object back, with members that this library does not know.
        own = turn.own if turn.provider == form.name else None
        made = [own] if own is not None else form.messages_of(turn)
        found += made
        origins += [origin] * len(made)
    return ArrangedMessages(tuple(found), tuple(origins), arranged.losses)


def as_said(turn: NeutralMessage, form: Form) -> list[dict[str, Any]]:
    """One turn in the form, with nothing added; empty if the form holds none of its blocks."""
    said = NeutralMessage(turn.role, tuple(block for block in turn.blocks if form.holds(block, turn.role)))
    return list(form.messages_of(said)) if said.blocks else []


def arranged_for(
    turns: Sequence[NeutralMessage], form: Form, *, thinking_as_text: bool = False, join: bool = True
) -> Arranged:
    """The turns by the rules of a form, with the blocks that it holds. A turn that needs no change stays the same object.

    Without ``join`` a speaker may have several turns in a row, as in the files of programs that join them on sending.
    """
    arrangement = _Arrangement(form, turns, thinking_as_text=thinking_as_text, join=join)
    for place, turn in enumerate(turns):
        arrangement.add(place, turn)
    arrangement.settle()
    drafts = arrangement.drafts
    found = tuple(draft.turn(turns, form) for draft in drafts)
    return Arranged(found, tuple(tuple(draft.origins) for draft in drafts), arrangement.losses.found())


@dataclass(slots=True)
class _Draft:
    role: Role
    blocks: list[Block] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)

    def turn(self, given: Sequence[NeutralMessage], form: Form) -> NeutralMessage:
        if len(self.origins) == 1:
            turn = given[self.origins[0]]
            if turn.role == self.role and len(turn.blocks) == len(self.blocks):
                pairs = zip(turn.blocks, self.blocks, strict=True)
                if all(one is other or _says(one, other, form) for one, other in pairs):
                    return turn
        return NeutralMessage(self.role, tuple(self.blocks))


class _Arrangement:
    def __init__(self, form: Form, turns: Sequence[NeutralMessage], *, thinking_as_text: bool, join: bool) -> None:
        self.drafts: list[_Draft] = []
        self.losses = Losses()
        self._form = form
        self._thinking_as_text = thinking_as_text
        self._join = join
        self._answers = _answers(turns, self.losses)
        self._taken: set[str] = set()
        self._owed: list[tuple[Call, tuple[int, Result] | None]] = []

    def add(self, place: int, turn: NeutralMessage) -> None:
        role = turn.role
        if role == "system" and self._form.alternates:
            self.losses.note("system", "a system message in the conversation was handed on as the user's")
            role = "user"
        if role != "assistant" and any(isinstance(block, Call) for block in turn.blocks):
            self.losses.note("role", "a message that calls a tool was handed on as the model's, whatever its role was")
            role = "assistant"
        if role != "assistant":
            self.settle()
        goes_on = bool(self._owed)  # a reply is not over while its calls have no results
        blocks: list[Block] = []
        for index, block in enumerate(turn.blocks):
            if isinstance(block, Call):
                call = self._with_id(block, place)
                blocks.append(call)
                self._owed.append((call, self._answers.get((place, index))))
            elif not isinstance(block, Result):
                blocks += self._held(block, role)
        if role == "assistant" and blocks and not self.drafts and self._form.alternates:
            self.losses.note("opening", "the first message is a reply: a message of the user was put before it")
            self._say("user", None, (Text(OPENING),))
        if blocks:
            self._say(role, place, blocks, goes_on=goes_on)

    def settle(self) -> None:
        """Give each call that was made its result."""
        for number, (call, answer) in enumerate(self._owed):
            if answer is None:
                self.losses.note("no-result", "a call without a result got one that reports this")
                made_up = Result(call.id, call.name, (Text(MISSING),), failed=True)
                self._say("user", None, (made_up,), goes_on=number > 0)
                continue
            place, result = answer
            own = result.own if result.id in ("", call.id) else None
            self._count_lost(result)
            self._say("user", place, (replace(result, id=call.id, name=call.name, own=own),))
        self._owed.clear()

    def _say(self, role: Role, place: int | None, blocks: Iterable[Block], *, goes_on: bool = False) -> None:
        last = self.drafts[-1] if self.drafts else None
        joins = goes_on or (self._join and (self._form.alternates or role == "assistant"))
        if last is None or last.role != role or not (joins or (place is not None and place in last.origins)):
            last = _Draft(role)
            self.drafts.append(last)
        last.blocks += blocks
        if place is not None and place not in last.origins:
            last.origins.append(place)

    def _with_id(self, call: Call, place: int) -> Call:
        given, number = call.id, 0
        while not _ID.fullmatch(given) or len(given) > self._form.id_length or given in self._taken:
            text = f"{call.id}/{place}/{number}".encode(errors="replace")
            given, number = f"call_{hashlib.sha256(text).hexdigest()[:24]}", number + 1
        self._taken.add(given)
        if given == call.id:
            return call
        # A provider that gave no id gets its own object back. An object with the old id would not fit its result.
        return replace(call, id=given, own=None if call.id else call.own)

    def _held(self, block: Block, role: Role) -> Iterator[Block]:
        if isinstance(block, Text) and not block.text.strip():
            return  # Claude refuses a request with an empty text
        if self._form.holds(block, role):
            yield block
        elif isinstance(block, Thinking) and block.text.strip() and self._thinking_as_text:
            yield Text(f"<thinking>\n{block.text}\n</thinking>")
        elif isinstance(block, Thinking):
            self.losses.note("thinking", LOST_THINKING)
        elif isinstance(block, Media) and (said := text_in_file(block)) is not None:
            yield said
        elif isinstance(block, Media):
            self.losses.note("media", LOST_MEDIA)
        elif isinstance(block, Other):
            self.losses.note("own", "a part that only its own provider understands was left out")

    def _count_lost(self, result: Result) -> None:
        if result.provider == self._form.name and result.own is not None:
            return
        if result.failed and not self._form.marks_failures:
            self.losses.note("failed", "a call failed: only the text of its result says so there")
        for media in result.media:
            if not self._form.holds(media, "user"):
                self.losses.note("media", LOST_MEDIA)


def _says(given: Block, arranged: Block, form: Form) -> bool:
    """True if two blocks are one and the same object to their provider."""
    return given.own is not None and given.own is arranged.own and given.provider == form.name


def _answers(turns: Sequence[NeutralMessage], losses: Losses) -> dict[tuple[int, int], tuple[int, Result]]:
    """The result of each call, and the result's turn, by the call's place (turn, block).

    A result belongs to the first open call with its id; without an id, with its name. Only calls of the newest reply are open.
    """
    answers: dict[tuple[int, int], tuple[int, Result]] = {}
    waiting: dict[tuple[str, str], deque[tuple[int, tuple[int, int]]]] = defaultdict(deque)
    spoken = 0  # the number of turns of other speakers than the assistant
    for place, turn in enumerate(turns):
        spoken += turn.role != "assistant"
        for index, block in enumerate(turn.blocks):
            if isinstance(block, Call):
                for key in (("id", block.id), ("name", block.name)):
                    while waiting[key] and waiting[key][0][0] < spoken:
                        waiting[key].popleft()
                    waiting[key].append((spoken, (place, index)))
            elif isinstance(block, Result):
                calls = waiting["id", block.id] if block.id else waiting["name", block.name]
                while calls and calls[0][1] in answers:
                    calls.popleft()
                if calls:
                    answers[calls.popleft()[1]] = (place, block)
                else:
                    losses.note("no-call", "a result that no call asked for was left out")
    return answers


def _form(message: dict[str, Any], family: str) -> Form:
    if family == "openai" and (message.get("type") == "message" or is_item(message)):
        return FORMS["openai-responses"]
    return FORMS.get(family, FORMS["openai"])
