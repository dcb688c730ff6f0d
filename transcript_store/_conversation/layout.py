"""Does a folder hold a conversation, and do its files belong together?

::

    metadata.json   transcript.jsonl   archive/transcript-000000.jsonl …   quarantine/…   lock   .tmp-<32 hex>

Nothing here changes a file. Damage counts when two reads in a row see it: beside a writer, a transcript can look
damaged for a moment. Consistency of the files, which load, list, verify, repair and the archive check here:

* The live transcript and metadata.json are of the same conversation, and metadata.json is not of a later generation.
* An archived generation is of this conversation, has the number in its name, and ends where the replace that ended it
  noted. The next generation's header states that end (``replaces``). When a generation is removed from the archive, its
  header's statement moves into the metadata (``replaced``).
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from transcript_store._conversation.metadata import (
    REPLACED,
    MetadataDocument,
    NotADocument,
    decode_document,
    problem_with_members,
)
from transcript_store._log.damage import Kind
from transcript_store._log.header import NotAHeader, read_header
from transcript_store._log.record import FORMAT, LONGEST_METADATA_BYTES, Header, Position
from transcript_store._log.scan import first_line
from transcript_store._os.directory import Folder
from transcript_store._os.filesystem import FileSystem, NotOursError, refusals
from transcript_store._os.names import (
    ARCHIVE,
    KEY,
    LOCK,
    METADATA,
    QUARANTINE,
    TRANSCRIPT,
    is_generation,
    is_id,
    is_quarantined,
    is_temporary,
)
from transcript_store.display import many
from transcript_store.errors import (
    ConversationNotFoundError,
    CorruptMetadataError,
    CorruptTranscriptError,
    UnsupportedVersionError,
)
from transcript_store.hints import Hint

FILE_IN_PLACE = "a file is in the place of a conversation's folder"
_HARMLESS = frozenset({LOCK, "lost+found"})


def open_folder(
    files: FileSystem,
    path: str,
    *,
    absent: str = "there is no conversation",
    hint: Hint = Hint.CHECK_THE_PATH,
) -> Folder:
    """Open the folder of a conversation; if there is none, the error says ``absent`` and ``hint``."""
    try:
        return Folder.open(files, path)
    except FileNotFoundError:
        raise ConversationNotFoundError(path=path, reason=absent, hint=hint) from None
    except NotADirectoryError:
        chosen = Hint.CHOOSE_A_FOLDER
        raise CorruptTranscriptError(path=path, kind="foreign", reason=FILE_IN_PLACE, hint=chosen) from None


def read_metadata(folder: Folder) -> MetadataDocument:
    """metadata.json, whole; raises ``CorruptMetadataError`` or ``UnsupportedVersionError``."""
    path = folder.path_of(METADATA)
    with refusals(path, "read the metadata"):
        try:
            data = metadata_bytes(folder)
        except NotOursError as error:
            raise CorruptMetadataError(path=path, kind="foreign", reason=error.reason) from None
    if data is None:
        raise CorruptMetadataError(path=path, kind="missing", reason="the file is missing")
    document = decode_document(data)
    if isinstance(document, NotADocument):
        if document.version is not None:
            raise UnsupportedVersionError(path=path, reason=document.reason)
        raise CorruptMetadataError(path=path, kind="damaged", reason=document.reason)
    return document


def header_of(folder: Folder, name: str = TRANSCRIPT) -> Header | None:
    """The first line of a transcript; None if it is missing or damaged."""
    try:
        with folder.reading(name) as source:
            found = read_header(first_line(source.read, source.size))
    except (FileNotFoundError, NotOursError):
        return None
    return None if isinstance(found, NotAHeader) else found[0]


def metadata_bytes(folder: Folder) -> bytes | NotADocument | None:
    """The bytes of metadata.json; None if there is none, ``NotADocument`` if it is too long. Raises ``NotOursError``.

    The length is checked first: a sparse file takes no space on disk but all of its length in memory.
    """
    try:
        with folder.reading(METADATA) as source:
            if (size := source.size) > LONGEST_METADATA_BYTES:
                return NotADocument(
                    f"it is {many(size, 'byte')} long, and metadata has {LONGEST_METADATA_BYTES:,} at most"
                )
            return bytes(source.read(0, size))
    except FileNotFoundError:
        return None


def require_conversation(folder: Folder) -> None:
    """Raise unless a folder holds at least a part of a conversation. Then the folder is ours, and may be locked.

    metadata.json is read only if the transcript is missing or is not ours: a load reads it later, with the lock held.
    """
    if _begins_like_ours(folder):
        return
    names = names_in(folder)
    if (error := absence(names, folder.path)) is not None:
        raise error
    if TRANSCRIPT in names and _begins_like_ours(folder):  # another process created it between the two reads
        return
    if METADATA not in names:
        what = f"{TRANSCRIPT} is not ours"
        raise CorruptTranscriptError(path=folder.path, kind="foreign", reason=what, hint=Hint.CHOOSE_A_FOLDER)
    document = read_metadata(folder)
    if TRANSCRIPT in names or folder.status(TRANSCRIPT) is not None:  # or it was created while we read
        return
    if document.mark is not None:
        what = f"{METADATA} remembers a transcript, and it is missing"
        raise CorruptTranscriptError(path=folder.path, kind="missing", reason=what)
    raise never_finished(folder.path)


def never_finished(path: str) -> ConversationNotFoundError:
    """The error for a metadata.json that has no mark and no transcript beside it."""
    what = "there is only the start of a create that never finished"
    return ConversationNotFoundError(path=path, reason=what, hint=Hint.INITIALIZE)


def _begins_like_ours(folder: Folder) -> bool:
    try:
        with folder.reading(TRANSCRIPT) as source:
            # The first bytes alone: a damaged header is damage of ours, and must not make the folder look foreign
            # (P13).
            return source.read(0, len(FORMAT)) == FORMAT
    except (NotOursError, FileNotFoundError):
        return False


def occupant(files: FileSystem, path: str) -> str | None:
    """Why no conversation can be created at a path, in words; None if one can.

    An empty folder can be used, and so can a fresh volume, and the leftovers of an unfinished create: a lock, temporary
    files, and a metadata.json whose mark is void, perhaps with a key.json. A folder inside another conversation's
    folder cannot: deleting that one would delete both.
    """
    with refusals(path, "look at the folder"):
        return _occupant_at(files, path) or _conversation_around(files, path)


def _occupant_at(files: FileSystem, path: str) -> str | None:
    try:
        folder = Folder.open(files, path)
    except FileNotFoundError:
        return _dangling_link(files, path)
    except NotADirectoryError:
        return FILE_IN_PLACE
    with folder:
        return occupant_of(folder)


def _conversation_around(files: FileSystem, path: str) -> str | None:
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError), Folder.open(files, path) as folder:
            if _begins_like_ours(folder):
                return f"the folder would be inside that of another conversation, {path}; choose one beside it"
    return None


def _dangling_link(files: FileSystem, path: str) -> str | None:
    parent, _, name = path.rpartition("/")
    try:
        with Folder.open(files, parent or "/") as folder:
            status = folder.status(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # Anything else was made meanwhile, perhaps by a process that creates the conversation: the caller meets it itself.
    is_link = status is not None and stat.S_ISLNK(status.st_mode)
    return "there is a symbolic link that leads nowhere" if is_link else None


def occupant_of(folder: Folder) -> str | None:
    """As :func:`occupant`, for an open folder; its parent folders are not checked."""
    names = names_in(folder)
    if TRANSCRIPT in names:
        return "there is a conversation already"
    if METADATA in names:
        try:
            document = decode_document(metadata_bytes(folder))
        except NotOursError as error:
            return f"{METADATA}: {error.reason}"
        if isinstance(document, NotADocument) or document.mark is not None:
            return f"there is a {METADATA} of a conversation that lost its transcript, or of something else"
    if LOCK in names and (reason := in_place_of_file(folder, LOCK)) is not None:
        return f"{LOCK}: {reason}"
    # A key file counts as a leftover only beside a metadata.json with a void mark: a create writes it after that (P13).
    others = _others(names - {METADATA, KEY} if METADATA in names else names)
    return f"the folder is not empty ({others})" if others else None


def sync_name(folder: Folder) -> None:
    """Before a conversation is written to, or copied: make sure that a power loss cannot take its folder's name.

    A conversation that was created in a staging area has no lock file. Its process may have been killed between the
    rename to its name and the sync of that. So the first process that would create a lock file there syncs the name
    before.

    Raises:
        PermissionError: the library may not be read, so it cannot be synced.
    """
    if folder.status(LOCK) is None:
        with suppress(FileNotFoundError), folder.parent() as parent:  # one that was deleted just now has no name
            parent.sync_to_copy()


def in_place_of_file(folder: Folder, name: str) -> str | None:
    """A word for a non-file with the name of one of our files; None for a file, or nothing."""
    with suppress(FileNotFoundError):
        try:
            folder.files.close(folder.open_file(name)[0])
        except NotOursError as error:
            return error.reason
    return None


def names_in(folder: Folder) -> set[str]:
    """The names in a folder. A listing may miss a file that is being replaced, so ours are looked up if one is missing."""
    names = {*folder.names()}
    for name in (METADATA, TRANSCRIPT):
        if name not in names and folder.status(name) is not None:
            names.add(name)
    return names


def absence(names: set[str], path: str) -> ConversationNotFoundError | CorruptTranscriptError | None:
    """Why a folder with these names holds no conversation at all; None if it holds at least a part of one."""
    if {METADATA, TRANSCRIPT} & names:
        return None
    # Not "there is nothing": the folder had a conversation, and an archive may have all of its messages.
    if {ARCHIVE, QUARANTINE} & names:
        what = "the folder holds an archive or a quarantine, but no transcript"
        return CorruptTranscriptError(path=path, kind="missing", reason=what)
    if any(map(is_id, names)):
        what = "the folder is a library of conversations, each in its own folder"
        return ConversationNotFoundError(path=path, kind="foreign", reason=what, hint=Hint.OPEN_ONE_OF_THEM)
    if others := _others(names):
        what = f"the folder holds {others}, and no conversation"
        return ConversationNotFoundError(path=path, kind="foreign", reason=what, hint=Hint.CHOOSE_A_FOLDER)
    return ConversationNotFoundError(path=path, reason="the folder is empty", hint=Hint.INITIALIZE)


def strangers(folder: Folder) -> str:
    """Foreign names in a conversation's folder, its archive or its quarantine, for a message; "" if there are none."""
    found = names_in(folder) - {METADATA, TRANSCRIPT, KEY, ARCHIVE, QUARANTINE}
    for name, is_ours in ((ARCHIVE, is_generation), (QUARANTINE, is_quarantined)):
        with suppress(FileNotFoundError, NotOursError), folder.subfolder(name) as subfolder:
            found |= {
                f"{name}/{entry}" for entry in subfolder.names() if not is_ours(entry) and not is_temporary(entry)
            }
    return _others(found)


def _others(names: set[str]) -> str:
    """Names that are not the leftovers of an unfinished create, for a message."""
    others = sorted(name for name in names - _HARMLESS if not is_temporary(name))
    shown = ", ".join(repr(name) for name in others[:3])
    return f"{shown} and {len(others) - 3} more" if len(others) > 3 else shown


_ATTEMPTS = 20
_WAIT_SECONDS = 0.005

Found = TypeVar("Found")


def twice(
    files: FileSystem,
    look: Callable[[], Found],
    is_fine: Callable[[Found], bool],
    *,
    key: Callable[[Found], Any] = lambda found: found,
) -> Found:
    """Read until the result is fine, or the same in two reads in a row (by its ``key``), or for at most 20 reads."""
    found = look()
    for _ in range(_ATTEMPTS - 1):
        if is_fine(found):
            return found
        before = key(found)
        files.wait(_WAIT_SECONDS)
        found = look()
        if key(found) == before:
            return found
    return found


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
        # An end that no existing generation needs is dropped, so the metadata does not grow with every delete.
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
