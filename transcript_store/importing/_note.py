"""What an import notes in the transcript itself, as the last record of each batch that it writes.

The note is an event, ``extra.import``. It becomes durable together with what it speaks of, so the two cannot disagree, whatever
interrupts an import; and it travels with the conversation into backups and forks. Its members:

::

    format, version, session   whose session it is
    generation, generations    which of the source's generations the batch belongs to, of how many
    complete                   whether the batch ends the generation
    lines                      how many lines the source has of the session
    file                       name, size, mtime_ns, inode, and the sha256 of what was read (null where it has other
                               sessions too, for tables, and where its bytes changed meanwhile)
    findings, losses           at most 100 of each; findings_count and losses_count say how many there were
    tail_base64                what stands behind the last line end
    reader                     the revision of the reader; 1 where it is missing
    redaction                  what was taken out, if it was imported so: the version of the known forms, and marks of the patterns
    edition                    of an export: when the session last changed, and when something was last said in it
    metadata                   what was put into the metadata: what differs from it now, a user changed
    at                         when it was imported
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from transcript_store.formats import Finding, Loss, Plan, Reader
from transcript_store.sources import FileSource, Rows

_NAMESPACE = uuid.UUID("5a1c3f0e-8f0b-5d38-9f3c-0c6f3b6f7f64")
_MOST = 100
_LONGEST_TAIL_BYTES = 16 << 20


def conversation_id(format: str, session: str, copy: int = 1) -> str:
    """The id that a session has in every library. Later copies are those that ``diverged="fork"`` makes."""
    name = f"{format}\0{session}" + (f"\0{copy}" if copy > 1 else "")
    return str(uuid.uuid5(_NAMESPACE, name.encode("utf-8", "surrogatepass").decode("latin-1")))


def revision_of(reader: Reader) -> int:
    """The revision of a reader, which grows when its plans change."""
    return int(getattr(reader, "revision", 1))


def file_facts(source: FileSource | Rows, *, is_alone: bool) -> dict[str, Any]:
    """A source as the note has it; ``sha256`` where the session is the whole file."""
    # None if it may not be that of the lines on record: the next import compares them all, and notes it then.
    sha256 = source.sha256_of_what_was_read() if is_alone and isinstance(source, FileSource) else None
    return {"name": plain(source.name), **source.stamp._asdict(), "sha256": sha256}


def new_note(
    plan: Plan, file: Mapping[str, Any], metadata: Mapping[str, Any], *, generation: int, complete: bool
) -> dict[str, Any]:
    """The note for a batch, as the ``extra`` of its record."""
    return {
        "import": {
            "format": plan.format,
            "version": None if plan.version is None else plain(plan.version),
            "session": plain(plan.session),
            "reader": plan.revision,
            "generation": generation,
            "generations": len(plan.generations),
            "complete": complete,
            "lines": plan.lines,
            "file": dict(file),
            "findings_count": len(plan.findings),
            "findings": [_plain_members(finding) for finding in plan.findings[:_MOST]],
            "losses_count": len(plan.losses),
            "losses": [_plain_members(loss) for loss in plan.losses[:_MOST]],
            "tail_base64": tail_of(plan),
            **({} if plan.redaction is None else {"redaction": dict(plan.redaction)}),
            **({} if plan.edition is None else {"edition": list(plan.edition)}),
            "metadata": {"provider": plan.provider, **metadata},
            "at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        }
    }


def tail_of(plan: Plan) -> str | None:
    """What stands behind the last line end, in base64; None if it is too long to be noted."""
    return base64.b64encode(plan.tail).decode() if len(plan.tail) <= _LONGEST_TAIL_BYTES else None


def plain(text: str) -> str:
    """A text that JSON can carry: a path that is not UTF-8, or half a surrogate pair, is written with escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _plain_members(what: Finding | Loss) -> dict[str, Any]:
    return {name: plain(value) if isinstance(value, str) else value for name, value in asdict(what).items()}
