"""Small commands on one conversation: ``head``, ``rename``, ``delete``, ``fork``, ``generations``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from transcript_store import TranscriptStoreError, delete_conversation
from transcript_store.cli._shared.arguments import NAMES, add_conversation, add_json, add_through, count, path
from transcript_store.cli._shared.keys import add_keys, keys_of
from transcript_store.cli._shared.libraries import destination
from transcript_store.cli._shared.places import conversation_at, fork_of, is_address, library_at, with_id
from transcript_store.cli._shared.progress import Working
from transcript_store.cli._shared.terminal import Misuse, complain, many, one_line, say, say_json, size, time

# ---- head ------------------------------------------------------------------------------------------------------------

DESCRIPTION_HEAD = """\
Print the head of the conversation in DIR: the hash of its last record, which is chained to every record before it.
Kept elsewhere (in another system, on paper), it shows any later change of what it covers. It is not keyed: who can
write the files can compute a new one.
"""
EPILOG_HEAD = """\
examples:
  transcript-store head chats/today
  transcript-store head chats/today --json | jq -r .seq
"""


def configure_head(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    add_keys(parser)
    add_json(parser, "one JSON object with head, seq (the number of records), generation and id")


def run_head(arguments: Namespace) -> int:
    """Print the head."""
    with conversation_at(arguments.directory, read_only=True, **keys_of(arguments).options) as conversation:
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


# ---- rename ----------------------------------------------------------------------------------------------------------

DESCRIPTION_RENAME = f"""\
Give a conversation a title, which `list` shows: its label `title`. An empty TITLE takes it away. Its folder and its id stay
what they are.

{NAMES}"""
EPILOG_RENAME = """\
examples:
  transcript-store rename chats/0b8f "Moving house"
"""
_LABEL = "title"


def configure_rename(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    parser.add_argument("title", metavar="TITLE", help="what to call it; several words stand in quotes")
    add_keys(parser)


def run_rename(arguments: Namespace) -> int:
    """Set the label ``title``, or remove it if the title is empty."""
    with conversation_at(arguments.directory, **keys_of(arguments).options) as conversation:
        conversation.load(verify="tail")
        labels = {name: text for name, text in conversation.get_metadata().labels.items() if name != _LABEL}
        if arguments.title:
            labels[_LABEL] = arguments.title
        conversation.update_metadata(labels=labels)
    return 0


# ---- delete ----------------------------------------------------------------------------------------------------------

DESCRIPTION_DELETE = f"""\
Delete a conversation, with its archive and its quarantine. All of it goes, or, if another process is writing to it or the
disk refuses, nothing. There is no way back but a backup.

{NAMES}"""
EPILOG_DELETE = """\
examples:
  transcript-store delete chats/today
  transcript-store delete chats/0b8f
  transcript-store delete chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51
"""


def configure_delete(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    add_keys(parser, what="not needed to delete; it is looked at, and no more")
    add_json(parser, "one JSON object with the name of the folder that was deleted")


def run_delete(arguments: Namespace) -> int:
    """Delete the conversation, and print the name of its folder."""
    keys_of(arguments)
    if is_address(arguments.directory):
        library, name = with_id(arguments.directory)
        library_at(library).delete(name)
    else:
        delete_conversation(arguments.directory)
        name = os.path.basename(arguments.directory)
    if arguments.json:
        say_json({"deleted": name})
    else:
        say(f"deleted {one_line(name)}")
    return 0


# ---- fork ------------------------------------------------------------------------------------------------------------

DESCRIPTION_FORK = f"""\
Copy a conversation into a new one beside it, or into another library, and print the new one's id. Records keep their
times; the new conversation remembers where it parted from the old one. The old one may have a live writer.

{NAMES}"""
EPILOG_FORK = """\
examples:
  transcript-store fork chats/today
  transcript-store fork chats/0b8f --through 12
  transcript-store fork chats/last --into archive
  transcript-store fork chats 0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51
"""


def configure_fork(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    add_through(parser)
    parser.add_argument("--into", metavar="LIBRARY", type=path, help="the library to copy into (default: its own)")
    add_keys(parser, what="the key; the fork is sealed with it too")
    add_json(parser, "one JSON object with id and directory")


def run_fork(arguments: Namespace) -> int:
    """Fork the conversation, and print the new one's id."""
    into = None if arguments.into is None else destination(arguments.into)
    options = keys_of(arguments).options
    if into is None:
        into = (
            with_id(arguments.directory)[0] if is_address(arguments.directory) else os.path.dirname(arguments.directory)
        )
    library = library_at(into, creates=arguments.into is not None, **options)
    try:
        with Working("copying"):
            fork = fork_of(arguments.directory, library, through_seq=arguments.through, **options)
    except TranscriptStoreError:
        raise  # some of these are ValueErrors too
    except ValueError:
        raise Misuse(f"there is no record {arguments.through}: the conversation has fewer") from None
    if arguments.json:
        say_json({"id": fork, "directory": f"{library.directory}/{fork}"})
    else:
        say(fork)
    return 0


# ---- generations -----------------------------------------------------------------------------------------------------

DESCRIPTION_GENERATIONS = """\
List the generations of the conversation in DIR: what each compaction, undo or other replace has kept in archive/, and
the live one. Each is read and verified. `transcript-store show DIR --generation N` prints one. Nothing is changed, unless
--delete or --purge-quarantine is given: they remove what must not be kept (a leaked secret), for good.
"""
EPILOG_GENERATIONS = """\
exit code: 0 if every generation is whole, 1 if one is damaged

examples:
  transcript-store generations chats/today
  transcript-store show chats/today --generation 0
  transcript-store generations chats/today --delete 0 --purge-quarantine
"""


def configure_generations(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    add_conversation(parser, on_places=True)
    parser.add_argument(
        "--delete", metavar="N", type=count, action="append", default=[], help="first remove this one (may be repeated)"
    )
    parser.add_argument("--purge-quarantine", action="store_true", help="first remove all that is in quarantine/")
    add_keys(parser)
    add_json(parser, "one JSON object a generation")


def run_generations(arguments: Namespace) -> int:
    """Delete what is to be deleted, then print the generations. The exit code is 1 if one is damaged."""
    is_change = arguments.delete or arguments.purge_quarantine
    with conversation_at(arguments.directory, read_only=not is_change, **keys_of(arguments).options) as conversation:
        conversation.load()
        try:
            for number in arguments.delete:
                conversation.delete_generation(number)
        except TranscriptStoreError:
            raise  # some of these are ValueErrors too
        except ValueError:
            live = conversation.get_metadata().generation
            complain(f"--delete {live}: this generation is the live one; only what a replace has kept can be deleted")
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
