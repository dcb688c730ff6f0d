"""Names of conversations and libraries, for people."""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from transcript_store.cli._shared.terminal import (
    Misuse,
    complain,
    fitting,
    for_shell,
    many,
    one_line,
    size,
)
from transcript_store.cli._shared.terminal import time as moment_of
from transcript_store.display import printable_address
from transcript_store.errors import ConversationNotFoundError, StorageError
from transcript_store.file_names import TRANSCRIPT, absolute_path, is_id
from transcript_store.hints import Hint

if TYPE_CHECKING:
    from transcript_store import ConversationLibrary, ConversationStore, ConversationSummary, Diagnosis, FileStore
    from transcript_store.backends import BackendSnapshotStore

    Snapshots = FileStore | BackendSnapshotStore

# ---- backends ----
#
# Conversations and libraries by name, in a folder or on a backend: ``postgresql://host/database``, ``s3://bucket/prefix``.
#
# A name with ``://`` is the address of a library on a backend; a conversation there is the address followed by its id. Addresses
# may hold a password: what is printed is the backend's name, which has none. ``transcript_store.backends`` is imported only once
# a name is an address.

LAST = "last"
_SHORT = 8
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
BEGINNING = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")
"""The start of an id, at least four characters. With fewer, a mistyped folder name would often match an id."""


def is_backend_address(name: str) -> bool:
    """True if a name is the address of a backend, or of a conversation on one. Any other name is a path."""
    return _ADDRESS.match(name) is not None


class Address(NamedTuple):
    """The address of a library, and the id or ``last`` after it, if any."""

    library: str
    what: str | None


def taken_apart(name: str) -> Address:
    """An address without its conversation: the last part of the path, if that is an id or ``last``."""
    address, mark, options = name.partition("?")
    above, _, what = address.rpartition("/")
    if is_id(behind := options.rpartition("/")[2]) or behind == LAST:  # a hasty user writes it after the options
        (above, what), options = (address, behind), options.rpartition("/")[0]
    is_database = name.startswith("postgres") and "/" not in above.partition("://")[2]
    if not (is_id(what) or what == LAST) or is_database:
        return Address(name, None)
    return Address(f"{above}{mark}{options}", what)


def conversation_on(library: str, what: str) -> str:
    """The address of a conversation."""
    address, mark, options = library.partition("?")
    return f"{address.rstrip('/')}/{what}{mark}{options}"


def existing_on(library: str, what: str) -> str:
    """The address of the conversation that ``what`` means: an id, the start of one, or ``last``.

    Raises:
        Misuse: several ids start with it.
        ConversationNotFoundError: nothing there has that name.
    """
    if is_id(what):
        return conversation_on(library, what)  # opening it shows whether it exists
    there = library_at(library)
    if what == LAST:
        found = [summary.id for summary in there.list(limit=1)]
    elif BEGINNING.fullmatch(what):
        found = [summary.id for summary in there.iter_list() if (summary.id or "").startswith(what)]
    else:
        found = []
    if (own_id := the_only(found, what, there.directory)) is None:
        reason = "there is no conversation yet" if what == LAST else f"there is no conversation {what!r}"
        raise ConversationNotFoundError(path=there.directory, reason=reason)
    return conversation_on(library, own_id)


def the_only(found: Sequence[str | None], what: str, where: str) -> str | None:
    """The only conversation of a list of ids with this start; None if the list is empty.

    Raises:
        Misuse: there are several.
    """
    if len(found) > 1:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise Misuse(f"{where}: {len(found)} ids start with {what}: {', '.join(map(str, found[:5]))}{more}")
    return found[0] if found else None


def library_at(name: str, *, creates: bool = False, **options: Any) -> ConversationLibrary:
    """The library of that name, a directory or an address. With ``creates``, missing tables of a database are created."""
    from transcript_store import ConversationLibrary  # not needed to list or search a folder

    return ConversationLibrary(backend_at(name, creates=creates) if is_backend_address(name) else name, **options)


def library_of(name: str) -> ConversationLibrary:
    """The library that a conversation is in."""
    return library_at(with_id(name)[0] if is_backend_address(name) else os.path.dirname(name))


