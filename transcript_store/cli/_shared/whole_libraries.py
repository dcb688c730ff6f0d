"""Run a command on every conversation of a library: a line for each failure, a total, one exit code."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Sequence

from transcript_store import TranscriptStoreError, WrongKeyError, list_conversations
from transcript_store.cli._shared.hints import error_sentence
from transcript_store.cli._shared.names import (
    conversation_on,
    is_backend_address,
    library_at,
    printable_name,
    taken_apart,
)
from transcript_store.cli._shared.terminal import Working, complain, many, one_line, say, say_json
from transcript_store.file_names import METADATA, TRANSCRIPT


def all_of(name: str) -> list[str] | None:
    """The conversations of the library of that name, sorted; None if it is not a library, or empty."""
    if is_backend_address(name):
        library, what = taken_apart(name)
        if what is not None:
            return None
        return sorted(conversation_on(library, one.id) for one in library_at(library).iter_list() if one.id) or None
    if not os.path.isdir(name) or any(os.path.lexists(os.path.join(name, own)) for own in (TRANSCRIPT, METADATA)):
        return None
    return sorted(summary.directory for summary in list_conversations(name)) or None


def each_of(arguments: Namespace, names: Sequence[str], act: Callable[[str], str | None], doing: str, done: str) -> int:
    """Call ``act`` for each conversation; return the exit code, 1 if one failed.

    ``act`` returns None if it was done, a sentence that begins with ``-`` if there was nothing to do, and any other sentence if it failed.
    Conversations that the key does not open share one line: another key is one mistake.
    """
    failed = skipped = 0
    is_json, not_opened = getattr(arguments, "json", False), list[str]()
    with Working(doing) as working:
        for name in names:
            try:
                problem = act(name)
            except TranscriptStoreError as error:
                problem = error_sentence(error, arguments.command)
                if isinstance(error, WrongKeyError) and not is_json:
                    failed += 1
                    not_opened.append(problem)
                    continue
            if problem is not None and problem.startswith("-"):
                skipped, problem = skipped + 1, None
            if problem is not None:
                failed += 1
                with working.paused():
                    if is_json:
                        say_json({"conversation": printable_name(name), "error": problem})
                    else:
                        complain(problem if printable_name(name) in problem else f"{printable_name(name)}: {problem}")
    if not is_json:
        facts = [f"{len(names) - failed - skipped:,} {done}"]
        facts += [f"{skipped:,} had nothing to do"] * bool(skipped) + [f"{failed:,} failed"] * bool(failed)
        say(f"{one_line(printable_name(arguments.directory))}: {many(len(names), 'conversation')}: {', '.join(facts)}")
    if not_opened:
        others = f" (and {many(len(not_opened) - 1, 'other conversation')})" if len(not_opened) > 1 else ""
        complain(f"{not_opened[0]}{others}")
    return 1 if failed else 0
