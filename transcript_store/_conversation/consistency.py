"""Do the files of a conversation belong together? Load, list, verify, repair and the archive use this module.

* The live transcript and metadata.json are of the same conversation, and metadata.json is not of a later generation.
* An archived generation is of this conversation, has the number in its name, and ends where the replace that ended it
  noted. The next generation's header states that end (``replaces``). When a generation is removed from the archive, its
  header's statement moves into the metadata (``replaced``).

Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from transcript_store._conversation.metadata import REPLACED, MetadataDocument, problem_with_members
from transcript_store._log.damage import Kind
from transcript_store._log.record import Header, Position


class Mismatch(NamedTuple):
    """Which files do not belong together, and why."""

    kind: Kind
    reason: str


class End(NamedTuple):
    """Where a generation ended, as the replace that ended it noted."""

    records: int
    head: str


def of_live(header: Header, document: MetadataDocument) -> MetadataDocument | Mismatch:
    """The metadata and the mark that hold for a live transcript with this header."""
    members, mark, _ = document
    if (damaged := of_header(header)) is not None:
        return damaged
    if (other := _of_another(header, members["id"], "metadata.json")) is not None:
        return other
    if header.generation > members["generation"]:
        # A replace was interrupted after its commit, before it wrote metadata.json: its transcript has the metadata
        # too.
        return MetadataDocument(header.metadata, None)
    if header.generation < members["generation"]:
        of = f"metadata.json of {members['generation']}"
        return Mismatch("wrong-generation", f"it is of generation {header.generation}, {of}")
    if mark is not None and mark.generation != header.generation:
        of = f"metadata.json has a mark of generation {mark.generation}"
        return Mismatch("wrong-generation", f"it is of generation {header.generation}, {of}")
    return document


def of_header(header: Header) -> Mismatch | None:
    """Why the metadata in a whole header is not valid; None if it is."""
    problem = problem_with_members(header.metadata)
    return (
        None
        if problem is None
        else Mismatch("damaged-header", f"the header is whole, but its metadata is not valid: {problem}")
    )


def of_archived(number: int, header: Header, conversation: str | None) -> Mismatch | None:
    """Why an archived transcript with this header is not generation ``number`` of a conversation; None if it is.

    ``conversation`` is None if neither the live header nor metadata.json can be read; then only the number is compared.
    """
    if conversation is not None and (other := _of_another(header, conversation, "the live transcript")) is not None:
        return other
    if header.generation != number:
        reason = f"its name says generation {number}, its header {header.generation}"
        return Mismatch("wrong-generation", reason)
    return None


def of_end(number: int, end: Position, replaced: End | None) -> Mismatch | None:
    """Why an archived transcript that ends here is not what was replaced; None if it is, or if its end was not noted."""
    if replaced is None or replaced == (end.seq, end.head.decode()):
        return None
    reason = f"it is not what generation {number + 1} says it replaced: {replaced.records} records"
    return Mismatch("rewritten", reason)


def end_of(number: int, conversation: str | None, successor: Header | None, members: dict[str, Any]) -> End | None:
    """Where an archived generation ended, from the next one's header or the metadata; None if neither states it."""
    if successor is not None and (successor.conversation, successor.generation) == (conversation, number + 1):
        replaces = successor.members.get("replaces")
        if type(replaces) is dict:
            return End(replaces.get("records", -1), replaces.get("head", ""))
    for entry in _remembered(members):
        if (entry.get("conversation"), entry.get("generation")) == (conversation, number):
            return End(entry.get("records", -1), entry.get("head", ""))
    return None


def remembering(members: dict[str, Any], removed: Iterable[Header], remaining: Collection[int]) -> dict[str, Any]:
    """The metadata after the generations with these headers are removed; those with the remaining numbers stay."""
    ends = [*_remembered(members)]
    for header in removed:
        replaces = header.members.get("replaces")
        if type(replaces) is dict:
            ends.append({"conversation": header.conversation, **replaces})
    kept = {
        entry.get("generation"): entry
        for entry in ends
        if entry.get("conversation") == members["id"] and entry.get("generation") in remaining
    }
    if kept:
        return {**members, REPLACED: list(kept.values())}
    return {name: value for name, value in members.items() if name != REPLACED}


def _remembered(members: dict[str, Any]) -> list[dict[str, Any]]:
    entries = members.get(REPLACED)
    return [entry for entry in entries if type(entry) is dict] if type(entries) is list else []


def _of_another(header: Header, conversation: str, whose: str) -> Mismatch | None:
    if header.conversation == conversation:
        return None
    return Mismatch("wrong-conversation", f"it is of conversation {header.conversation}, {whose} of {conversation}")
