"""The operations of ``ConversationMachine``: each draws its arguments, makes one call, and says what a history becomes by it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from transcript_store.testing._history import History, Operation, forks_in
from transcript_store.testing._modelled import ModelledConversation
from transcript_store.testing.strategies import metadata


def an_append(of: ModelledConversation, data: st.DataObject) -> Operation:
    entry = of.a_record(data)
    return Operation(
        lambda: of.store.append_message(entry[0], extra=entry[1]), lambda history: history.with_records(entry)
    )


def a_batch(of: ModelledConversation, data: st.DataObject) -> Operation:
    entries = [of.a_record(data) for _ in range(data.draw(st.integers(0, 4), label="messages"))]
    return Operation(
        lambda: of.store.append_messages([one for one, _ in entries], extras=[extra for _, extra in entries]),
        lambda history: history.with_records(*entries),
    )


def an_event(of: ModelledConversation, data: st.DataObject) -> Operation:
    _, extra = of.a_record(data)
    return Operation(lambda: of.store.append_event(extra), lambda history: history.with_records((None, extra)))


def a_replace(of: ModelledConversation, data: st.DataObject, most_kept: int = 5) -> Operation:
    kept, (message, extra) = data.draw(st.integers(0, most_kept), label="kept"), of.a_record(data)

    def run() -> None:
        messages = [*of.store.get_messages()[:kept], message]
        extras = [*([None] * (len(messages) - 1)), extra]
        of.store.replace_transcript(messages, extras=extras, model=str(extra["n"]))

    def after(history: History) -> History:
        entries = [(one, None) for one in history.messages[:kept]]
        return history.replaced_by(*entries, (message, extra)).with_metadata({"model": str(extra["n"])})

    return Operation(run, after, syncs=True)


def a_selection(of: ModelledConversation, data: st.DataObject) -> Operation:
    count = len(of.shown.records)
    seqs = data.draw(st.sets(st.integers(1, count)) if count else st.just(set()), label="records that are kept")
    of.numbered += 1
    changes: dict[str, Any] = {"model": str(of.numbered)}
    changed: dict[int, Any] = {}
    if (said := sorted(seq for seq in seqs if json.loads(of.shown.records[seq - 1])[0])) and bool(
        data.draw(st.sampled_from([False, True]))
    ):
        message = {"role": "user", "content": f"changed {of.numbered}"}
        changed[data.draw(st.sampled_from(said), label="gets other contents")] = (message, {"n": of.numbered})
    return Operation(
        lambda: of.store.keep_records(seqs, changed=changed, if_head=of.store.head, **changes),
        lambda history: history.keeping(seqs, changed).with_metadata(changes),
        syncs=True,
    )


def a_retraction(of: ModelledConversation, data: st.DataObject) -> Operation:
    count = data.draw(st.integers(1, 3), label="messages that are taken back")

    def run() -> None:
        if there := len(of.store.get_messages(last=count)):
            of.store.retract(there)

    return Operation(run, lambda history: history.taking_back(count))


def a_change(of: ModelledConversation, data: st.DataObject) -> Operation:
    of.numbered += 1
    changes = {**data.draw(metadata(), label="changes"), "model": str(of.numbered)}
    return Operation(
        lambda: of.store.update_metadata(**changes), lambda history: history.with_metadata(changes), syncs=True
    )


def a_fork(of: ModelledConversation, data: st.DataObject) -> Operation:
    through = data.draw(st.integers(0, len(of.shown.records)), label="through_seq")
    return Operation(
        lambda: of.library.fork(of.id, through_seq=through),
        lambda history: history.with_fork(through),
        syncs=True,  # a fork has nothing that the original may lose
    )


def a_fork_gone(of: ModelledConversation, data: st.DataObject) -> Operation:
    there = sorted(forks_in(of.library, of.id))
    records, id = there[data.draw(st.integers(0, len(there) - 1), label="which fork")]  # noqa: A001
    return Operation(lambda: of.library.delete(id), lambda history: history.without_fork(records), stands_alone=True)


def a_generation_gone(of: ModelledConversation, data: st.DataObject) -> Operation:
    number, _ = data.draw(st.sampled_from(of.shown.archive), label="generation")
    return Operation(
        lambda: of.store.delete_generation(number),
        lambda history: history.without_generation(number),
        stands_alone=True,
    )