def conversation_at(name: str, *, creates: bool = False, **options: Any) -> ConversationStore:
    """The store of that name, a folder or the address of a conversation; not loaded yet. For ``creates`` see :func:`library_at`."""
    if not is_backend_address(name):
        from transcript_store import ConversationStore

        return ConversationStore(name, **options)
    library, own_id = with_id(name)
    return library_at(library, creates=creates).store(own_id, **options)


def snapshots_at(name: str, *, creates: bool = False, **options: Any) -> Snapshots:
    """The snapshot store of that name, a directory or the address of a library. For ``creates`` see :func:`library_at`.

    Raises:
        Misuse: the address names a conversation.
    """
    if not is_backend_address(name):
        from transcript_store import FileStore

        return FileStore(name, **options)
    library, what = taken_apart(name)
    if what is not None:
        raise Misuse(
            f"{printable_name(name)} is a conversation: snapshots are kept at the address of a library, {printable_name(library)}"
        )
    from transcript_store.backends import BackendSnapshotStore

    return BackendSnapshotStore(backend_at(library, creates=creates), **options)


def summary_at(name: str) -> ConversationSummary | None:
    """The current summary of that conversation; None if it does not exist."""
    if not is_backend_address(name):
        from transcript_store.transcripts import summary_of

        return summary_of(name)
    from transcript_store.search import index_source

    library, own_id = with_id(name)
    listed = index_source(library_at(library))
    try:
        return listed.summary(own_id)
    finally:
        listed.close()


NOT_ITS_ID = "the folder's name is not the conversation's id, which `list --json` shows: rename it, or fork it"


def folders_without_ids(library: str) -> list[ConversationSummary]:
    """The conversations of a directory that `list` shows and a library's calls skip: no id names their folders."""
    if is_backend_address(library):
        return []
    names = sorted(name for name in os.listdir(library) if not (is_id(name) or name.startswith(".")))
    paths = [path for name in names if os.path.lexists(os.path.join(path := os.path.join(library, name), TRANSCRIPT))]
    return [summary for summary in map(summary_at, paths) if summary is not None]


def with_id(name: str) -> tuple[str, str]:
    """The address of the library, and the id.

    Raises:
        Misuse: the address names no conversation.
    """
    library, what = taken_apart(name)
    if what is None:
        raise Misuse(
            f"{printable_name(name)} is a library: name a conversation in it, as "
            f"{printable_name(name).rstrip('/')}/ID{_begun(printable_name(name))}"
        )
    if what == LAST:
        _, what = taken_apart(existing_on(library, LAST))
    return library, what or ""


def _begun(name: str) -> str:
    """A hint, if the last part of an address may be the start of an id: a folder of a bucket may have such a name too."""
    library, _, what = name.rpartition("/")
    return f"; write the start of an id as a second word: {library} {what}" if BEGINNING.fullmatch(what) else ""


def refuse(name: str, command: str) -> None:
    """Refuse an address, for a command that needs a folder.

    Raises:
        Misuse: it is an address. The sentence has a hint.
    """
    if is_backend_address(name):
        kept = "`transcript-store fork URL --into DIR` makes a copy in a folder"
        raise Misuse(f"{printable_name(name)}: `{command}` needs a folder, and this is on a backend; {kept}")


def printable_name(name: str) -> str:
    """An address without the user, the password and the options, to be printed."""
    return printable_address(name) if is_backend_address(name) else name


def require_outside(target: str, library: str) -> None:
    """Raise if files to be written would be in a library: there they would be taken for conversations, or be in the way."""
    if is_backend_address(library):
        return
    real, home = os.path.realpath(os.path.expanduser(target)), os.path.realpath(os.path.expanduser(library))
    if os.path.commonpath((real, home)) == home:
        where = "is the library itself" if real == home else f"is in the library {home}"
        raise Misuse(f"{target} {where}: name a place outside of it")


def command_name(library: str, own_id: str) -> str:
    """The name of a conversation for a command, as a word of a shell: as short as possible, in the default library without a path."""
    name = short_ids(library)(own_id)
    if is_default(library):
        return for_shell(name)
    if is_backend_address(library):
        return for_shell(conversation_on(library, own_id))
    return for_shell(os.path.join(library, name))


