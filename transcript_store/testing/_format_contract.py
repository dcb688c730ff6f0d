"""The contract of a format's reader and writer, as numbered checks. The docstring of a check is the rule that an error prints."""

from __future__ import annotations

import json
import random
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.errors import TranscriptStoreError
from transcript_store.formats import (
    PlannedRecord,
    SessionPlan,
    SessionReader,
    SessionWriter,
    SourceHead,
    head_of,
    original_lines,
)
from transcript_store.messages import Part, encode_message, parts_of, role_of
from transcript_store.testing._format_samples import MemorySource, MemoryTables, Rows, mutated, wrong_file, wrong_tables

__all__ = ["check_format"]


# ---- format case ----
#
# What the contract of formats works on: a reader and one sample, and what must be true of every plan.

_MAX_BYTES = 64 << 20


@dataclass
class Case:
    """A reader, and one sample of what it reads."""

    reader: SessionReader
    sample: bytes | Rows
    writer: SessionWriter | None
    seeds: int
    where: str = ""
    """The mutation of the sample."""

    def read(self, sample: bytes | Rows, name: str = "a user's source") -> list[SessionPlan]:
        if isinstance(sample, bytes):
            return list(self.reader.plans(MemorySource(sample, name)))
        return list(self.reader.plans(MemoryTables(sample, name)))

    def read_anything(self, sample: bytes | Rows) -> list[SessionPlan]:
        """The result of reading a damaged source. An error that we raise on purpose counts too."""
        try:
            self.reader.recognizes(sample_head(sample))
            return self.read(sample)
        except TranscriptStoreError:
            return []

    def wholes(self, sample: bytes | Rows) -> list[SessionPlan]:
        return [plan for plan in self.read(sample) if not plan.is_part]


def sample_head(sample: bytes | Rows) -> SourceHead:
    """How a sample begins."""
    if isinstance(sample, bytes):
        return head_of(MemorySource(sample))
    tables = MemoryTables(sample)
    return SourceHead(tables.name, b"SQLite format 3\0", (), {name: tables.columns(name) for name in sample})


def planned_entries(plan: SessionPlan, generation: int | None = None) -> list[PlannedRecord]:
    """Its entries, of one generation or of all."""
    chosen = plan.generations if generation is None else (plan.generations[generation],)
    return [entry for one in chosen for entry in one()]


def original_of(plan: SessionPlan) -> bytes:
    """The bytes of the session's lines, from what its entries keep, and of the line that is still being written."""
    kept = [
        (packed, entry.message)
        for entry in planned_entries(plan)
        for packed in entry.extra.get("source", {}).get("lines", [])
    ]
    return b"".join(original_lines(kept)) + plan.tail


def check_accounts(plan: SessionPlan) -> None:
    """True if each line of a session ends in a message, an event or a finding (F6)."""
    named = {number for entry in planned_entries(plan) for number in entry.lines}
    reported = {finding.line for finding in plan.findings if finding.line is not None}
    if plan.is_part:
        assert len(named) == plan.lines, f"the part has {plan.lines} lines, and its entries name {len(named)}"
        return
    lost = sorted(set(range(1, plan.lines + 1)) - named - reported)
    assert not lost, f"line {lost[0]} of {plan.lines} is in no message, no event and no finding"
    beyond = sorted(named - set(range(1, plan.lines + 1)))
    assert not beyond, f"an entry names line {beyond[:1]}, and there are {plan.lines}"


def check_storable(plan: SessionPlan) -> None:
    """True if the plan can be stored."""
    for entry in planned_entries(plan):
        encode_message(entry.extra, "extra", _MAX_BYTES)
        if entry.message is not None:
            encode_message(entry.message, "message", _MAX_BYTES)
        assert entry.at is None or isinstance(entry.at, str), f"a time is {entry.at!r}"
    assert all(isinstance(text, str) for text in plan.labels.values()), f"labels are {dict(plan.labels)!r}"


