"""What the contract of ``Place`` works with: slots and summaries of its own, and what a place has of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from random import randrange
from typing import Any
from uuid import uuid4

from transcript_store.places import Place, Summary

OpenPlace = Callable[[], Place]

ZEROS = b"0" * 32


def place_and_id(open_place: OpenPlace) -> tuple[Place, str]:
    """The place, and the id of a conversation that nobody wrote to."""
    return open_place(), str(uuid4())


def slot_of(number: int, content: bytes) -> bytes:
    """An envelope as slots have one, with a hash of its own, and any bytes behind it."""
    return b'{"slot":%d,"hash":"%032x"}\n' % (number, number * 7919 + len(content)) + content


def hash_of(data: bytes) -> bytes:
    return data.partition(b"\n")[0][-34:-2]


def put_all(place: Place, id: str, data: Sequence[bytes]) -> None:
    previous = ZEROS
    for number, slot in enumerate(data, 1):
        assert place.put(id, number, slot, previous) is True, f"slot {number} was not put"
        previous = hash_of(slot)


def slots_of(place: Place, id: str, after: int = 0) -> dict[int, bytes]:
    pieces = list(place.read(id, after))
    assert len({piece.first for piece in pieces}) == len(pieces), "a slot is read twice"
    return {piece.first: piece.data for piece in sorted(pieces)}


def a_day() -> str:
    """The minute of a time that no other check uses: what is there already does not matter."""
    return f"{3000 + randrange(6000)}-{randrange(1, 13):02}-{randrange(1, 29):02}T{randrange(24):02}:{randrange(60):02}"


def summary_of(id: str, at: str, *, slot: int = 1, labels: dict[str, str] | None = None) -> Summary:
    members = {"metadata": {"id": id, "labels": labels or {}, "title": "\u00e9 \0 \ud800"}, "seq": 7, "at": at}
    return Summary(id, at, slot, json.dumps(members, separators=(",", ":")).encode())


def newest_of(place: Place, day: str, label: str | None = None) -> list[Summary]:
    """All summaries of a minute, by pages of two, in the order in which they come."""
    found: list[Summary] = []
    before = (f"{day}:59.999999Z", "f" * 8 + "-ffff-ffff-ffff-" + "f" * 12)
    while page := place.summaries(before=before, limit=2, label=label):
        assert len(page) <= 2
        found += page
        before = page[-1][1::-1]
        if page[-1].updated_at < day:
            break
    return [summary for summary in found if summary.updated_at.startswith(day)]


def at_once(calls: Sequence[Callable[[], Any]]) -> None:
    errors: list[BaseException] = []

    def work(call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
