"""The small commands on one conversation: ``head``, ``rename``, ``delete``, ``fork``, ``generations``; and a library's ``writers``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from transcript_store import ConversationNotFoundError
from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json, add_through, path, whole_number
from transcript_store.cli._shared.forks import PROVIDERS, fork_for_provider, fork_of
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import (
    conversation_and_words,
    conversation_at,
    described,
    destination,
    is_backend_address,
    libraries,
    library_at,
    printable_name,
    say_unnamed,
    summary_at,
    with_id,
)
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    complain,
    confirmed,
    is_at_a_terminal,
    many,
    one_line,
    say,
    say_json,
    size,
    time,
)

if TYPE_CHECKING:
    from transcript_store.library import ConversationWriter

HEAD_DESCRIPTION = """\
Print the head of the conversation in DIR: the hash of its last record, which is chained to every record before it.
A copy of it elsewhere (in another system, on paper) detects any later change to those records. It is not keyed: anyone
who can write the files can compute a new one.
"""
HEAD_EPILOG = """\
examples:
  transcript-store head chats/today
  transcript-store head chats/today --json | jq -r .seq
"""


def configure_head(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    add_keys(parser)
    add_json(parser, "one JSON object with head, seq (the number of records), generation and id")


def run_head(arguments: Namespace) -> int:
    """Print the head."""
    with conversation_at(arguments.directory, read_only=True, **command_keys(arguments).options) as conversation:
        conversation.load()
        if arguments.json:
            metadata = conversation.get_metadata()
            say_json(
                {
                    "head": conversation.head,
                    "seq": conversation.record_count,
                    "generation": metadata.generation,
                    "id": metadata.id,
                }
            )
        else:
            say(conversation.head)
    return 0


RENAME_DESCRIPTION = f"""\
Give a conversation a title, which `list` shows: its label `title`. An empty TITLE removes it. Its folder and its id do not
change. All words after the conversation are the title.

{NAMES}"""
RENAME_EPILOG = """\
examples:
  transcript-store rename chats/0b8f Moving house
  transcript-store rename 0b8f ''                  removes the title
"""


def configure_rename(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("words", metavar="CONVERSATION TITLE", nargs="+", help="the conversation, and its title")
    add_keys(parser)


def run_rename(arguments: Namespace) -> int:
    """Set the label ``title``, or remove it if the title is empty."""
    directory, words = conversation_and_words(arguments.words)
    if not words:
        raise Misuse("the title is missing: write it after the conversation ('' removes it)")
    title = " ".join(words).strip()
    with conversation_at(directory, **command_keys(arguments).options) as conversation:
        conversation.load(verify="tail")
        conversation.title = title or None
    return 0


DELETE_DESCRIPTION = f"""\
Delete a conversation, with its archive and its quarantine: all of it, or nothing if another process is writing to it or the
disk refuses. Only a backup brings it back. It asks first. Without a terminal (in a script, say) it deletes only with --yes.

An imported conversation does not return with the next import, except with `import --again` (on a database or a bucket, not even
then).

{NAMES}"""
DELETE_EPILOG = """\
exit code: 0 if it was deleted, 1 if that failed, 2 if it was not confirmed

examples:
  transcript-store delete chats/today
  transcript-store delete chats/0b8f --dry-run
  transcript-store delete chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51 --yes
"""


def configure_delete(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    parser.add_argument("--dry-run", action="store_true", help="list what would be deleted, and stop")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_keys(parser, what="not needed to delete; only checked")
    add_json(parser, "one JSON object with the name of the folder that was deleted")


def run_delete(arguments: Namespace) -> int:
    """Ask, delete the conversation, and print its name."""
    options = command_keys(arguments).options
    if arguments.json and not (arguments.yes or arguments.dry_run):
        raise Misuse("--json cannot ask: add --yes or --dry-run")
    summary = summary_at(arguments.directory)
    name = os.path.basename(arguments.directory)
    what = one_line(name) if summary is None else described(summary, **options)
    if arguments.dry_run:
        if summary is None:
            reason = "there is no conversation"
            raise ConversationNotFoundError(path=arguments.directory, reason=reason)
        say_json({"would_delete": name}) if arguments.json else say(f"would be deleted: {what}")
        return 0
    if summary is not None and not arguments.yes and not confirmed(f"delete {what}?"):
        complain("nothing was deleted" + ("" if is_at_a_terminal() else "; without a terminal, --yes deletes it"))
        return 2
    if is_backend_address(arguments.directory):
        library, name = with_id(arguments.directory)
        library_at(library).delete(name)
    else:
        from transcript_store import delete_conversation  # here: the other commands need no library

        delete_conversation(arguments.directory)
    say_json({"deleted": name}) if arguments.json else say(f"deleted {one_line(name)}")
    return 0


FORK_DESCRIPTION = f"""\
Copy a conversation into a new one beside it, or into another library, and print the new one's id. Records keep their
times; the new conversation names the record where it left the old one. The old one may have a live writer.

With --provider the copy has another provider's form, to continue with it. What that form cannot hold is reported, and stays here.

{NAMES}"""
FORK_EPILOG = """\
examples:
  transcript-store fork chats/today
  transcript-store fork chats/0b8f --through 12
  transcript-store fork chats/last --into archive
  transcript-store fork 0b8f --provider local           continue with another model: chat ID
  transcript-store fork chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51
