"""Compare a plan with the conversation on record, and decide.

A conversation has the plan's generations in their order, each from its own replace. The live one is compared record by record with
the plan's generation that its note names:

* the import is the start of the plan's: the rest is appended, and later generations replace it;
* it is not: the source was rewritten. The plan's generations replace it from the first that differs on;
* there are records that no import wrote: the conversation was continued here. Nothing is written, and if the source changed too,
  the two have diverged (F5).

Messages in another provider's form than those on record replace them, in one commit with the provider.

An export of a site, or rows that their program updates in place (a plan with an ``edition``), is compared by its messages, because
their surroundings change. The newer edition counts, whatever its file is called; an older one changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Literal, NamedTuple

from transcript_store.conversation import ConversationStore, Record
from transcript_store.errors import GenerationNotFoundError, TranscriptStoreError
from transcript_store.formats import READERS, ImportFinding, PlannedRecord, SessionPlan, generic_sessions
from transcript_store.import_notes import is_imported, note_of, redaction_covers
from transcript_store.importing._records import UNSTORABLE, as_stored, behind, lines_in, restated
from transcript_store.importing._report import conversation_id, encodable
from transcript_store.library import ConversationLibrary
from transcript_store.messages import provider_family
from transcript_store.sources import FileSource, Rows


class RedactedBeforeError(TranscriptStoreError):
    """The stored conversation was redacted, and this import would bring the secrets back. Nothing was written."""

    _says = (
        "it was imported with its secrets removed, and this import would store them: it removes none, or not the same; import "
        "it as before (--redact, and the same --redact-pattern), or delete the conversation {error.id} first"
    )
    id: str
    source: str
    """The file that was imported last, as its note names it."""


class UnreadableNowError(TranscriptStoreError):
    """The source cannot be read any more: what a program leaves that ends while it writes. What is on record stays."""

    _says = (
        "nothing in it can be read any more, and what was imported before stays as it is (conversation {error.id}); "
        "repair or restore the file, or delete it"
    )
    id: str


class ImportDecision(NamedTuple):
    """The decision about an existing conversation."""

    action: Literal["grew", "unchanged", "replaced", "reread", "diverged", "empty"]
    first: int = 0
    """For ``grew``: the plan's live generation, which continues. For ``replaced`` and ``reread``: the first one that replaces."""
    rest: Iterator[PlannedRecord] = iter(())
    """For ``grew``: the records to append."""
    noted: dict[str, Any] | None = None
    """The import note that was read; None for ``unchanged`` if a user is known to have continued here."""
    reason: str | None = None
    may_lack_some: bool = False
    """True if there may be messages that the store did not take, as an earlier import noted: they are events on record."""


WRITTEN = ("grew", "replaced", "reread")
"""Actions that write."""
_STILL_THERE = (
    "what was imported before is in the archive, with its secrets: `transcript-store secrets --forget` removes it"
)


class _Compared(NamedTuple):
    is_prefix: bool
    rest: Iterator[PlannedRecord]
    has_ours: bool


def standing_of(conversation: ConversationStore, plan: SessionPlan, source: FileSource | Rows) -> ImportDecision:
    """Compare a conversation with the plan and decide. Reads only."""
    note = _last_note(conversation)
    if note is None:
        return _of_a_replaced_one(conversation, plan, source)
    compared = _of_a_live_one if plan.edition is None else _of_an_export
    standing = compared(conversation, plan, source, note)._replace(may_lack_some=_may_lack_some(note))
    # A source that cannot be read now (cut, too long) must not replace messages that were read from it before.
    if standing.action in ("replaced", "reread") and _is_cut(plan) and not _says_nothing(conversation):
        raise UnreadableNowError(id=conversation.get_metadata().id)
    if standing.action in WRITTEN and has_another_form(conversation, plan):
        # Earlier generations may be as they were imported, and yet have the former provider's form.
        first = min(standing.first, _first_that_differs(conversation, plan, standing.first))
        return standing._replace(
            action="reread" if standing.action == "reread" else "replaced", first=first, rest=iter(())
        )
    return standing


def _is_cut(plan: SessionPlan) -> bool:
    """True if nothing is said in the plan because the source could not be decoded."""
    undecoded = any(found.kind in ("not-json", "too-deep", "too-long") for found in plan.findings)
    return undecoded and not any(_speaks(entry.message, entry.extra) for made in plan.generations for entry in made())


