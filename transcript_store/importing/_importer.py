"""Write a plan into a conversation, or its new records.

Each write is one commit of the store, and the record shows how far an import came (F4): the plan's first generation creates the
conversation, each next one replaces it, new records are appended. After a kill the next import finds the start of the plan, and
does the rest.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from copy import copy as copy_of
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import chain, count
from typing import Any, Literal, NamedTuple, TypeVar

from transcript_store.conversation import ConversationStore, TranscriptPosition
from transcript_store.errors import (
    ConversationExistsError,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationShreddedError,
    InvalidMessageError,
    PoisonedError,
    StorageError,
    TranscriptStoreError,
)
from transcript_store.formats import ImportFinding, Loss, PlannedRecord, SessionPlan
from transcript_store.import_notes import is_as_exported, redaction_covers
from transcript_store.importing._comparison import (
    WRITTEN,
    ImportDecision,
    has_another_form,
    is_continued,
    is_of_this_source,
    noted_file,
    standing_of,
    supersede,
)
from transcript_store.importing._records import (
    ImportBatch,
    Lists,
    as_stored,
    batches,
    lines_in,
    record_time,
    refused_of,
)
from transcript_store.importing._report import (
    ImportReport,
    conversation_id,
    encodable,
    file_facts,
    new_note,
    plan_report,
    tail_of,
)
from transcript_store.library import ConversationGroup, ConversationLibrary
from transcript_store.messages import encode_message
from transcript_store.sources import SESSION_FOLDERS, FileSource, Rows, folder_of

_WAIT_SECONDS = 10.0
"""For another import of the same session, which is done soon."""
_TRIES = 200
"""How often within that time it is looked whether a conversation that another process creates is there."""
_LONGEST_LABEL = 1000
_HELD_BYTES = 16 << 20
"""A source up to this size is planned once, and its records are kept; those of a larger one are planned again when needed."""
_LONGEST_TOOL_BYTES = 1 << 20
_SPEAKER = re.compile(rb'"(?:role|sender|type|author)"\s*:\s*"(?:user|human|assistant|model|gemini|ai|bot)"')
"""Matches a line with a speaker, of any program."""
_SUM = "the SHA-256 of the source is on record now, so that its bytes can be exported"
_EXPORTED = "an export wrote it, and nothing was added since"
_TAIL = "the bytes after the last line end of the source changed"
_LABELS = "the source, or a file beside it, has other labels now, such as the title"
_T = TypeVar("_T")


class Importer:
    """Imports plans into a library."""

    def __init__(
        self,
        library: ConversationLibrary,
        group: ConversationGroup | None,
        *,
        diverged: Literal["report", "fork"],
        dry_run: bool,
        takes_empty: bool = False,
        is_first: bool = False,
        takes_deleted: bool = False,
    ) -> None:
        self._library, self._group = library, group
        self._takes_empty = takes_empty
        self._is_first = is_first
        """True if the library was empty at the start: then no conversation is searched before its creation."""
        self._forks = diverged == "fork"
        self._dry_run = dry_run
        self._takes_deleted = takes_deleted
        self._of_programs = tuple(f"{folder_of(place)}/" for place in SESSION_FOLDERS)
        self._deleted = frozenset() if takes_deleted else library.deleted_ids()

    def put(self, plan: SessionPlan, source: FileSource | Rows, *, is_alone: bool) -> ImportReport:
        """Make the library hold what is planned; return the report.

        Args:
            plan: a session.
            source: where it was read.
            is_alone: True if it is the only session there, so that its bytes are the file's.

        Raises:
            StorageError: the system refused to write; everything imported before is intact.
            PoisonedError: a sync failed.
        """
        if source.stamp.size <= _HELD_BYTES:
            plan = replace(plan, generations=tuple(map(_held, plan.generations)))
        report = plan_report(plan, source=source.name)
        try:
            return self._put(plan, source, report, is_alone=is_alone)
        # These concern the disk, not this session: an import must not continue as if only one source were bad.
        except PoisonedError:
            raise
        except StorageError as error:
            is_its_folder = error.errno in (errno.EACCES, errno.EPERM) and self._has_folder(plan)
            # A limit on the size of one file (EFBIG) is met by this session, and says nothing of a shorter one.
            if not is_its_folder and error.errno != errno.EFBIG:
                raise
            return replace(report, action="refused", reason=str(error), error=copy_of(error))
        except ConversationShreddedError as error:
            return replace(report, action="deleted", reason=str(error), error=copy_of(error))
        except TranscriptStoreError as error:  # another process writes it, or it is damaged
            # A copy: what was raised holds the frames that it passed, and with them the session.
            return replace(report, action="refused", reason=str(error), error=copy_of(error))

    def _has_folder(self, plan: SessionPlan) -> bool:
        """True if the session's conversation has a folder: one of another user concerns no other session."""
        return os.path.lexists(os.path.join(self._library.directory, conversation_id(plan.format, plan.session)))

    def _put(
        self, plan: SessionPlan, source: FileSource | Rows, report: ImportReport, *, is_alone: bool
    ) -> ImportReport:
        """Into the conversation of this session, or else into the one that has it by its former id, or else into a new one."""
        into = partial(self._put_into, plan, source, report, is_alone=is_alone)
        former = plan.former_session or plan.session
        if former == plan.session or self._is_first:
            return into(plan.session, 1, self._group)
        done = into(plan.session, 1, None)  # no group: "created" is what would be done, and nothing is written
        return into(*self._known_as(plan, source, former), self._group) if done.action == "created" else done

    def _put_into(
        self,
        plan: SessionPlan,
        source: FileSource | Rows,
        report: ImportReport,
        session: str,
        first: int,
        group: ConversationGroup | None,
        *,
        is_alone: bool,
    ) -> ImportReport:
        """Into the conversation of this id, or into the copy of it that an earlier import made when they diverged."""
        for copy in count(first):
            own_id = conversation_id(plan.format, session, copy)
            if copy > 1:  # so that a list tells the two apart
                original = conversation_id(plan.format, session)
                plan = replace(plan, labels={**plan.labels, "diverged_from": original})
            if self._is_as_exported(plan, source):
                return replace(report, action="unchanged", reason=_EXPORTED)
            work = _PlanImport(self._library, group, own_id, plan, source, is_alone=is_alone, is_first=self._is_first)
            done = work.run(dry_run=self._dry_run, may_create=self._may_create(own_id, plan, report))
            is_deleted = done.action == "deleted" or (done.action == "empty" and own_id in self._deleted)
            next_id = conversation_id(plan.format, session, copy + 1)
            if is_deleted and not self._has(next_id):
                return replace(report, action="deleted", id=own_id)
            if done.action == "empty" and not is_deleted:
                return replace(report, action="empty")
            if not is_deleted and (done.action != "diverged" or not (self._forks or self._has(next_id))):
                if work.findings:
                    report = plan_report(as_stored(plan, work.findings), source=source.name)
                return replace(
                    report,
                    action=done.action,
                    id=own_id,
                    reason=done.reason,
                    findings=(*report.findings, *work.superseded),
                    losses=(*report.losses, *(work.losses if done.action == "created" else ())),
                )
        raise AssertionError("count() does not end")

    def _may_create(self, own_id: str, plan: SessionPlan, report: ImportReport) -> bool:
        if own_id in self._deleted:
            return False
        return self._takes_empty or not _is_empty(plan, report)

    def _is_as_exported(self, plan: SessionPlan, source: FileSource | Rows) -> bool:
        """True if an export wrote this session into a program's own folder. From any other place it is imported: a user put it there."""
        if self._takes_deleted or plan.is_exported:
            return not self._takes_deleted
        if not isinstance(source, FileSource) or plan.session[14:15] != "5":
            return False  # and most are not read for it
        return source.name.startswith(self._of_programs) and is_as_exported(
            plan.session, source.read(0, source.stamp.size)
        )

    def _known_as(self, plan: SessionPlan, source: FileSource | Rows, former: str) -> tuple[str, int]:
        """The session, its own or the former one, under which it is on record, and the first copy to look at."""
        for copy in count(1):
            its_id = conversation_id(plan.format, former, copy)
            try:
                with self._library.open(its_id, read_only=True, verify="tail") as reader:
                    if is_of_this_source(reader, plan, source):
                        return former, copy
            except ConversationNotFoundError:
                return plan.session, 1
        raise AssertionError("count() does not end")

    def _has(self, id: str) -> bool:
        try:
            self._library.open(id, read_only=True, verify="tail").close()
        except ConversationNotFoundError:
            return False
        return True


