"""What is damaged in a store of snapshots, or cannot be opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transcript_store._conversation.verify import Finding
from transcript_store._snapshots.stored import StoredFiles
from transcript_store.errors import CorruptSnapshotError, DecryptionError, UnsupportedVersionError

Findings = list[Finding]


def note_damage(files: StoredFiles, findings: Findings) -> None:
    """Add every snapshot and all media that cannot be opened, read or found. Others may save and delete meanwhile."""
    there: set[str] = set()
    with _noted(findings):
        for name in sorted(files.media_names()):
            damage = _damage_of_media(files, name)
            if damage is not None and damage.kind == "missing":
                continue  # it was collected since; a snapshot that still refers to it is found below
            there.add(name)
            if damage is not None:
                findings.append(damage)
    for found in files.ids():
        with _noted(findings), suppress(FileNotFoundError):
            for name in sorted(files.references(found) - there):
                damage = _damage_of_media(files, name)  # it was stored since, or it is missing
                # It is not missing if it was collected together with the snapshot that referred to it.
                if damage and (damage.kind != "missing" or name in files.references(found)):
                    findings.append(damage)


def _damage_of_media(files: StoredFiles, name: str) -> Finding | None:
    """What is wrong with media; None if it is whole."""
    found: Findings = []
    with _noted(found):
        files.media_text(name)
    return found[0] if found else None


@contextmanager
def _noted(findings: Findings) -> Iterator[None]:
    """Take what is raised over one file as a finding."""
    try:
        yield
    except CorruptSnapshotError as error:
        findings.append(_finding(error, kind=error.kind))
    except DecryptionError as error:
        findings.append(_finding(error, kind="unopened"))
    except UnsupportedVersionError as error:
        findings.append(_finding(error, kind="version"))


def _finding(error: CorruptSnapshotError | DecryptionError | UnsupportedVersionError, *, kind: str) -> Finding:
    assert error.way_out is not None
    return Finding(kind=kind, path=error.path or "", reason=error.reason, way_out=error.way_out)
