"""``transcript-store secrets``: find secrets, and remove them from a library."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from transcript_store import ConversationLibrary, ConversationNotFoundError
from transcript_store.cli._shared.arguments import add_json, path
from transcript_store.cli._shared.hints import error_sentence
from transcript_store.cli._shared.keys import add_keys, command_keys
from transcript_store.cli._shared.names import (
    is_backend_address,
    libraries,
    library_at,
    printable_name,
    snapshots_at,
    the_library,
)
from transcript_store.cli._shared.redaction import add_redact_pattern
from transcript_store.cli._shared.terminal import (
    Misuse,
    Working,
    complain,
    confirmed,
    for_shell,
    is_at_a_terminal,
    many,
    one_line,
    say,
    say_json,
)
from transcript_store.importing import discover, import_conversations
from transcript_store.redaction import SecretRedactor
from transcript_store.search import SearchIndex
from transcript_store.secrets import (
    FoundSecrets,
    find_secrets,
    find_secrets_in_snapshots,
    forget_secrets,
    keeping_what_was_redacted,
)
from transcript_store.snapshots import SnapshotStore


def forget(
    arguments: Namespace,
    directories: Sequence[str],
    redactor: SecretRedactor,
    *,
    snapshots: Iterable[tuple[SnapshotStore, FoundSecrets]] = (),
) -> int:
    """Remove the secrets from these libraries and their search indexes, and report it. Return 1 if some are left."""
    report = SecretsReport(is_json=arguments.json, is_past=True)
    keys = command_keys(arguments).options
    for directory in directories:
        library = library_at(directory, **keys)
        for one in forget_secrets(library, redact=redactor, **({} if is_backend_address(directory) else keys)):
            report.say(one)
        with SearchIndex(library) as index:
            # It has words of deleted text: also if nothing was found, because a run before was killed here.
            index.purge()
    for store, snapshot in snapshots:
        if snapshot.reason is None:
            store.delete(str(snapshot.id))
        report.say(snapshot)
    if not arguments.json:
        report.say_sum()
    return int(report.is_any_left)


def say_what_is_kept(library: ConversationLibrary, redactor: SecretRedactor, say_it: Callable[[str], None]) -> None:
    """After a redacting import, report how many conversations keep a generation with secrets, and how to remove it."""
    with Working("checking earlier generations"):
        count = sum(1 for _ in keeping_what_was_redacted(library, redactor))
    if count:
        patterns = "".join(f" --redact-pattern {for_shell(one)}" for one in redactor.patterns)
        command = f"transcript-store secrets {for_shell(printable_name(library.directory))} --forget{patterns}"
        keep = "keeps" if count == 1 else "keep"
        say_it(
            f"{many(count, 'conversation')} {keep} an earlier generation with the removed secrets: `{command}` "
            "removes all of them, in forks too"
        )


class SecretsReport:
    """The output so far: a line for each part, and the total."""

    def __init__(self, *, is_json: bool, is_past: bool = False) -> None:
        self._is_json, self._is_past = is_json, is_past
        self.parts = self._left = self._unknown = 0
        self._counts: Counter[str] = Counter()
        self._conversations: set[str] = set()
        self._sessions = 0
        self._in_sessions: Counter[str] = Counter()

    @property
    def is_any(self) -> bool:
        return bool(self.parts or self._left or self._sessions)

    @property
    def is_any_left(self) -> bool:
        return bool(self._left)

    def say(self, found: FoundSecrets) -> None:
        if found.reason is not None:
            self._left += 1
        else:
            self.parts += 1
            self._counts.update(found.counts)
            self._unknown += found.is_unknown
            self._conversations.add(found.directory if found.part != "snapshot" else str(found.id))
        if self._is_json:
            members = asdict(found)
            del members["error"]  # it is the reason
            say_json({**members, "forgotten": self._is_past and found.reason is None})
            return
        where = {"live": "live", "generation": f"generation {found.generation}", "quarantine": "quarantine"}
        what = where.get(found.part, "snapshot")
        name = found.directory if found.part != "snapshot" else f"{found.directory} {found.id}"
        if found.reason is not None:
            reason = error_sentence(found.error) if found.error is not None else found.reason
            complain(f"{one_line(printable_name(name))}{f', {what}' if what else ''}: {one_line(reason)}")
            return
        counts = _kinds(found.counts) or "from before a redaction by a pattern that was not given"
        title = f"  {one_line(found.title)}" if found.title else ""
        say(f"{one_line(printable_name(name))}{f'  {what}' if what else ''}  {counts}{title}")

    def say_session(self, members: dict[str, Any]) -> None:
        if members["reason"] is not None:
            self._left += 1
        else:
            self._sessions += 1
            self._in_sessions.update(members["counts"])
        if self._is_json:
            say_json({**members, "counts": dict(members["counts"]), "part": "session", "forgotten": False})
        elif members["reason"] is not None:
            complain(f"{one_line(members['source'])}: {one_line(members['reason'])}")
        else:
            title = f"  {one_line(members['title'])}" if members["title"] else ""
            say(f"{one_line(members['source'])}  {members['format']}  {_kinds(members['counts'])}{title}")

    def say_sum(self, command: str = "") -> None:
        """Print the total; ``command`` is the one that removes what was found."""
        secrets, conversations = many(self._counts.total(), "secret"), many(len(self._conversations), "conversation")
        none = "no secrets were found" + (" in what could be read" if self._left else "")
        if self._is_past and not self.parts:
            say("nothing was removed" if self._left else none)
        elif self._is_past:
            say(f"removed {secrets} from {conversations}")
        elif self.parts:
            say(f"{secrets} in {many(self.parts, 'part')} of {conversations}: {command} removes them")
        elif not self._sessions:
            say(none)
        if self._unknown and not self._is_past:
            say("give the patterns of earlier redactions (--redact-pattern) to find what they removed")
        if self._sessions:
            total = many(self._in_sessions.total(), "secret")
            sessions = many(self._sessions, "session")
            say(f"{total} in {sessions} of other programs, whose files are not changed: `import --redact` removes them")


def _kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))


DESCRIPTION = """\
List the conversations, earlier generations, quarantines and snapshots that hold secrets with a recognizable form, how many, and
of which kind; and the sessions of other programs on this machine that do, imported or not. It never prints a secret.