def _says_nothing(conversation: ConversationStore) -> bool:
    return not any(_speaks(record.message, record.extra) for record in conversation.iter_records())


def has_another_form(conversation: ConversationStore, plan: SessionPlan) -> bool:
    """True if the planned messages have another provider's form than those on record."""
    recorded = conversation.get_metadata().provider
    return bool(plan.provider and recorded) and provider_family(plan.provider or "") != provider_family(recorded or "")


def is_of_this_source(conversation: ConversationStore, plan: SessionPlan, source: FileSource | Rows) -> bool:
    """True if a conversation whose id several sources share belongs to this plan. Reads only.

    It does if everything planned is on record, if its note names this source, or if the source in its note is missing and this one
    continues it: the file was moved.
    """
    try:
        found = standing_of(conversation, plan, source)
    except RedactedBeforeError as error:  # nothing can be compared
        if error.source == encodable(source.name) or not _is_there(error.source):
            raise
        return False
    if found.action == "unchanged" or found.noted is None:
        return found.action == "unchanged"
    name = noted_file(found.noted)
    return name == encodable(source.name) or (found.action == "grew" and not _is_there(name))


def _may_lack_some(note: dict[str, Any]) -> bool:
    findings = note.get("findings") or []
    return note.get("findings_count") != len(findings) or any(each.get("kind") == UNSTORABLE for each in findings)


def _of_a_live_one(
    conversation: ConversationStore, plan: SessionPlan, source: FileSource | Rows, note: dict[str, Any]
) -> ImportDecision:
    number, last = note["generation"], len(plan.generations) - 1
    is_redacted_enough = redaction_covers(note.get("redaction"), plan.redaction)
    is_reread = note.get("reader", 1) < plan.revision
    is_beginning = begins_as_noted(source, note)
    has_only_grown = is_beginning and is_redacted_enough and not is_reread
    # The first bytes have the noted hash and there are no more of them: no line has to be decoded (F2).
    if has_only_grown and note.get("complete") and number == last and source.stamp.size == note["file"]["size"]:
        return ImportDecision("unchanged", number, noted=note)
    # The record was redacted, and the plan is not: it would bring the secrets back.
    if not redaction_covers(plan.redaction, note.get("redaction")):
        raise RedactedBeforeError(id=conversation.get_metadata().id, source=noted_file(note))
    other_file = noted_file(note) != encodable(source.name)
    planned = plan.generations[number]() if number <= last else ()
    compared = _compare(conversation.iter_records(), planned, is_reread=is_reread)
    first = number
    if compared.is_prefix and number <= last:
        # The live generation did not change. The earlier ones did not if the file still starts with the imported bytes (F2).
        first = number if has_only_grown else _first_that_differs(conversation, plan, number)
        if first == number:
            return _of_a_prefix(compared, number, last, note)
    is_same = is_beginning and source.stamp.size == note["file"]["size"]
    has_all = is_beginning
    if other_file or (is_reread and not is_beginning):
        has, had = _planned_lines(plan), _recorded_lines(conversation, number)
        is_same, has_all = is_same or has == had, has_all or had <= has
        # A second file of the same session that holds less: a backup. "replaced" here would roll the conversation back to it.
        if other_file and has <= had and not (is_reread and is_same):
            return ImportDecision("unchanged")
        other_file = other_file and not has_all  # else a newer copy, whose messages have another form now
    if is_reread and is_same and compared.has_ours:
        # This version reads the same lines differently, but the user continued from the earlier reading.
        return ImportDecision("unchanged")
    if other_file and not any(_speaks(e.message, e.extra) for entries in plan.generations for e in entries()):
        # A program that resumes a session may start another file that has only the context.
        return ImportDecision("empty")
    if other_file and _says_nothing(conversation):
        other_file = False  # that file was imported first
    if compared.has_ours:
        return _diverged(note)
    if other_file and _is_there(where := noted_file(note)):
        return ImportDecision(
            "diverged",
            reason=f"{where} has the same session id, and is another session; both are left as they are: "
            "--diverged fork, in Python diverged='fork', imports it as another conversation",
        )
    reason = None if is_redacted_enough else _STILL_THERE
    first = min(first, _first_that_differs(conversation, plan, number))
    return ImportDecision("reread" if is_reread and has_all else "replaced", first, noted=note, reason=reason)


