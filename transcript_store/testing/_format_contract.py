"""The contract of a format's reader and writer, as numbered checks. The docstring of a check is the rule that an error prints."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats import Head, Plan, Reader, Writer
from transcript_store.messages import parts_of
from transcript_store.testing._format_case import Case, check_accounts, check_storable, entries_of, head, original_of
from transcript_store.testing._format_said import items_of, missing_of
from transcript_store.testing._format_samples import Rows, mutated, wrong_file, wrong_tables

__all__ = ["check_format"]

_SESSION = "0195cafe-0000-4000-8000-000000000001"
_NOW = "2026-02-03T04:05:06.789000Z"


def check_format(
    reader: Reader, samples: Iterable[bytes | Rows], writer: Writer | None = None, *, seeds: int = 100
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
        raise AssertionError("there is no sample: nothing can be said of a format without one")
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
    assert case.reader.recognizes(head(case.sample)), "it is not recognized"
    assert not case.reader.recognizes(Head("nothing")), "an empty source is recognized"


def _sessions(case: Case) -> None:
    """A source has sessions, each with an id of its own, and the plans have the reader's name."""
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
            assert entries_of(plan, generation) == entries_of(plan, generation), (
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


def _left_out(plan: Plan) -> bool:
    named = {number for entry in entries_of(plan) for number in entry.lines}
    return any(finding.line not in (None, *named) for finding in plan.findings if finding.kind == "too-long")


def _storable(case: Case) -> None:
    """What is planned can be stored: JSON, with texts for times and labels."""
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
            if any(entry.message is not None for entry in entries_of(plan, -1)):
                assert plan.session in sessions, f"its id is {plan.session!r}, and later {sorted(sessions)!r}"
        _compare_bytes(case, sample)
    case.where = ""
    assert _comparable(case.read(case.sample)) == whole, "a reader that read its beginning reads it otherwise"


def _cut(case: Case) -> None:
    """A source that is cut anywhere raises nothing, and every line of what is left is accounted for."""
    if not isinstance(case.sample, bytes):
        return
    for cut in range(0, len(case.sample), max(1, len(case.sample) // (4 * case.seeds))):
        case.where = f", cut at byte {cut}"
        left = case.sample[:cut]
        for plan in case.read_anything(left):
            check_accounts(plan)
        _compare_bytes(case, left)


def _heads(case: Case) -> None:
    """Whether a source is recognized can be asked of any beginning."""
    known = head(case.sample)
    for seed in range(case.seeds):
        case.where = f", its head made wrong by seed {seed}"
        choose = random.Random(seed)
        objects = mutated(list(known.objects), choose) if known.objects else []
        wrong = tuple(one for one in objects if isinstance(one, dict)) if isinstance(objects, list) else ()
        answer = case.reader.recognizes(replace(known, objects=wrong))
        assert isinstance(answer, bool), f"the answer is {answer!r}"


def _damaged(case: Case) -> None:
    """Whatever stands in a source, nothing is raised, every line is accounted for, and what is planned can be stored."""
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
    """What is written is read again and says the same: who says, calls and answers what, in which order; less what the losses count."""
    if case.writer is None:
        return
    assert case.writer.name == case.reader.name, f"the writer's name is {case.writer.name!r}"
    said = [(plan.provider, _messages(plan)) for plan in case.wholes(case.sample)]
    for provider, messages in [*CONVERSATIONS, *said]:
        if not any(parts_of(message) for message in messages):
            continue
        case.where = f", a conversation of {provider} with {len(messages)} messages"
        _compare_written(case, case.writer, messages, provider)


def _compare_written(case: Case, writer: Writer, messages: list[dict[str, Any]], provider: str | None) -> None:
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
        assert safe, f"{path!r} is no path below a folder"
    plans = [plan for plan in case.read(written.files[-1][1]) if not plan.is_part]
    assert len(plans) == 1, f"{len(plans)} sessions are read of what was written"
    check_accounts(plans[0])
    lost = sum(loss.count for loss in written.losses)
    there, back = items_of(messages), items_of(_messages(plans[0]))
    for what, gone in (("missing", missing_of(there, back, lost)), ("made up", missing_of(back, there, lost))):
        assert len(gone) <= lost, f"the losses count {lost}, and more is {what}: {'; '.join(map(str, gone[:3]))}"


def _comparable(plans: list[Plan]) -> list[tuple[Any, ...]]:
    return [
        (
            *(plan.session, plan.lines, plan.provider, plan.model, plan.system_prompt, plan.tools, plan.tail),
            *(plan.version, plan.findings, plan.losses, dict(plan.labels)),
            [entries_of(plan, generation) for generation in range(len(plan.generations))],
        )
        for plan in plans
    ]


def _growing(sample: bytes | Rows) -> Iterator[tuple[int, bytes | Rows]]:
    """The sample as it was when fewer of its lines were there; of tables, of the longest one."""
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


def _messages(plan: Plan) -> list[dict[str, Any]]:
    return [entry.message for entry in entries_of(plan, -1) if entry.message is not None]


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