def _is_empty(plan: SessionPlan, report: ImportReport) -> bool:
    """True if the source has no message of the session, and no line that may be one which the reader did not understand."""
    if report.messages or report.lines.in_messages or report.findings or report.losses:
        return False
    lines = (raw for entries in plan.generations for e in entries() for _, raw in lines_in(e.extra, e.message))
    return not any(map(_SPEAKER.search, lines))


def _held(entries: Callable[[], Iterable[PlannedRecord]]) -> Callable[[], Iterable[PlannedRecord]]:
    """The same entries, made once."""
    return cache(lambda: list(entries()))


class _Done(NamedTuple):
    action: Literal["created", "grew", "unchanged", "replaced", "reread", "diverged", "empty", "deleted"]
    reason: str | None = None


class _PlanImport:
    """One plan and one conversation."""

    def __init__(
        self,
        library: ConversationLibrary,
        group: ConversationGroup | None,
        id: str,
        plan: SessionPlan,
        source: FileSource | Rows,
        *,
        is_alone: bool,
        is_first: bool,
    ) -> None:
        self._library, self._group, self._id, self._plan, self._source = library, group, id, plan, source
        self._is_first = is_first
        self._is_alone = is_alone
        self._metadata, self.losses = _metadata_of(plan)
        self.findings: list[ImportFinding] = []
        """The messages that the store did not take."""
        self.superseded: list[ImportFinding] = []
        """The conversations that another format made of this source."""

    def run(self, *, dry_run: bool, may_create: bool = True) -> _Done:
        """Look, and then write unless nothing is to be done. A reader looks first: it writes nothing at all (F2)."""
        if may_create and self._is_first and self._group is not None and not dry_run:
            # Or it is there all the same, or was deleted from a backend: that is found out below.
            with suppress(ConversationExistsError, ConversationLockedError, ConversationNotFoundError):
                self._create(self._group)
                return _Done("created")
        for tries_left in reversed(range(_TRIES)):
            try:
                with self._library.open(self._id, read_only=True, verify="tail") as reader:
                    found, position = standing_of(reader, self._plan, self._source), reader.position
                    found = self._with_note(reader, found)
            except ConversationNotFoundError:
                if not may_create:
                    return _Done("empty")
                if dry_run or self._group is None:
                    return _Done("created")
                try:
                    # First the label: what a kill leaves in between, the next import brings to the same end.
                    self.superseded += supersede(self._library, self._id, self._plan, self._source)
                    self._create(self._group)
                    return _Done("created")
                except ConversationNotFoundError:  # it was deleted from a backend, which does not take an id again
                    return _Done("deleted")
                except (ConversationExistsError, ConversationLockedError):  # another process is creating it just now
                    if not tries_left:
                        raise
                if self._id in self._group:  # or another file of this import had the same session
                    self._group.commit()
                    if self._id not in self._group:
                        continue  # else another thread is still adding it
                time.sleep(_WAIT_SECONDS / _TRIES)
            else:
                if found.may_lack_some:
                    self.findings = self._refused_before()
                if not dry_run and found.action in WRITTEN:
                    found = self._go_on_behind(position, found)
                return _Done(found.action, found.reason)
        raise AssertionError("the last try returns or raises")

    def _with_note(self, store: ConversationStore, found: ImportDecision) -> ImportDecision:
        """The same; or ``grew`` by a note alone, where all lines are on record and the last note is not true of the source any more."""
        note = found.noted
        if found.action != "unchanged" or note is None:
            return found
        reason = None
        if noted_file(note) == encodable(self._source.name) and redaction_covers(
            self._plan.redaction, note.get("redaction")
        ):
            if note.get("tail_base64") != tail_of(self._plan):
                reason = _TAIL
            elif self._has_other_labels(store, note) and not is_continued(store):
                reason = _LABELS
        if self._is_alone and (note.get("file") or {}).get("sha256") is None and self._file["sha256"] is not None:
            reason = _SUM  # its bytes changed while it was imported, and are as on record now
        return found if reason is None else found._replace(action="grew", reason=reason)

    def _go_on_behind(self, position: TranscriptPosition, found: ImportDecision) -> ImportDecision:
        """Write the decision if the conversation still ends where it did; else decide again."""
        with self._library.open(self._id, verify="tail", lock_timeout_seconds=_WAIT_SECONDS) as store:
            # Decided again under the lock: another import, or the user, may have written since the look.
            if store.position != position:
                found = self._with_note(store, standing_of(store, self._plan, self._source))
            if found.action in WRITTEN:
                self._go_on(store, found)
        return found

    def _create(self, group: ConversationGroup) -> None:
        """Into the group; by itself if it is so large that it is stored in batches, which a kill does not take back."""
        remaining = batches(self._plan.generations[0](), self._source.stamp.size)
        first = next(remaining)
        # A group is all or nothing, so only a session that is written at once may join it.
        if first.is_last and len(self._plan.generations) == 1:
            self._stored(0, first, lambda lists: group.add(**self._contents(lists)))
            return
        create = group.adding if first.is_last else self._library.create
        with ExitStack() as stack:
            store = self._stored(0, first, lambda lists: stack.enter_context(create(**self._contents(lists))))
            self._append(store, 0, remaining)
            self._replace_from(store, 1)

    def _contents(self, lists: Lists) -> dict[str, Any]:
        return {"id": self._id, "provider": self._plan.provider, **self._metadata, **lists._asdict()}

    def _go_on(self, store: ConversationStore, found: ImportDecision) -> None:
        # A provider of another form changes with the messages, in one commit.
        provider = {"provider": self._plan.provider} if has_another_form(store, self._plan) else {}
        # Before the note says so: what a kill leaves in between, the next import brings to the same end.
        if changes := self._changes(store, found.noted or {}):
            store.update_metadata(**changes)
        if found.action != "grew":
            self._replace_from(store, found.first, **provider)
            return
        if (first := next(found.rest, None)) is not None or found.reason is not None:
            not_before = record_time(store.get_records(last=1)[0].at)
            entries = found.rest if first is None else chain((first,), found.rest)
            self._append(store, found.first, batches(entries, self._source.stamp.size, not_before))
        self._replace_from(store, found.first + 1)

    def _changes(self, store: ConversationStore, note: dict[str, Any]) -> dict[str, Any]:
        """The source's current metadata. Changes of a user stay (F5)."""
        now, noted = store.get_metadata(), note.get("metadata") or {}
        changes = {
            name: value
            for name, value in self._metadata.items()
            if name != "labels" and value != getattr(now, name) and getattr(now, name) == noted.get(name)
        }
        is_as_imported = now.provider == noted.get("provider", now.provider) or now.provider is None
        if (
            self._plan.provider not in (None, now.provider)
            and is_as_imported
            and not has_another_form(store, self._plan)
        ):
            changes["provider"] = self._plan.provider
        was = noted.get("labels") or {}
        labels = {
            name: text for name, text in self._metadata["labels"].items() if now.labels.get(name) == was.get(name)
        }
        if labels.items() - now.labels.items():
            changes["labels"] = labels
        return changes

    def _has_other_labels(self, store: ConversationStore, note: dict[str, Any]) -> bool:
        """True if the source has a label that is not noted, unless a user changed it."""
        now, noted = store.get_metadata().labels, (note.get("metadata") or {}).get("labels") or {}
        return any(
            text != noted.get(name)
            and now.get(name) in (text, noted.get(name))  # the text: a kill came before the note
            for name, text in self._metadata["labels"].items()
        )

    def _replace_from(self, store: ConversationStore, first: int, **changes: Any) -> None:
        def replace_all(lists: Lists) -> None:
            store.replace_transcript(**lists._asdict(), **changes)

        for number in range(first, len(self._plan.generations)):
            remaining = batches(self._plan.generations[number](), self._source.stamp.size)
            self._stored(number, next(remaining), replace_all)
            self._append(store, number, remaining)

    def _append(self, store: ConversationStore, number: int, remaining: Iterator[ImportBatch]) -> None:
        def append(lists: Lists) -> None:
            store.append_messages(**lists._asdict(), if_head=store.head)

        for batch in remaining:
            self._stored(number, batch, append)

    def _stored(self, number: int, batch: ImportBatch, put: Callable[[Lists], _T]) -> _T:
        """Store a batch of the plan's generation of this number, with its note; returns what ``put`` does."""
        try:
            return put(batch.lists(self._note(number, batch)))
        except InvalidMessageError:
            # One message that cannot be stored must not cost the others: it becomes an event with its bytes, and a
            # finding (F6).
            self.findings += [each for each in refused_of(batch.entries) if each not in self.findings]
            return put(batch.lists(self._note(number, batch), checked=True))

    def _note(self, number: int, batch: ImportBatch) -> dict[str, Any]:
        plan = replace(self._plan, findings=(*self._plan.findings, *self.findings)) if self.findings else self._plan
        return new_note(plan, self._file, self._metadata, generation=number, complete=batch.is_last)

    def _refused_before(self) -> list[ImportFinding]:
        """The findings of earlier imports about what the store refused: a report covers all of a session (F6)."""
        return [*dict.fromkeys(each for entries in self._plan.generations for each in refused_of(entries()))]

    @cached_property
    def _file(self) -> dict[str, Any]:
        return file_facts(self._source, is_alone=self._is_alone)


def _metadata_of(plan: SessionPlan) -> tuple[dict[str, Any], tuple[Loss, ...]]:
    """The plan's facts for the metadata, as far as it can hold them."""
    losses = []
    labels = {encodable(name): encodable(text)[:_LONGEST_LABEL] for name, text in plan.labels.items()}
    tools = [tool for tool in plan.tools if _is_a_tool(tool)]
    if len(tools) < len(plan.tools):
        losses.append(
            Loss("tools", len(plan.tools) - len(tools), "tools that metadata cannot have: no name, or no JSON")
        )
    fields = {
        "model": None if plan.model is None else encodable(plan.model),
        "system_prompt": None if plan.system_prompt is None else encodable(plan.system_prompt),
        "tools": tools or None,
        "labels": {**labels, "source": plan.format},
    }
    return fields, tuple(losses)


def _is_a_tool(tool: dict[str, Any]) -> bool:
    kinds = (("name", str), ("description", str), ("parameters", dict))
    if not tool.get("name") or not all(isinstance(tool.get(name, kind()), kind) for name, kind in kinds):
        return False
    try:
        encode_message(tool, "tool", _LONGEST_TOOL_BYTES)
    except InvalidMessageError:
        return False
    return True