def _of_a_prefix(compared: _Compared, number: int, last: int, note: dict[str, Any]) -> ImportDecision:
    following = next(compared.rest, None)
    if following is None and number == last:
        return ImportDecision("unchanged", number, noted=None if compared.has_ours else note)
    if compared.has_ours:
        return _diverged(note)
    return ImportDecision("grew", number, chain(() if following is None else (following,), compared.rest), note)


def _of_an_export(
    conversation: ConversationStore, plan: SessionPlan, source: FileSource | Rows, note: dict[str, Any]
) -> ImportDecision:
    other_is_there = noted_file(note) != encodable(source.name) and _is_there(noted_file(note))
    age = _age(conversation, plan, source, note)
    # An older export would take back what a newer one said.
    if age < 0:
        return ImportDecision("unchanged")
    if not redaction_covers(plan.redaction, note.get("redaction")):
        if age == 0:
            return ImportDecision("unchanged")
        raise RedactedBeforeError(id=conversation.get_metadata().id, source=noted_file(note))
    is_redacted_enough = redaction_covers(note.get("redaction"), plan.redaction)
    number, last = note["generation"], len(plan.generations) - 1
    is_prefix, says_more, rest, has_ours = _compare_export(
        conversation, as_stored(plan, ()) if _may_lack_some(note) else plan, min(number, last)
    )
    is_prefix, says_more = is_prefix and number <= last, says_more or number < last
    if not is_prefix or (rest and not is_redacted_enough):  # the lines on record may have secrets, the messages none
        is_reread = age == 0 and note.get("reader", 1) < plan.revision
        # Of two exports neither of which is newer, each would replace the other in turn; but what only one of them says is not lost.
        is_known = other_is_there and not is_reread and _said_lines(plan) <= _all_recorded_lines(conversation)
        if age == 0 and (is_known or (has_ours and is_reread)):
            return ImportDecision("unchanged")
        if has_ours:
            return _diverged(note)
        reason = None if is_redacted_enough else _STILL_THERE
        first = _first_said_otherwise(conversation, plan, number)
        return ImportDecision("reread" if is_reread else "replaced", first, noted=note, reason=reason)
    if not (rest or says_more) or (not says_more and (has_ours or (age == 0 and other_is_there))):
        return ImportDecision("unchanged", noted=None if has_ours else note)
    return _diverged(note) if has_ours else ImportDecision("grew", number, iter(rest), note)


def _first_said_otherwise(conversation: ConversationStore, plan: SessionPlan, number: int) -> int:
    """The plan's first generation, up to ``number``, whose messages differ from those on record."""
    stored = archived(conversation)
    for k in range(min(number, len(plan.generations) - 1)):
        if k in stored:
            records = conversation.iter_records(generation=stored[k])
            said = [record.message for record in records if is_imported(record) and record.message is not None]
            if said != [entry.message for entry in plan.generations[k]() if entry.message is not None]:
                return k
    return min(number, len(plan.generations) - 1)


def _age(conversation: ConversationStore, plan: SessionPlan, source: FileSource | Rows, note: dict[str, Any]) -> int:
    """-1 if an export is older than the last import, 1 if it is newer; 0 if either has no edition."""
    assert plan.edition is not None
    noted = note.get("edition")
    if not isinstance(noted, list):  # an earlier version imported it
        if noted_file(note) == encodable(source.name):
            return 1
        noted = ["", max((record.at for record in conversation.iter_records() if record.message), default="")]
    for ours, theirs in zip(plan.edition, noted, strict=False):
        if ours and theirs and ours != theirs:
            return 1 if ours > theirs else -1
    return 0


def _compare_export(
    conversation: ConversationStore, plan: SessionPlan, number: int
) -> tuple[bool, bool, list[PlannedRecord], bool]:
    """Compare the messages on record with the plan's: are they its first ones, has the record more, what is to append, did a user
    continue here?

    To append are new messages, events whose lines changed, and changed lines of stored messages: of two records with a line of one
    number the later one counts.
    """
    recorded: dict[tuple[Any, Any], int] = {}
    entries = plan.generations[number]
    planned = (entry.message for entry in entries() if entry.message is not None)
    is_prefix, has_ours, said = True, False, 0
    for record in conversation.iter_records():
        if note_of(record) is not None:
            continue
        if not is_imported(record):
            has_ours = True
            continue
        recorded.update((key, hash(raw)) for key, raw in lines_in(record.extra, record.message))
        if record.message is not None:
            said += 1
            is_prefix = is_prefix and record.message == next(planned, None)
    rest: list[PlannedRecord] = []
    changed: list[tuple[tuple[Any, Any], bytes]] = []
    for entry in entries():
        differing = [(key, raw) for key, raw in lines_in(entry.extra, entry.message) if recorded.get(key) != hash(raw)]
        if entry.message is not None and said:
            said -= 1
            changed += differing
        elif entry.message is not None or differing:
            rest.append(entry)
    return is_prefix, any(entry.message is not None for entry in rest), [*restated(changed), *rest], has_ours