# ---- format said ----
#
# The content of a conversation in a neutral form: speakers and texts in order, and what another conversation lacks of it.
#
# Forms differ in what a message is: one has several texts where another has one text of several lines, a result is a message or a part,
# its text a text or a member of an object. So a conversation is a stream of lines here, and an item some lines of it that stand together.

_SIDES = {"assistant": "the model", "model": "the model", "system": "the system", "developer": "the system"}
_NAMED = re.compile(r"\w+(?: (?!\()(.*?))?(?: \((.*)\))?", re.DOTALL)
"""The title of a call or a result: its name and the call's id, each if there is one."""


class Item(NamedTuple):
    """A text, a call or a result, as lines that name their side and kind: ``("the user", "says", "hello")``."""

    kind: Literal["text", "call", "result"]
    lines: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        side, does, first = self.lines[0]
        rest = " ".join(line for _, _, line in self.lines[1:])
        return f"{side} {does} {f'{first} {rest}'.strip()!r:.80}"


class _OpenCall(NamedTuple):
    names: tuple[str, str]
    """The id and the name: by the first that is there, the result says whose it is."""
    item: Item
    results: list[Item]


def items_of(messages: Iterable[dict[str, Any]]) -> list[Item]:
    """The texts, calls and results, in order. A reply's texts come before its calls, and a result after its call.

    Some forms have no other order, and a result from elsewhere is silently moved there.
    """
    found: list[Item | _OpenCall] = []
    open_calls: list[_OpenCall] = []
    begins = 0
    for side, part in _parts(messages):
        if side != "the model":
            begins = len(found)
        if part.kind == "text" and (lines := _text_lines(part.text)):
            at = next((at for at in range(begins, len(found)) if isinstance(found[at], _OpenCall)), len(found))
            found.insert(at, Item("text", tuple((side, "says", line) for line in lines)))
        elif part.kind == "call":
            name, known_as = _named(part)
            item = Item("call", ((side, "calls", name), *((side, "calls with", line) for line in _leaves(part.text))))
            call = _OpenCall((known_as, name), item, [])
            found.append(call)
            open_calls.append(call)
        elif part.kind == "result":
            name, known_as = _named(part)
            item = Item("result", ((side, "answers", ""), *((side, "answers", line) for line in _leaves(part.text))))
            whose = [call for call in open_calls if (known_as in call.names if known_as else name == call.names[1])]
            if whose:
                whose[0].results.append(item)
                open_calls.remove(whose[0])
            else:
                found.append(item)
    return [item for one in found for item in ([one.item, *one.results] if isinstance(one, _OpenCall) else [one])]


def missing_of(said: Sequence[Item], found: Sequence[Item], most: int) -> list[Item]:
    """The fewest items of ``said`` without which the others stand in ``found`` in their order; no more than ``most`` and one."""
    stream = [line for item in found for line in item.lines]
    places: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for place, line in enumerate(stream):
        places[line].append(place)

    def behind(lines: tuple[tuple[str, str, str], ...], after: int) -> int | None:
        """Where these lines end, if they follow each other somewhere after a position."""
        begins = places.get(lines[0], [])
        for begin in begins[bisect_left(begins, after) :]:
            if tuple(stream[begin : begin + len(lines)]) == lines:
                return begin + len(lines)
        return None

    # By how many are missing: how little of the stream suffices, and which they are, the last one first.
    states: dict[int, tuple[int, Any]] = {0: (0, None)}
    for item in said:
        following: dict[int, tuple[int, Any]] = {}
        for count, (end, gone) in states.items():
            ways = [(count, behind(item.lines, end), gone), (count + 1, end, (item, gone))]
            for number, reaches, without in ways:
                if reaches is not None and (number not in following or reaches < following[number][0]):
                    following[number] = (reaches, without)
        states = {count: state for count, state in following.items() if count <= most} or following
        if min(states) > most:
            break
    items, gone = list[Item](), states[min(states)][1]
    while gone is not None:
        item, gone = gone
        items.insert(0, item)
    return items


