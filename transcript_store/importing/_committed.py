"""A report is given when what it tells of is durable: it waits for the commit of the group that its conversation is in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from transcript_store.importing._report import ImportReport
from transcript_store.library import ConversationGroup
from transcript_store.sources import Found

_Done = tuple[Found, list[ImportReport]]


def committed(
    done: Iterable[_Done], group: ConversationGroup | None, import_again: Callable[[Found], list[ImportReport]]
) -> Iterator[_Done]:
    """What was done with each source, in its order, as soon as the group waits with nothing of it.

    The group commits by itself when it is full, and here at the end. A session that another process created in the meantime is
    imported again: now it is there to be compared with.
    """
    if group is None:
        yield from done
        return
    waiting: deque[_Done] = deque()
    for one in chain(done, [None]):
        if one is not None:
            waiting.append(one)
        else:
            group.commit()
        while waiting and not any(report.id in group for report in waiting[0][1]):
            found, reports = waiting.popleft()
            while theirs := {report.id for report in reports if report.action == "created"} & group.taken:
                again = import_again(found)
                group.commit()
                reports = [_seen_again(report, again) if report.id in theirs else report for report in reports]
            yield found, reports


def _seen_again(before: ImportReport, again: list[ImportReport]) -> ImportReport:
    """What another look at its source says of a session that another process has created. Never that it was created before."""
    for report in again:
        if report.id == before.id:
            return report
    for report in again:  # it could not be added to, or the source could not be read any more
        if report.id is None and report.session in (None, before.session):
            return report
    reason = "another import created it just now, and the source holds it no more; import it again"
    return replace(before, action="refused", id=None, reason=reason)
