"""The contract of formats: ours keep it, and each check finds the reader that breaks it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import orjson
import pytest

from tests.formats.of_others import few_or_many_seeds, lines
from tests.formats.sources import corpora
from transcript_store.conversation import Record
from transcript_store.formats import READERS, WRITERS, Loss, SessionPlan, WrittenSession
from transcript_store.formats._claude_code import ClaudeCodeWriter
from transcript_store.formats._jsonl import JsonLines
from transcript_store.messages import parts_of, role_of
from transcript_store.testing import check_format

LINES = lines(
    {"role": "user", "content": "hi"},
    {"message": {"role": "assistant", "content": "hello"}, "extra": {"n": 1}, "at": "2026-01-01T00:00:00Z"},
    {"anything": 1},
)
READER = {reader.name: reader for reader in READERS}
WRITER = {writer.name: writer for writer in WRITERS}


@few_or_many_seeds
def test_json_lines_keep_the_contract(seeds):
    """The other formats do in the tests of their own."""
    prompted = lines({"role": "system", "content": "Be kind."}, {"anything": 1}) + LINES
    check_format(JsonLines(), [LINES, prompted], seeds=seeds)


@pytest.mark.parametrize("name", ["claude-code", "kimi"])
def test_files_that_others_wrote_keep_it(name):
    """Small ones: each is read some hundred times."""
    small = [data for path in corpora(name) if len(data := path.read_bytes()) < 30_000]
    if not small:
        pytest.skip("needs the shared corpora")
    check_format(READER[name], small, WRITER.get(name), seeds=10)


# ---- seeded bugs ----------------------------------------------------------------------------------------------------


class Bug(JsonLines):
    """A reader of JSON lines in which one thing is wrong. It gives one plan, which ``wrong`` changes."""

    name = "jsonl"

    def plans(self, source: Any) -> list[SessionPlan]:
        return [self.wrong(plan, source) for plan in super().plans(source)]

    def wrong(self, plan: SessionPlan, source: Any) -> SessionPlan:
        return plan

    def changed(self, plan: SessionPlan, change: Callable[[list[Any]], list[Any]]) -> SessionPlan:
        (generation,) = plan.generations
        return replace(plan, generations=(lambda: change(list(generation())),))


class RecognizesNothing(Bug):
    def recognizes(self, head):
        return False


class RecognizesTheEmpty(Bug):
    def recognizes(self, head):
        return True


class FindsNothing(Bug):
    def plans(self, source):
        return []


class CallsItselfOtherwise(Bug):
    def wrong(self, plan, source):
        return replace(plan, format="claude-code")


class GivesOneIdTwice(Bug):
    def plans(self, source):
        return super().plans(source) * 2


class TakesTheIdOfThePlace(Bug):
    def wrong(self, plan, source):
        return replace(plan, session=source.name)


class Remembers(Bug):
    def __init__(self):
        self.seen = 0

    def wrong(self, plan, source):
        self.seen += 1
        return replace(plan, version=None, labels={"seen": str(self.seen)})


class GivesItsEntriesOnce(Bug):
    def wrong(self, plan, source):
        entries = iter(list(plan.generations[0]()))
        return replace(plan, generations=(lambda: entries,))


class DropsWhatIsNoMessage(Bug):
    def wrong(self, plan, source):
        return self.changed(plan, lambda entries: [entry for entry in entries if entry.message is not None])


class KeepsOnlyTheMessage(Bug):
    def wrong(self, plan, source):
        return self.changed(plan, lambda entries: [entry._replace(extra={}) for entry in entries])


class SpellsTheLineAnew(Bug):
    def wrong(self, plan, source):
        def anew(entries):
            for entry in entries:
                for packed in entry.extra["source"]["lines"]:
                    if "raw" in packed:
                        packed["raw"] = packed["raw"].strip() + "\n"
            return entries

        return self.changed(plan, anew)


class PlansWhatIsNoJson(Bug):
    def wrong(self, plan, source):
        return self.changed(plan, lambda entries: [e._replace(extra={**e.extra, "cost": {1}}) for e in entries])


class HashesAllForTheId(Bug):
    def wrong(self, plan, source):
        return replace(plan, session=hashlib.sha256(source.data).hexdigest())


class ParsesEachLine(Bug):
    def wrong(self, plan, source):
        for line in source.data.splitlines():
            orjson.loads(line)
        return plan


class LosesTheTail(Bug):
    def wrong(self, plan, source):
        return replace(plan, tail=b"")


class CountsOnTheContent(Bug):
    def wrong(self, plan, source):
        for entry in plan.generations[0]():
            str.lower((entry.message or {}).get("content", ""))
        return plan


class TrustsTheHead(Bug):
    def recognizes(self, head):
        return bool(head.objects) and bool(head.objects[0]["role"].lower())


BUGS: dict[int, list[type[Bug]]] = {
    1: [RecognizesNothing, RecognizesTheEmpty],
    2: [FindsNothing, CallsItselfOtherwise, GivesOneIdTwice],
    3: [TakesTheIdOfThePlace, Remembers, GivesItsEntriesOnce],
    4: [DropsWhatIsNoMessage],
    5: [KeepsOnlyTheMessage],
    6: [PlansWhatIsNoJson],
    7: [HashesAllForTheId],
    8: [ParsesEachLine, LosesTheTail],
    9: [TrustsTheHead],
    10: [SpellsTheLineAnew, CountsOnTheContent],
}


@pytest.mark.parametrize(
    ("rule", "bug"), [(rule, bug) for rule, bugs in BUGS.items() for bug in bugs], ids=lambda one: str(one)[:60]
)
def test_a_broken_reader_is_caught_by_the_rule_that_it_breaks(rule, bug):
    """The message says which rule, what was done to which sample, and what was wrong."""
    with pytest.raises(AssertionError, match=rf"^R{rule}, .*In sample 1"):
        check_format(bug(), [LINES])


class Silent(ClaudeCodeWriter):
    """A writer that leaves out what it cannot hold and says nothing."""

    def write(self, records, metadata, **options):
        kept = [record for record in records if "third" not in json.dumps(record.message)]
        return super().write(kept, metadata, **options)


class Elsewhere(ClaudeCodeWriter):
    def write(self, records, metadata, **options):
        written = super().write(records, metadata, **options)
        return WrittenSession((("../" + written.files[0][0], written.files[0][1]),), written.command, written.losses)


class Random(ClaudeCodeWriter):
    written = 0

    def write(self, records, metadata, **options):
        self.written += 1
        written = super().write(records, metadata, **options)
        return WrittenSession(written.files, f"claude {self.written}", written.losses)


class Changed(ClaudeCodeWriter):
    """A writer that is given something else than what was said, and counts nothing."""

    def changed(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return messages

    def write(self, records, metadata, **options):
        given = list(records)
        changed = enumerate(self.changed([record.message for record in given]), 1)
        return super().write(
            [Record(seq=number, at=given[0].at, message=message, extra=None) for number, message in changed],
            metadata,
            **options,
        )


class HasNoTools(Changed):
    def changed(self, messages):
        texts = [[part.text for part in parts_of(message) if part.kind == "text"] for message in messages]
        said = zip(messages, texts, strict=True)
        return [{"role": role_of(message), "content": "\n".join(told)} for message, told in said if told]


class Reverses(Changed):
    def changed(self, messages):
        return messages[::-1]


class TakesOneForTheOther(Changed):
    def changed(self, messages):
        other = {"user": "assistant", "assistant": "user"}
        return [
            {**message, "role": other[message["role"]]} if isinstance(message.get("content"), str) else message
            for message in messages
        ]


class SaysItTwice(Changed):
    def changed(self, messages):
        return [*messages, messages[-1]]


class Replaces(Changed):
    """Each text that stands anywhere becomes another one."""

    texts: ClassVar[dict[str, str]]

    def changed(self, messages):
        said = json.dumps(messages)
        for one, other in self.texts.items():
            said = said.replace(one, other)
        changed: list[dict[str, Any]] = json.loads(said)
        return changed


class CallsAnotherTool(Replaces):
    texts: ClassVar = {'"look"': '"remove"'}


class CallsWithOtherArguments(Replaces):
    texts: ClassVar = {'"box"': '"floor"'}


class EmptiesResults(Replaces):
    texts: ClassVar = {"the third": ""}


class AnswersTheOtherCall(Replaces):
    texts: ClassVar = {
        '"tool_use_id": "one"': '"tool_use_id": "-"',
        '"tool_use_id": "two"': '"tool_use_id": "one"',
        '"-"': '"two"',
    }


class CountsTooFew(HasNoTools):
    """A call and a result are two."""

    def write(self, records, metadata, **options):
        return replace(super().write(records, metadata, **options), losses=(Loss("tools", 1, "a call is left out"),))


BOXES: list[dict[str, Any]] = [
    {"role": "user", "content": "Which boxes are blue?"},
    {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "one", "name": "see", "input": {"number": 1}},
            {"type": "tool_use", "id": "two", "name": "see", "input": {"number": 2}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "one", "content": "red"},
            {"type": "tool_result", "tool_use_id": "two", "content": "blue"},
        ],
    },
    {"role": "assistant", "content": "The second."},
]
SAMPLE = lines(
    *(
        {
            "type": message["role"],
            "uuid": f"u{n}",
            "parentUuid": f"u{n - 1}" if n else None,
            "sessionId": "s1",
            "message": message,
        }
        for n, message in enumerate(BOXES)
    )
)


def test_what_a_good_writer_hands_on_passes():
    """The same sample, with parallel calls; the broken ones write it by this one."""
    check_format(READER["claude-code"], [SAMPLE], Changed(), seeds=1)


@pytest.mark.parametrize(
    ("bug", "why"),
    [
        (Silent, "more is missing: .*the third"),
        (Elsewhere, "not a path"),
        (Random, "something else"),
        (HasNoTools, "the losses count 0, and more is missing: the model calls 'look box'"),
        (CountsTooFew, "the losses count 1, and more is missing"),
        (Reverses, "the losses count 3, and more is made up"),
        (TakesOneForTheOther, "more is made up: .*the model says 'Which box"),
        (SaysItTwice, "more is made up: the model says 'The third one.'"),
        (CallsAnotherTool, "more is missing: the model calls 'look box'"),
        (CallsWithOtherArguments, "more is missing: the model calls 'look box'"),
        (EmptiesResults, "more is missing: a tool answers 'the third'"),
        (AnswersTheOtherCall, "more is missing: the model calls 'see 2'"),
    ],
)
def test_a_broken_writer_is_caught(bug, why):
    with pytest.raises(AssertionError, match=rf"^R11, .*{why}"):
        check_format(READER["claude-code"], [SAMPLE], bug(), seeds=1)


def test_a_format_without_a_sample_is_not_checked_in_silence():
    with pytest.raises(AssertionError, match="no sample"):
        check_format(JsonLines(), [])