def short_ids(library: str) -> Callable[[str], str]:
    """A function that shortens a library's ids: to eight characters, or to as many as make them unique."""
    if is_backend_address(library):
        return lambda own_id: own_id  # listing all of them would cost more than a long line
    with suppress(OSError):
        names = sorted(name for name in os.listdir(library) if is_id(name))
        return partial(_shortened, names)
    return lambda own_id: own_id


def _shortened(names: Sequence[str], own_id: str) -> str:
    if not is_id(own_id):
        return own_id
    at = bisect_left(names, own_id)
    beside = [name for name in names[max(0, at - 1) : at + 2] if name != own_id]
    same = max(
        (next(at for at, pair in enumerate(zip(name, own_id, strict=True)) if pair[0] != pair[1]) for name in beside),
        default=0,
    )
    length = max(_SHORT, same + 1)
    return own_id[:length].rstrip("-") if length <= _SHORT else own_id[:length]


def examined(address: str) -> Diagnosis:
    """The findings of ``doctor`` at an address.

    Raises:
        Misuse: the address names a conversation.
    """
    from transcript_store.backends import examine

    library, what = taken_apart(address)
    if what is not None:
        raise Misuse(f"{printable_name(address)} is a conversation: doctor tests the library {printable_name(library)}")
    return examine(backend_at(library))


def backend_at(address: str, *, creates: bool = False) -> Any:
    """The backend at an address. For ``creates`` see :func:`library_at`."""
    return _opened(address, creates and address.startswith("postgres"))  # other backends have no tables


@cache
def _opened(address: str, creates: bool) -> Any:
    from transcript_store.backends import open_backend

    try:
        return open_backend(address, create=creates)
    except ValueError as error:
        raise Misuse(str(error)) from None


# ---- names ----

_LONGEST = 60
"""In columns: of a name in a sentence."""


def called(summary: ConversationSummary, **keys: Any) -> str:
    """The name of a conversation: its title, first prompt, or program and start time. ``keys`` open a sealed one."""
    from transcript_store.naming import name_at, name_of  # needs the formats; most commands print no names

    return name_of(summary) if is_backend_address(summary.directory) else name_at(summary, **keys)


def project_of(labels: Mapping[str, str]) -> str:
    """The last name of the conversation's project folder."""
    return one_line(os.path.basename(labels.get("cwd", "").rstrip("/")))


def described(summary: ConversationSummary, **keys: Any) -> str:
    """A conversation in a sentence: its name, folder, size and the time of its last message."""
    facts = (
        one_line(os.path.basename(summary.directory)),
        None if summary.record_count is None else many(summary.record_count, "record"),
        None if summary.size_bytes is None else size(summary.size_bytes),
        None if summary.updated_at is None else moment_of(summary.updated_at),
    )
    return f"“{fitting(one_line(called(summary, **keys)), _LONGEST)}” ({', '.join(filter(None, facts))})"


# ---- conversations ----
#
# Find the conversation that a person names: by its folder, its id, the start of its id, or as ``last``.

_TOO_SHORT = re.compile(r"[0-9a-f]{1,3}")


VARIABLE = "TRANSCRIPT_STORE_LIBRARY"
"""The variable that names the default library, that of ``chat``: a directory, or a backend's address."""


def default_library() -> str:
    """The name of the default library: the variable's value, otherwise a folder in the user's data directory.

    Raises:
        Misuse: the variable names no library. The error names the variable, which the user may not think of.
    """
    if named := os.environ.get(VARIABLE, "").strip():  # an empty variable (`NAME=` in a unit file) means none
        return _library_of_the_variable(named)
    from platformdirs import user_data_path

    return str(user_data_path("transcript-store") / "conversations")