def begins_as_noted(source: FileSource | Rows, note: dict[str, Any]) -> bool:
    """True if a file starts with the bytes that were imported."""
    file = note.get("file") or {}
    size, sha256 = file.get("size"), file.get("sha256")
    if not isinstance(source, FileSource) or not isinstance(size, int) or not isinstance(sha256, str):
        return False
    return size <= source.size and source.sha256(size) == sha256


def _of_a_replaced_one(conversation: ConversationStore, plan: SessionPlan, source: FileSource | Rows) -> ImportDecision:
    """The decision if a user replaced the transcript here, to compact it or to go back: the import is in the archive."""
    for generation in reversed(range(conversation.get_metadata().generation)):
        try:
            records = conversation.get_records(generation=generation)
        except GenerationNotFoundError:
            continue
        note = next(filter(None, map(note_of, reversed(records))), None)
        if note is not None:
            if isinstance(note.get("edition"), list) and plan.edition and tuple(note["edition"]) >= plan.edition:
                return ImportDecision("unchanged")
            is_as_it_was = begins_as_noted(source, note) and source.stamp.size == note["file"]["size"]
            # This version may read the same bytes differently. That is no change of the source, and the user went on
            # from the earlier reading.
            if is_as_it_was and note.get("reader", 1) < plan.revision:
                return ImportDecision("unchanged")
            if note["generation"] == len(plan.generations) - 1:
                compared = _compare(records, plan.generations[-1]())
                if compared.is_prefix and next(compared.rest, None) is None:
                    return ImportDecision("unchanged")
            if not redaction_covers(plan.redaction, note.get("redaction")):
                raise RedactedBeforeError(id=conversation.get_metadata().id, source=noted_file(note))
            return _diverged(note)
    return ImportDecision("diverged", reason="a conversation with this id is there, and no import of ours wrote it")


def _diverged(note: dict[str, Any]) -> ImportDecision:
    reason = "the source changed, and the conversation was continued here; both are left as they are"
    return ImportDecision("diverged", noted=note, reason=reason)


def _first_that_differs(conversation: ConversationStore, plan: SessionPlan, number: int) -> int:
    """The plan's first generation before ``number`` that differs from the one on record."""
    stored = archived(conversation)
    for k in range(min(number, len(plan.generations))):
        if k not in stored:
            continue  # it was deleted here: a leaked secret does not come back
        compared = _compare(conversation.iter_records(generation=stored[k]), plan.generations[k]())
        if not compared.is_prefix or next(compared.rest, None) is not None:
            return k
    return min(number, len(plan.generations) - 1)


def archived(conversation: ConversationStore) -> dict[int, int]:
    """In which of the conversation's earlier generations each of the source's is: number there → number here, the newest."""
    found: dict[int, int] = {}
    for generation in range(conversation.get_metadata().generation):
        try:
            last = conversation.get_records(last=1, generation=generation)
        except GenerationNotFoundError:
            continue
        if last and (note := note_of(last[0])) is not None and note.get("complete"):
            found[note["generation"]] = generation
    return found


def _planned_lines(plan: SessionPlan) -> set[int]:
    """The source's lines with content, each as the hash of its number and its bytes."""
    return {
        hash(line)
        for entries in plan.generations
        for entry in entries()
        for line in lines_in(entry.extra, entry.message)
        if not line[1].isspace()
    }


def _said_lines(plan: SessionPlan) -> set[int]:
    """The hashes of the lines that messages are made of, without their numbers: a message that was deleted moves the others."""
    said = (entry for entries in plan.generations for entry in entries() if entry.message is not None)
    return {hash(raw) for entry in said for _, raw in lines_in(entry.extra, entry.message)}


def _all_recorded_lines(conversation: ConversationStore) -> set[int]:
    """The hashes of the lines on record, of the live generation and of all in the archive."""
    found: set[int] = set()
    for generation in (*range(conversation.get_metadata().generation), None):
        with suppress(GenerationNotFoundError):
            records = conversation.iter_records(generation=generation)
            found.update(hash(raw) for record in records for _, raw in lines_in(record.extra, record.message))
    return found


