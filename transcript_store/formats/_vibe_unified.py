"""Mistral Vibe 3: a session is a folder with two histories, which ``sources`` returns as lines, one after the other.

* The projection is the person's view: entries ``message``, ``reasoning``, ``effect`` (a call and its result) and ``checkpoint`` (a
  compaction), with times, and with the text of stopped replies.
* The checkpoint is the model's context: ``{"message", "source", "turn_index"}``, with the ids of calls, and with calls of unknown
  tools. It has no times, and after a compaction only the new context.
* The journal has later events, with entries of the projection. A killed turn is only there.

A turn has the checkpoint's messages at the projection's times; a turn that the checkpoint lacks has the projection's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from transcript_store.formats._dialogue import Dialogue
from transcript_store.formats._lines import SourceLine
from transcript_store.formats._members import Json, labels, obj, objects, text_in, text_member
from transcript_store.formats._replay import Restart, Steps
from transcript_store.formats._scaffolding import marked_summary
from transcript_store.formats._vibe_entries import SeenEntry, blocks_in, replay, show_entry, text_of

_ENTRIES = frozenset({"message", "reasoning", "effect", "checkpoint"})


def is_unified(value: Json) -> bool:
    """True if it is a line of version 3."""
    if "recovery_journal_record_version" in value or "checkpoint_version" in value:
        return True
    is_message = isinstance(value.get("message"), dict) and isinstance(value.get("turn_index"), int)
    return (is_message and "source" in value) or ("generationStatus" in value and text_in(value, "type") in _ENTRIES)


class UnifiedSession:
    """A session of version 3. Its members are complete after a walk."""

    def __init__(self, lines: Callable[[], Iterable[SourceLine]]) -> None:
        self._lines = lines
        self.id: str | None = None
        self.dialogue = Dialogue()
        """Of the last walk."""

    def relation(self, about: Json, index: Json) -> dict[str, str]:
        """Of which session it is a part, or a fork."""
        of = (obj(one.get("identity")) for one in objects(index.get("entries")))
        kind = next((one.get("kind") for one in of if one.get("session_id") == self.id), None)
        parent = about.get("parent_session_id")
        return labels(**{"forked_from" if kind in (None, "root") else "part_of": parent})

    def walk(self) -> Steps:
        """The records, step by step."""
        entries: dict[str, SeenEntry] = {}
        sent: list[SourceLine] = []
        others: list[SourceLine] = []
        for line in self._lines():
            value = line.value or {}
            if "generationStatus" in value:
                self._see(entries, value).lines.append(line)
            elif isinstance(value.get("message"), dict) and "turn_index" in value:
                sent.append(line)
            elif line.raw:
                others.append(line)
                self._journal(entries, value)
        self.dialogue = dialogue = Dialogue()
        yield from self._both(dialogue, list(entries.values()), sent)
        for line in others:
            dialogue.event(line)
        yield from dialogue.take()

    def _see(self, entries: dict[str, SeenEntry], value: Json) -> SeenEntry:
        self.id = self.id or text_member(value.get("sessionId"))
        name = text_in(value, "id") or f"number {len(entries)}"
        seen = entries.setdefault(name, SeenEntry(value))
        seen.value = value  # a later line has more of it
        return seen

    def _journal(self, entries: dict[str, SeenEntry], value: Json) -> None:
        payload = obj(value.get("payload"))
        for one in objects(payload.get("delta")):
            if entry := obj(one.get("entry")):
                self._see(entries, entry)
        asked = obj(payload.get("params"))
        if payload.get("method") == "turn/start" and asked.get("message"):
            self.id = self.id or text_member(asked.get("sessionId"))
            turn = text_in(payload, "client_command_id")
            seen = SeenEntry({"type": "message", "role": "user", "content": asked["message"], "turnId": turn})
            entries.setdefault(f"user-{turn}-1", seen)

    def _both(self, dialogue: Dialogue, entries: list[SeenEntry], sent: list[SourceLine]) -> Steps:
        last = max((place for place, one in enumerate(entries) if one.is_compaction), default=-1)
        kept = 1 + max((place for place, one in enumerate(sent) if _is_injected(one)), default=-1)
        turns = _turns_of(sent[kept:])
        for place, seen in enumerate(entries):
            if seen.is_compaction:
                yield from dialogue.take()
                yield Restart()
            if place == last:
                self._compacted(dialogue, sent[:kept])
            if place > last and seen.is_prompt and turns and _said(turns[0][0]) == text_of(seen.value.get("content")):
                prompt, *replies = turns.pop(0)
                of_turn = _turn_at(entries, place)
                draft = dialogue.user(blocks_in(seen.value.get("content")), prompt, seen.at)
                if replies:
                    draft.lines = [*(line for one in of_turn for line in one.lines), prompt]
                    replay(dialogue, replies, list(dict.fromkeys(one.at for one in of_turn[1:])))
                    for one in of_turn[1:]:
                        one.value = {}
                    continue
                draft.lines = [*seen.lines, prompt]
            elif seen.value:
                show_entry(dialogue, seen)
        for turn in turns:  # the person did not see it
            dialogue.user(blocks_in(obj((turn[0].value or {}).get("message")).get("content")), turn[0])
            replay(dialogue, turn[1:], [])
        if last < 0 and kept:
            self._compacted(dialogue, sent[:kept])

    def _compacted(self, dialogue: Dialogue, sent: list[SourceLine]) -> None:
        for line in sent:
            extra = marked_summary() if _is_injected(line) else {}
            dialogue.user(blocks_in(obj((line.value or {}).get("message")).get("content")), line, None, extra)


def _turn_at(entries: list[SeenEntry], place: int) -> list[SeenEntry]:
    ends = next((at for at in range(place + 1, len(entries)) if entries[at].is_prompt), len(entries))
    return entries[place:ends]


def _turns_of(sent: list[SourceLine]) -> list[list[SourceLine]]:
    turns: list[list[SourceLine]] = []
    for line in sent:
        if obj((line.value or {}).get("message")).get("role") == "user" or not turns:
            turns.append([])
        turns[-1].append(line)
    return turns


def _is_injected(line: SourceLine) -> bool:
    return (line.value or {}).get("source") == "injection"


def _said(line: SourceLine) -> str:
    return text_of(obj((line.value or {}).get("message")).get("content"))