def _library_of_the_variable(named: str) -> str:
    if is_backend_address(named):
        library, what = taken_apart(named)
        if what is not None:
            raise Misuse(f"{VARIABLE} names a conversation; name the library: {printable_name(library)}")
        try:
            library_at(named)
        except Misuse as error:
            raise Misuse(f"{VARIABLE}: {error}") from None
        return named
    path = absolute_path(named)
    if os.path.exists(path) and not os.path.isdir(path):
        raise Misuse(f"{VARIABLE}: {path} is not a directory; name a library's directory, or a backend's address")
    return path


def is_default(library: str) -> bool:
    """True if it is the default library."""
    with suppress(Misuse):
        return library == default_library()
    return False


def chat_library(**options: Any) -> ConversationLibrary:
    """The library in which ``chat`` keeps its conversations. Raises as :func:`default_library`."""
    return library_at(default_library(), **options)


def resolve_name(name: str) -> str:
    """The path of the conversation that a name means. If there is none, the name itself as a path.

    An existing path is used. Otherwise ``chats/0b8f`` is searched for among the conversations in ``chats``, ``./0b8f`` among
    those in the working directory, and ``0b8f`` in the default library: :func:`default_library`.

    Raises:
        Misuse: several ids start with the name.
    """
    if is_backend_address(name):
        library, what = taken_apart(name)
        return name if what is None else existing_on(library, what)
    path = absolute_path(name)
    if os.path.lexists(path):
        return path
    return find_in(_library_meant(name) or os.path.dirname(path), os.path.basename(path)) or path


def _library_meant(name: str) -> str | None:
    """The library to search for a name without one; None if it has one, or does not name a conversation of a library.

    Raises:
        Misuse: as :func:`default_library`.
    """
    if os.path.dirname(name) or not _is_in_a_library(name):
        return None
    return default_library()


def _is_in_a_library(what: str) -> bool:
    return what == LAST or BEGINNING.fullmatch(what) is not None


def existing(name: str, in_library: str | None = None) -> str:
    """As :func:`resolve_name`, for a command that needs the conversation to exist. The name may have two words: a library and a name in it.

    Raises:
        Misuse: several ids start with the name.
        ConversationNotFoundError: it is too short for the start of an id, or no conversation of the library has it. For any other
            name the command itself reports what is missing.
    """
    if in_library is not None and is_backend_address(name):
        return existing_on(name, in_library)
    path = resolve_name(f"{name}/{in_library}" if in_library else name)
    if is_backend_address(path):
        with_id(path)  # or it is a library
        return path
    if os.path.lexists(path):
        return path
    require_a_view(path)
    if in_library is None and (library := _library_meant(name)) is not None:
        here = f"; the one in this directory is ./{name}" if find_in(os.getcwd(), name) else ""
        reason = "there is no conversation yet" if name == LAST else f"there is no conversation {name!r}"
        if BEGINNING.fullmatch(name):  # an id here is a hash of the program's, so its start means nothing
            reason += " (give the id that a program gave a session in full)"
        raise ConversationNotFoundError(path=printable_name(library), reason=f"{reason}{here}")
    if _TOO_SHORT.fullmatch(os.path.basename(path)):
        reason = "the start of an id has at least four characters, and there is no conversation of this name"
        raise ConversationNotFoundError(path=path, reason=reason)
    if in_library is not None:
        reason = "there is no conversation (two words mean a library, and a conversation in it)"
        raise ConversationNotFoundError(path=path, reason=reason)
    return path


def conversation_and_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """The path of the conversation that the first word names, or the first two (a library, and a name in it); and the other words.

    Raises:
        Misuse, ConversationNotFoundError: as :func:`existing`.
    """
    first, *others = words
    if others and _is_library(first):
        return existing(first, others[0]), others[1:]
    return existing(first), others


def _is_library(name: str) -> bool:
    if is_backend_address(name):
        return taken_apart(name).what is None
    path = absolute_path(name)
    return os.path.isdir(path) and not os.path.lexists(os.path.join(path, TRANSCRIPT))