def _parts(messages: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Part]]:
    for message in messages:
        side = _SIDES.get(role_of(message), "the user")
        for part in parts_of(message):
            yield {"call": "the model", "result": "a tool"}.get(part.kind, side), part


def _named(part: Part) -> tuple[str, str]:
    matched = _NAMED.fullmatch(part.title)
    return (matched[1] or "", matched[2] or "") if matched else ("", "")


def _text_lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _leaves(text: str) -> Iterator[str]:
    """The lines of a text; of JSON those of the values in it, for a form may wrap it, or have it as an object."""
    waiting: list[Any] = [text]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)
        else:
            yield from _text_lines(value if isinstance(value, str) else json.dumps(value))


# ---- format contract ----

_SESSION = "0195cafe-0000-4000-8000-000000000001"
_NOW = "2026-02-03T04:05:06.789000Z"


def check_format(
    reader: SessionReader, samples: Iterable[bytes | Rows], writer: SessionWriter | None = None, *, seeds: int = 100
) -> None:
    """Check a format's reader, and its writer, against the contract that ours keep. It returns nothing if they do.

    Args:
        reader: the reader.
        samples: whole sources of the format, each with a session at least: the bytes of a file, or a database as its tables'
            rows, ``{"messages": [{"id": 1, "text": "hi"}]}``. Real ones, and small: each is read some hundred times.
        writer: the writer of the same name.
        seeds: how often something is made wrong in each sample, each time something else. It is cut at four times as many bytes:
            a small one at every byte.

    Raises:
        AssertionError: a rule is broken. The message begins with the number of the rule, as in ``R4``, and names the sample.
    """
    sources = list(samples)
    if not sources:
        raise AssertionError("there is no sample: a format cannot be checked without one")
    for number, check in enumerate(CONTRACT, 1):
        for which, sample in enumerate(sources, 1):
            case = Case(reader, sample, writer, seeds)
            try:
                check(case)
            except Exception as error:
                where = f"sample {which}{case.where}"
                what = str(error) if isinstance(error, AssertionError) else repr(error)
                raise AssertionError(f"R{number}, {(check.__doc__ or '').strip()} In {where}: {what}") from error


def _recognized(case: Case) -> None:
    """A source is recognized by how it begins, and an empty one is not."""
    assert case.reader.recognizes(sample_head(case.sample)), "it is not recognized"
    assert not case.reader.recognizes(SourceHead("nothing")), "an empty source is recognized"


def _sessions(case: Case) -> None:
    """A source has sessions, each with a unique id, and the plans have the reader's name."""
    plans = case.read(case.sample)
    assert plans, "no session was found"
    sessions = [plan.session for plan in plans]
    assert all(isinstance(one, str) and one for one in sessions), f"the ids are {sessions!r}"
    assert len(set(sessions)) == len(sessions), f"one id for two sessions: {sorted(sessions)!r}"
    assert {plan.format for plan in plans} == {case.reader.name}, f"the format is {plans[0].format!r}"


def _always_the_same(case: Case) -> None:
    """The same source gives the same plans and the same ids, whatever its name, and however often it is read."""
    first, again = map(_comparable, (case.read(case.sample), case.read(case.sample)))
    assert first == again, "read again, it is something else"
    other_name = _comparable(case.read(case.sample, "a copy elsewhere"))
    assert [one[0] for one in first] == [one[0] for one in other_name], "the ids depend on the name of the source"
    for plan in case.read(case.sample):
        for generation in range(len(plan.generations)):
            assert planned_entries(plan, generation) == planned_entries(plan, generation), (
                "a generation can be asked for only once"
            )


def _accounts(case: Case) -> None:
    """Every line is in a message, an event or a finding."""
    for plan in case.read(case.sample):
        check_accounts(plan)