With --forget the secrets are removed from the library: live generations are redacted; earlier generations and quarantines with
secrets are deleted, in forks as well. It asks first. Snapshots are removed only if --snapshots names their store. The files of
other programs are never changed, and neither are copies elsewhere (ship, backups).
"""
EPILOG = """\
exit code: 0 if there are no secrets, or all of them were removed; 1 if there are some, or some were left; 2 if it was not confirmed

examples:
  transcript-store secrets                              the default library, and what other programs keep
  transcript-store secrets chats --no-programs --json
  transcript-store secrets chats --redact-pattern 'ACME-[0-9]{6}'
  transcript-store secrets chats --forget
  transcript-store secrets chats --forget --snapshots kept
"""


def configure(parser: ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "libraries", metavar="LIBRARY", nargs="*", type=path, help="the libraries (default: that of `chat`)"
    )
    parser.add_argument("--forget", action="store_true", help="remove the secrets from the library")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--snapshots",
        metavar="STORE",
        type=path,
        action="append",
        default=[],
        help="also a snapshot store: a directory, or a library's address; --forget deletes those with secrets",
    )
    parser.add_argument("--no-programs", action="store_true", help="leave out the sessions of other programs")
    add_redact_pattern(parser, "text that matches this is a secret too")
    add_json(parser, "one JSON object for each part that holds secrets (with --forget it needs --yes)")
    add_keys(parser)


def run(arguments: Namespace) -> int:
    """Report secrets, or remove them. The exit code is 1 if there are some, or some are left."""
    redactor = SecretRedactor(patterns=arguments.redact_pattern or ())
    if arguments.json and arguments.forget and not arguments.yes:
        raise Misuse("--json cannot ask: add --yes")
    for name in arguments.snapshots:  # a mistyped store would be one without secrets
        if not (is_backend_address(name) or os.path.isdir(os.path.expanduser(name))):
            raise Misuse(f"--snapshots {for_shell(name)}: there is no such directory")
    directories = _directories(arguments)
    if arguments.forget:
        return _forget(arguments, directories, redactor)
    report = SecretsReport(is_json=arguments.json)
    with Working("looking for secrets") as working:
        in_snapshots = (one for _, one in _in_snapshots(arguments, redactor))
        for one in chain(_in_libraries(arguments, directories, redactor), in_snapshots):
            with working.paused():
                report.say(one)
        if not arguments.no_programs:
            for members in _in_programs(redactor, working):
                with working.paused():
                    report.say_session(members)
    if not arguments.json:
        report.say_sum(_forgetting(arguments, directories))
    return int(report.is_any)


def _forgetting(arguments: Namespace, directories: Sequence[str]) -> str:
    """The command that removes what this one found: with its patterns, stores and keys, or it would leave some."""
    if any(printable_name(one) != one for one in (*directories, *arguments.snapshots)):
        return (
            "this command with --forget"  # a user and options are not printed, and without them it is another address
        )
    given = {
        "--snapshots": map(printable_name, arguments.snapshots),
        "--redact-pattern": arguments.redact_pattern or (),
        "--key-file": arguments.key_file or (),
    }
    options = [f"{option} {for_shell(value)}" for option, values in given.items() for value in values]
    where = [for_shell(printable_name(one)) for one in directories]
    return f"`{' '.join(['transcript-store secrets', *where, '--forget', *options])}`"


def _directories(arguments: Namespace) -> list[str]:
    if arguments.forget and not arguments.libraries:
        return [the_library(None, on_backends=True)]  # it removes something: say where
    try:
        return libraries(arguments.libraries, on_backends=True)
    except ConversationNotFoundError:
        if arguments.libraries:
            raise
        return []  # no library yet: other programs may still have sessions


def _in_libraries(arguments: Namespace, directories: Sequence[str], redactor: SecretRedactor) -> Iterator[FoundSecrets]:
    keys = command_keys(arguments).options
    for directory in directories:
        library = library_at(directory, **keys)
        yield from find_secrets(library, redact=redactor, **({} if is_backend_address(directory) else keys))


def _in_snapshots(arguments: Namespace, redactor: SecretRedactor) -> Iterator[tuple[SnapshotStore, FoundSecrets]]:
    for name in arguments.snapshots:
        store = snapshots_at(name, **command_keys(arguments).options)
        for one in find_secrets_in_snapshots(store, redact=redactor):
            yield store, one


def _in_programs(redactor: SecretRedactor, working: Working) -> Iterator[dict[str, Any]]:
    """The sessions of other programs that hold secrets: what an import would take out. And those that cannot be read."""
    nowhere = ConversationLibrary(
        "/nonexistent/transcript-store"
    )  # a dry run asks it for conversations, and finds none
    found, done = discover(), set[str]()
    for report in import_conversations(found, nowhere, dry_run=True, redact=redactor):
        done.add(report.source)
        working.what = f"looking for secrets in what other programs keep, {len(done):,}/{len(found):,}"
        is_refused = report.action == "refused"
        if is_refused or (report.redacted and not report.is_part):
            about = {name: getattr(report, name) for name in ("source", "format", "title")}
            yield {**about, "counts": report.redacted, "reason": report.reason if is_refused else None}


def _forget(arguments: Namespace, directories: Sequence[str], redactor: SecretRedactor) -> int:
    snapshots = list(_in_snapshots(arguments, redactor))
    if not arguments.yes:
        found = [*_in_libraries(arguments, directories, redactor), *(one for _, one in snapshots)]
        report = SecretsReport(is_json=False)
        for one in found:
            report.say(one)
        question = f"Remove the secrets from {many(report.parts, 'part')}? This cannot be undone."
        if report.parts and not confirmed(question):
            complain("nothing was removed" + ("" if is_at_a_terminal() else "; without a terminal, --yes removes it"))
            return 2
    return forget(arguments, directories, redactor, snapshots=snapshots)