def find_in(directory: str, what: str) -> str | None:
    """The path of the conversation in a directory that ``what`` means; None if there is none.

    ``what`` is an id, the start of an id, the id that a program gave the session, or ``last``: the latest conversation.

    Raises:
        Misuse: several ids start with ``what``.
    """
    if not _is_in_a_library(what):
        return None
    if is_backend_address(directory):
        with suppress(ConversationNotFoundError):
            return existing_on(directory, what)
        return None
    from transcript_store import list_conversations  # not needed for a folder's name

    try:
        there = list_conversations(directory)
    except ConversationNotFoundError:
        return None
    found = there[:1] if what == LAST else [summary for summary in there if _begins(summary, what)]
    if not found and is_id(what):
        own_ids = _ids_of_session(what)
        found = [summary for summary in there if summary.id in own_ids]
    the_only([summary.id or summary.directory for summary in found], what, directory)
    return found[0].directory if found else None


def _ids_of_session(session: str) -> set[str]:
    """The ids that conversations imported from a session of any program have."""
    from transcript_store.importing import conversation_id  # only for a name that is no other
    from transcript_store.sources import session_folders

    return {conversation_id(place.program, session) for place in session_folders()}


def _begins(summary: ConversationSummary, what: str) -> bool:
    return (summary.id or "").startswith(what) or os.path.basename(summary.directory).startswith(what)


# ---- libraries ----
#
# The libraries of a command.

_NONE_YET = (
    "there is no conversation yet; `transcript-store chat` starts one, `transcript-store import` imports those of other "
    "programs, or name a library"
)
_NONE_HERE = "there is no conversation directly under it"


def libraries(given: Sequence[str], *, on_backends: bool = False) -> list[str]:
    """The directories of these libraries; without any that of ``chat``. Each of them is a directory, or, ``on_backends``, an address.

    Raises:
        Misuse: none is given, and the extra that ``chat`` needs is not installed.
        ConversationNotFoundError: one does not exist, or is a file or a conversation; the sentence has a hint.
    """
    directories = [one if is_backend_address(one) else absolute_path(one) for one in given or [_of_chat()]]
    for directory in directories:
        if not is_backend_address(directory):
            _refuse_a_conversation(directory, given)
            _check(directory)
        elif not on_backends:
            raise Misuse(
                f"{printable_name(directory)} is on a backend, and this command needs the directory of a library"
            )
    return directories


def _refuse_a_conversation(directory: str, given: Sequence[str]) -> None:
    """Refuse `chats/last`, `last` or the start of an id in place of a library: no folder has that name, but a conversation is meant."""
    if os.path.lexists(directory):
        return
    what = os.path.basename(directory)
    library = (what in given and _library_meant(what)) or os.path.dirname(directory)
    if find_in(library, what) is not None:
        reason = f"this means a conversation, not a library; name its library: {for_shell(printable_name(library))}"
        raise ConversationNotFoundError(path=directory, reason=reason, hint=None)


def the_library(given: str | None, *, on_backends: bool = False) -> str:
    """The directory of one library, by default the default one, which standard error then names.

    Raises:
        Misuse, ConversationNotFoundError: as :func:`libraries`.
    """
    (directory,) = libraries([] if given is None else [given], on_backends=on_backends)
    if given is None:
        complain(f"in {printable_name(directory)}, as no library is named")
    return directory


def query_and_libraries(
    words: Sequence[str], *, needs_query: bool = True, is_of_paths: bool = False
) -> tuple[str, list[str]]:
    """The query in a command line's words, and the libraries that the last words name.

    A word names a library if it is an address, the path of a directory that holds conversations or that this user may not list, the
    path of a conversation (:func:`libraries` refuses it), or ends with a slash; with ``is_of_paths`` also if it can only be a path.
    If the command ``needs_query``, the first word always belongs to the query.
    """
    end = len(words)
    while end > needs_query and (_names_a_library(words[end - 1]) or (is_of_paths and is_path(words[end - 1]))):
        end -= 1
    return " ".join(words[:end]), list(words[end:])


def _names_a_library(word: str) -> bool:
    if is_backend_address(word):
        return not word.startswith(("http:", "https:"))
    path = os.path.expanduser(word)
    if not os.path.isdir(path):
        library, name = os.path.split(path)
        # `chats/last` is a conversation. As a word it would be looked for in another library, and not be found.
        means_one = os.path.isdir(library) and find_in(library, name) is not None
        return means_one or (word.endswith("/") and len(word) > 1)
    return is_path(word) or _has_conversations(path, if_refused=True) or os.path.lexists(os.path.join(path, TRANSCRIPT))