def _bytes(case: Case) -> None:
    """The source's bytes come out of what the entries keep, if it has one session."""
    _compare_bytes(case, case.sample)


def _compare_bytes(case: Case, sample: bytes | Rows) -> None:
    wholes = case.wholes(sample)
    found = [original_of(plan) for plan in wholes]
    if isinstance(sample, bytes) and len(wholes) == 1 and not _left_out(wholes[0]):
        same = next((at for at, pair in enumerate(zip(found[0], sample, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(found[0]), len(sample)) if same is None else same
        assert found[0] == sample, f"{len(sample)} bytes went in, {len(found[0])} come out; they differ at byte {at}"


def _left_out(plan: SessionPlan) -> bool:
    named = {number for entry in planned_entries(plan) for number in entry.lines}
    return any(finding.line not in (None, *named) for finding in plan.findings if finding.kind == "too-long")


def _storable(case: Case) -> None:
    """The plan can be stored: JSON, with texts for times and labels."""
    for plan in case.read(case.sample):
        check_storable(plan)


def _grown(case: Case) -> None:
    """A source that grows line by line keeps its ids or has the former ones, and in the end is read as if it had always been whole."""
    whole = _comparable(case.read(case.sample))
    sessions = {one[0] for one in whole} | {plan.former_session or plan.session for plan in case.read(case.sample)}
    for length, sample in _growing(case.sample):
        case.where = f", its first {length} lines"
        for plan in case.read_anything(sample):
            check_accounts(plan)
            if any(entry.message is not None for entry in planned_entries(plan, -1)):
                assert plan.session in sessions, f"its id is {plan.session!r}, and later {sorted(sessions)!r}"
        _compare_bytes(case, sample)
    case.where = ""
    assert _comparable(case.read(case.sample)) == whole, "a reader that read its beginning reads it otherwise"


def _cut(case: Case) -> None:
    """A source that is cut anywhere raises nothing, and every remaining line is accounted for."""
    if not isinstance(case.sample, bytes):
        return
    for cut in range(0, len(case.sample), max(1, len(case.sample) // (4 * case.seeds))):
        case.where = f", cut at byte {cut}"
        left = case.sample[:cut]
        for plan in case.read_anything(left):
            check_accounts(plan)
        _compare_bytes(case, left)


def _heads(case: Case) -> None:
    """True if a source is recognized can be asked of any beginning."""
    known = sample_head(case.sample)
    for seed in range(case.seeds):
        case.where = f", its head made wrong by seed {seed}"
        choose = random.Random(seed)
        objects = mutated(list(known.objects), choose) if known.objects else []
        wrong = tuple(one for one in objects if isinstance(one, dict)) if isinstance(objects, list) else ()
        answer = case.reader.recognizes(replace(known, objects=wrong))
        assert isinstance(answer, bool), f"the answer is {answer!r}"


def _damaged(case: Case) -> None:
    """Whatever a source contains, no error is raised, every line is accounted for, and the plan can be stored."""
    for seed in range(case.seeds):
        case.where = f", made wrong by seed {seed}"
        choose = random.Random(seed)
        if isinstance(case.sample, bytes):
            wrong: bytes | Rows = wrong_file(case.sample, choose)
        else:
            wrong = wrong_tables(case.sample, choose)
        for plan in case.read_anything(wrong):
            check_accounts(plan)
            check_storable(plan)
        _compare_bytes(case, wrong)


def _round_trip(case: Case) -> None:
    """A written session is read again with the same content in the same order, less what the losses count."""
    if case.writer is None:
        return
    assert case.writer.name == case.reader.name, f"the writer's name is {case.writer.name!r}"
    said = [(plan.provider, _messages(plan)) for plan in case.wholes(case.sample)]
    for provider, messages in [*CONVERSATIONS, *said]:
        if not any(parts_of(message) for message in messages):
            continue
        case.where = f", a conversation of {provider} with {len(messages)} messages"
        _compare_written(case, case.writer, messages, provider)


def _compare_written(case: Case, writer: SessionWriter, messages: list[dict[str, Any]], provider: str | None) -> None:
    records = [
        Record(seq=seq, at=f"2026-02-03T04:{seq // 60 % 60:02}:{seq % 60:02}.000000Z", message=message, extra=None)
        for seq, message in enumerate(messages, 1)
    ]
    about = ConversationMetadata(
        id=_SESSION,
        provider=provider,
        model="m",
        created_at=_NOW,
        updated_at=_NOW,
        labels={},
        system_prompt=None,
        tools=None,
        compaction_count=0,
        generation=0,
    )
    options = {"session": _SESSION, "cwd": "/home/me/my work", "now": _NOW}
    written = writer.write(iter(records), about, **options)
    assert written == writer.write(iter(records), about, **options), "written again, it is something else"
    assert written.files, "no file was written"
    for path, _ in written.files:
        safe = path and not path.startswith("/") and not {"", ".", ".."} & set(path.split("/"))
        assert safe, f"{path!r} is not a path below a folder"
    plans = [plan for plan in case.read(written.files[-1][1]) if not plan.is_part]
    assert len(plans) == 1, f"the written files are read as {len(plans)} sessions"
    check_accounts(plans[0])
    lost = sum(loss.count for loss in written.losses)
    there, back = items_of(messages), items_of(_messages(plans[0]))
    for what, gone in (("missing", missing_of(there, back, lost)), ("made up", missing_of(back, there, lost))):
        assert len(gone) <= lost, f"the losses count {lost}, and more is {what}: {'; '.join(map(str, gone[:3]))}"


def _comparable(plans: list[SessionPlan]) -> list[tuple[Any, ...]]:
    return [
        (
            *(plan.session, plan.lines, plan.provider, plan.model, plan.system_prompt, plan.tools, plan.tail),
            *(plan.version, plan.findings, plan.losses, dict(plan.labels)),
            [planned_entries(plan, generation) for generation in range(len(plan.generations))],
        )
        for plan in plans
    ]


def _growing(sample: bytes | Rows) -> Iterator[tuple[int, bytes | Rows]]:
    """An earlier state of the sample, with fewer of its lines; of tables, of the longest one."""
    if isinstance(sample, bytes):
        lines = _lines(sample)
        for length in range(1, len(lines)):
            yield length, b"".join(lines[:length])
        return
    longest = max(sample, key=lambda table: len(sample[table]))
    for length in range(1, len(sample[longest])):
        yield length, {**sample, longest: sample[longest][:length]}


def _lines(sample: bytes) -> list[bytes]:
    *ends, rest = sample.split(b"\n")
    return [*(end + b"\n" for end in ends), *([rest] if rest else [])]


def _messages(plan: SessionPlan) -> list[dict[str, Any]]:
    return [entry.message for entry in planned_entries(plan, -1) if entry.message is not None]


_CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "box"}'}}
CONVERSATIONS: tuple[tuple[str, list[dict[str, Any]]], ...] = (
    (
        "claude",
        [
            {"role": "user", "content": "Which box is blue? \u2028 Größe \U0001f600"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "box"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "the third"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "The third one."}]},
        ],
    ),
    (
        "openai",
        [
            {"role": "user", "content": "Which box is blue?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "the third"},
            {"role": "assistant", "content": "The third one."},
            {"role": "user", "content": "Thanks"},
        ],
    ),
    (
        "gemini",
        [
            {"role": "user", "parts": [{"text": "Which box is blue?"}]},
            {"role": "model", "parts": [{"text": "The third one."}]},
        ],
    ),
)

CONTRACT: tuple[Callable[[Case], None], ...] = (
    _recognized,
    _sessions,
    _always_the_same,
    _accounts,
    _bytes,
    _storable,
    _grown,
    _cut,
    _heads,
    _damaged,
    _round_trip,
)
