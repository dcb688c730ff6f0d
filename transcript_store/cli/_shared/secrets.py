"""The output of commands that find and remove secrets: a line for each, and a total."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from transcript_store import ConversationLibrary
from transcript_store.cli._shared.hints import error_sentence
from transcript_store.cli._shared.keys import command_keys
from transcript_store.cli._shared.names import is_backend_address, library_at, printable_name
from transcript_store.cli._shared.terminal import Working, complain, for_shell, many, one_line, say, say_json
from transcript_store.redaction import SecretRedactor
from transcript_store.search import SearchIndex
from transcript_store.secrets import FoundSecrets, forget_secrets, keeping_what_was_redacted
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
        if report.parts:
            with SearchIndex(library) as index:
                index.purge()  # it has words of deleted text
    for store, snapshot in snapshots:
        if snapshot.reason is None:
            store.delete(str(snapshot.id))
        report.say(snapshot)
    if not arguments.json:
        report.say_sum([])
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
        self._sessions += 1
        self._in_sessions.update(members["counts"])
        if self._is_json:
            say_json({**members, "counts": dict(members["counts"]), "part": "session", "forgotten": False})
        else:
            title = f"  {one_line(members['title'])}" if members["title"] else ""
            say(f"{one_line(members['source'])}  {members['format']}  {_kinds(members['counts'])}{title}")

    def say_sum(self, directories: Sequence[str]) -> None:
        secrets, conversations = many(self._counts.total(), "secret"), many(len(self._conversations), "conversation")
        if self._is_past:
            say(f"removed {secrets} from {conversations}" if self.parts else "no secrets were found")
        elif self.parts:
            where = " ".join(directories)
            say(
                f"{secrets} in {many(self.parts, 'part')} of {conversations}: `transcript-store secrets {where} --forget` removes them"
            )
        elif not self._sessions:
            say("no secrets were found")
        if self._unknown and not self._is_past:
            say("give the patterns of earlier redactions (--redact-pattern) to find what they removed")
        if self._sessions:
            total = many(self._in_sessions.total(), "secret")
            sessions = many(self._sessions, "session")
            say(f"{total} in {sessions} of other programs, whose files are not changed: `import --redact` removes them")


def _kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