def is_path(word: str) -> bool:
    """True if a word can only be a path: it is absolute, or leads to another directory."""
    return word in (".", "..") or word.startswith(("/", "./", "../", "~/"))


def destination(named: str) -> str:
    """The directory of a library to write into, which may not exist yet; or a backend's address.

    Raises:
        ConversationNotFoundError: it is a file or a conversation; the sentence has a hint.
        Misuse: a new library cannot have this name: it means a conversation.
    """
    if is_backend_address(named):
        return named
    directory = absolute_path(named)
    if os.path.lexists(directory):
        _check(directory)
    elif os.path.basename(directory) == LAST:
        raise Misuse(f"{for_shell(named)}: `last` means the latest conversation; name a library: a directory")
    elif find_in(os.path.dirname(directory), os.path.basename(directory)) is not None:
        raise Misuse(f"{for_shell(named)}: this means a conversation; name a library: a directory")
    return directory


def import_destination(into: str | None) -> str:
    """The library to import into: the named one, else that of ``chat``.

    Raises:
        ConversationNotFoundError: as :func:`destination`.
        Misuse: as :func:`default_library`.
    """
    if into is not None:
        return destination(into)
    return default_library()


def none_in(directory: str) -> str | None:
    """A sentence for a library without conversations, naming folders in it that have some; None if it has one."""
    if _has_conversations(directory):
        return None
    return too_high(directory) or _NONE_HERE


def too_high(directory: str) -> str | None:
    """A sentence for a folder that is not a library but contains some; else None.

    The projects of a Claude Agent are such folders, and a user may name the folder above.
    """
    if _has_conversations(directory):
        return None
    with suppress(OSError), os.scandir(directory) as folders:
        within = sorted(folder.path for folder in folders if _has_conversations(folder.path))
        if within:
            found = f"{many(len(within), 'folder')} in it have some, such as {for_shell(within[0])}"
            return f"{_NONE_HERE}; {found}: name that"
    return None


def say_unnamed(library: str, command: str) -> None:
    """Say on standard error which conversations of a directory a command skips."""
    if left := folders_without_ids(library):
        complain(f"{command} skips {many(len(left), 'folder')}, such as {for_shell(left[0].directory)}: {NOT_ITS_ID}")


def _has_conversations(directory: str, *, if_refused: bool = False) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(os.path.lexists(os.path.join(entry.path, TRANSCRIPT)) for entry in entries)
    except PermissionError:
        return if_refused
    except OSError:
        return False


def require_a_view(path: str) -> None:
    """Raise unless this user may see whether a path exists: in a closed folder `lexists` says that nothing does.

    Raises:
        StorageError: a folder above it is closed to this user.
    """
    try:
        os.lstat(path)
    except PermissionError as error:
        raise StorageError(
            errno=error.errno or errno.EACCES,
            strerror=error.strerror or "",
            path=os.path.dirname(path),
            doing="look into the folder",
            hint=Hint.CHECK_PERMISSIONS,
        ) from None
    except (OSError, ValueError):
        pass  # there is nothing of that name


def _check(directory: str) -> None:
    require_a_view(directory)
    if not os.path.lexists(directory):
        raise ConversationNotFoundError(path=directory, reason="there is no such directory")
    if not os.path.isdir(directory):
        reason = "this is a file, not a library; name a directory"
        raise ConversationNotFoundError(path=directory, reason=reason, hint=None)
    if os.path.lexists(os.path.join(directory, TRANSCRIPT)):
        reason = f"this is a conversation, not a library; name its library: {for_shell(os.path.dirname(directory))}"
        raise ConversationNotFoundError(path=directory, reason=reason, hint=None)


def _of_chat() -> str:
    directory = default_library()
    if not is_backend_address(directory) and not os.path.isdir(directory):
        raise ConversationNotFoundError(path=directory, reason=_NONE_YET, hint=None)
    return directory
