"""A conversation copied into a new one: its records up to a number, byte for byte, in a commit of their own."""

from __future__ import annotations

from functools import partial

from transcript_store._conversation.arguments import require_count
from transcript_store._conversation.metadata import copied_members
from transcript_store._conversation.reader import Reader
from transcript_store._library.folders import Folders
from transcript_store._os.names import new_id
from transcript_store.errors import KeyNeededError
from transcript_store.words import many


def fork(source: Reader, into: Folders, through_seq: int | None, named: tuple[Folders, str] | None = None) -> str:
    """Copy what ``source`` reads into a new conversation of ``into``; returns its id.

    ``named`` is the library that the original is in, with the id by which it is called there; None if it is in any folder.
    """
    if through_seq is not None:
        require_count("through_seq", through_seq)
    with source.let_go_at_the_end():
        if named is not None:
            named[0].require(named[1])
        source.load()
        source.sync_before_copy()
        source_id, log = source.members["id"], source.log
        if log.sealer_to_write() is not None and into.keys is None:
            reason = "the original is sealed, and the library that it is to be forked into has no key"
            raise KeyNeededError(path=into.path, reason=reason)
        if named is not None:
            named[0].require_its_own(named[1], source_id)
        count = log.end.seq if through_seq is None else through_seq
        if count > log.end.seq:
            there = many(log.end.seq, "record")
            raise ValueError(f"through_seq is {count}, and conversation {source_id} has {there}")
        origin = {
            "conversation": source_id,
            "generation": log.header.generation,
            "seq": count,
            "head": log.place_after(count).head.decode(),
        }
        fork_id = new_id(into.files)
        members_at = partial(copied_members, source.members, id=fork_id, forked_from=origin)
        writer = into.writer(fork_id)
        with into.making(fork_id), writer.let_go_at_the_end():
            writer.create(members_at, log.copies(count), log.header.features, count)
            writer.close()
        return fork_id