def _recorded_lines(conversation: ConversationStore, number: int) -> set[int]:
    """The same of the lines on record, in the newest generation for each of the source's."""
    return {
        hash(line)
        for generation in {**archived(conversation), number: None}.values()
        for record in conversation.iter_records(generation=generation)
        if is_imported(record)
        for line in lines_in(record.extra, record.message)
        if not line[1].isspace()
    }


def _last_note(conversation: ConversationStore) -> dict[str, Any] | None:
    """The newest note of the live generation: nearly always its last record."""
    last = conversation.get_records(last=1)
    if last and (note := note_of(last[0])) is not None:
        return note
    found = None
    for record in conversation.iter_records():
        found = note_of(record) or found
    return found


def _compare(records: Iterable[Record], entries: Iterable[PlannedRecord], *, is_reread: bool = False) -> _Compared:
    """Compare records with planned ones. ``is_reread``: an earlier version stored each empty line, which are now one run."""
    planned = iter(entries)
    begun: tuple[PlannedRecord, ...] = ()
    is_prefix, has_ours = True, False
    for record in records:
        if note_of(record) is not None:
            continue
        if not is_imported(record):
            has_ours = True
        elif is_prefix:
            entry = begun[0] if begun else next(planned, None)
            rest = None if entry is None else behind(record, entry)
            rest = None if rest and is_reread else rest
            is_prefix, begun = rest is not None, rest or ()
    return _Compared(is_prefix, chain(begun, planned), has_ours)


def _speaks(message: Any, extra: Mapping[str, Any] | None) -> bool:
    """True for a message that is not the program's own."""
    return message is not None and not (extra or {}).get("scaffolding")


def is_continued(conversation: ConversationStore) -> bool:
    """True if the live generation has a record that no import wrote."""
    return any(note_of(record) is None and not is_imported(record) for record in conversation.iter_records())


def noted_file(note: dict[str, Any]) -> str:
    return str((note.get("file") or {}).get("name"))


def _is_there(source: str) -> bool:
    return os.path.lexists(source.partition("!")[0])


# ---- superseded ----
#
# A conversation that another format made of a source: it is labelled, and the one that is made of it now stands beside it.
#
# An earlier version, or a version without the package that adds the right format, may have taken the source for another program's. Its
# conversation has another id, so nothing would tell that the two are one session.

SUPERSEDED = "superseded"
"""The label of a conversation that another format made of the source by mistake. Its value is the id of the right one."""
_WAIT_SECONDS = 10.0


def supersede(
    library: ConversationLibrary, its_id: str, plan: SessionPlan, source: FileSource | Rows
) -> Iterator[ImportFinding]:
    """Label the conversations that another format made of this source, before ``its_id`` is created; a finding for each.

    One that a user continued is left alone, and so is one that cannot be opened.
    """
    for name, session in _misread(plan, source):
        other = conversation_id(name, session)
        if os.path.isdir(library.directory) and not os.path.lexists(os.path.join(library.directory, other)):
            continue  # a look is cheaper than an open, where the library is a directory here
        with suppress(TranscriptStoreError):
            if _is_superseded(library, other, its_id, source):
                message = f"the conversation {other}, which was made of it as {name}, has the label {SUPERSEDED} now"
                yield ImportFinding(SUPERSEDED, message)


def _misread(plan: SessionPlan, source: FileSource | Rows) -> Iterator[tuple[str, str]]:
    """The formats, and the ids of the session, as which an earlier version may have read it."""
    for reader in READERS:
        if reader.name != plan.format:
            yield reader.name, plan.session
    if isinstance(source, FileSource) and not plan.is_part:
        yield from (each for each in generic_sessions(source) if each[0] != plan.format)


def _is_superseded(library: ConversationLibrary, other: str, its_id: str, source: FileSource | Rows) -> bool:
    with library.open(other, lock_timeout_seconds=_WAIT_SECONDS) as store:
        notes = [note for record in store.iter_records() if (note := note_of(record)) is not None]
        labels = store.get_metadata().labels
        # A conversation that a user continued is not only a misreading of the source.
        if not notes or SUPERSEDED in labels or is_continued(store):
            return False
        if noted_file(notes[-1]) != encodable(source.name) and not begins_as_noted(source, notes[-1]):
            return False
        store.update_metadata(labels={**labels, SUPERSEDED: its_id})
        return True