"""


def configure_fork(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    add_through(parser)
    parser.add_argument("--into", metavar="LIBRARY", type=path, help="the library to copy into (default: its own)")
    parser.add_argument("--provider", choices=PROVIDERS, help="convert the copy to this provider's form")
    add_keys(parser, what="the key; the fork is sealed with it too")
    add_json(parser, "one JSON object with id and directory")


def run_fork(arguments: Namespace) -> int:
    """Fork the conversation, and print the new one's id."""
    into = None if arguments.into is None else destination(arguments.into)
    options = command_keys(arguments).options
    if into is None:
        into = (
            with_id(arguments.directory)[0]
            if is_backend_address(arguments.directory)
            else os.path.dirname(arguments.directory)
        )
    library = library_at(into, creates=arguments.into is not None, **options)
    if arguments.provider is not None and arguments.through is not None:
        raise Misuse("--provider copies the whole conversation: fork --through first, then fork that copy")
    try:
        with Working("copying") as working:
            fork = (
                fork_for_provider(arguments.directory, arguments.provider, library, working, **options)
                if arguments.provider is not None
                else fork_of(arguments.directory, library, through_seq=arguments.through, **options)
            )
    except ValueError:
        raise Misuse(f"there is no record {arguments.through}: the conversation has fewer") from None
    if arguments.json:
        say_json({"id": fork, "directory": f"{library.directory}/{fork}"})
    else:
        say(fork)
    return 0


GENERATIONS_DESCRIPTION = """\
List the generations of the conversation in DIR: those that a compaction, undo or other replace moved to archive/, and
the live one. Each is read and verified. `transcript-store show DIR --generation N` prints one. Nothing is changed without
--delete or --purge-quarantine: these permanently remove what must not be kept, such as a leaked secret.
"""
GENERATIONS_EPILOG = """\
exit code: 0 if every generation is intact, 1 if one is damaged

examples:
  transcript-store generations chats/today
  transcript-store show chats/today --generation 0
  transcript-store generations chats/today --delete 0 --purge-quarantine
"""


def configure_generations(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_backends=True)
    parser.add_argument(
        "--delete",
        metavar="N",
        type=whole_number,
        action="append",
        default=[],
        help="first delete this generation (may be repeated)",
    )
    parser.add_argument("--purge-quarantine", action="store_true", help="first empty quarantine/")
    add_keys(parser)
    add_json(parser, "one JSON object a generation")


def run_generations(arguments: Namespace) -> int:
    """Delete what the options name, then print the generations. The exit code is 1 if one is damaged."""
    is_change = arguments.delete or arguments.purge_quarantine
    with conversation_at(
        arguments.directory, read_only=not is_change, **command_keys(arguments).options
    ) as conversation:
        conversation.load()
        try:
            for number in arguments.delete:
                conversation.delete_generation(number)
        except ValueError:
            live = conversation.get_metadata().generation
            complain(f"--delete {live}: this generation is the live one; only archived ones can be deleted")
            return 2
        if arguments.purge_quarantine:
            conversation.purge_quarantine()
        found = conversation.generations()
    for generation in found:
        if arguments.json:
            say_json(asdict(generation))
        elif generation.damage is not None:
            say(f"{generation.number:>4}  damaged: {one_line(generation.damage)}")
        else:
            facts = (
                f"{generation.number:>4}",
                f"began {time(generation.began_at)}",
                f"{many(generation.record_count or 0, 'record'):>13}",
                f"{size(generation.size_bytes or 0):>8}",
                f"head {generation.head}",
            )
            say("  ".join(facts) + ("  live" if generation.is_live else ""))
    return 0 if all(generation.damage is None for generation in found) else 1


WRITERS_DESCRIPTION = """\
List the conversations of a library that are open to write, with the process, its host and the time; on a backend also the
holder's name and the time since its last write. Nothing is locked or claimed. On a backend every conversation is read. A released
one is not listed; a killed writer stays listed until another one takes over.
"""
WRITERS_EPILOG = """\
examples:
  transcript-store writers chats
  transcript-store writers postgresql://keeper@db.example/agents --json | jq -r .host
"""


def configure_writers(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "library", metavar="LIBRARY", type=path, nargs="?", help="the library (default: that of `chat`)"
    )
    add_json(parser, "one JSON object a writer")


def run_writers(arguments: Namespace) -> int:
    """Print a line for each writer."""
    (library,) = libraries([arguments.library] if arguments.library else [], on_backends=True)
    with Working("looking for writers"):
        found = library_at(library).writers()
    for writer in found:
        if arguments.json:
            say_json({**asdict(writer), "silent_seconds": _silent_seconds(writer)})
        else:
            say(f"{writer.id}  {one_line(_described(writer))}")
    if not (found or arguments.json):
        say(f"no conversation of {one_line(printable_name(library))} has a writer")
    say_unnamed(library, "writers")
    return 0


def _described(writer: ConversationWriter) -> str:
    by = f"process {writer.pid}" if writer.pid is not None else "a process that did not write its number"
    facts = [f"{writer.name}: {by}" if writer.name else by]
    facts[0] += f" on {writer.host}" if writer.host else ""
    facts.append(f"since {writer.since}" if writer.since else "")
    if (silent := _silent_seconds(writer)) is not None:
        facts.append(f"silent for {silent:,.0f} s")
    facts.append("takes turns" if writer.takes_turns else "")
    return ", ".join(filter(None, facts))


def _silent_seconds(writer: ConversationWriter) -> float | None:
    """The time since its last write, by both clocks."""
    if writer.last_write_at is None:
        return None
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(writer.last_write_at)).total_seconds())
