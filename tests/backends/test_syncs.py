"""P5 for folders that come from a backend: every sync is needed, because a power cut shows a missing one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends.shipped import (
    BACK,
    FOLDER,
    ID,
    KEY,
    LIBRARY,
    every_moment,
    files_in,
    library_on,
    shipped,
    with_a_history,
)
from tests.crash.sync_sites import Site, in_the_source, syncing
from tests.kit.messages import user_message
from transcript_store import ConversationLibrary, CorruptTranscriptError, StorageError
from transcript_store.backends import BackupFile, backup_library, restore
from transcript_store.backends._restoring import write_damaged
from transcript_store.testing import FileSystemCall, SimulatedBackend, SimulatedFileSystem

Work = Callable[[SimulatedFileSystem], object]


def restored() -> Work:
    """A restored conversation: earlier generations, a key, and all."""
    backend = SimulatedBackend()
    shipped(with_a_history(KEY), backend, with_key=True)
    return lambda disk: restore(backend, ID, BACK, file_system=disk, with_key=True)


def remains() -> Work:
    """What is left of a conversation whose live generation began behind the damage."""
    backend = SimulatedBackend()
    with ConversationLibrary(backend, file_system=SimulatedFileSystem()).create(
        id=ID, messages=[user_message("first")]
    ) as store:
        store.append_message(user_message("second"))
        store.replace_transcript([user_message("summary")])
    backend.set_object(ID, "s/2", backend.object(ID, "s/2").replace(b"second", b"secone"))
    return lambda disk: write_damaged(disk, BACK, ID, backend.read(ID), None)


def made_by(work: Work, patch: pytest.MonkeyPatch, do: Callable[[Site], bool]) -> dict[str, bytes]:
    """What is in the folder after the call and the worst power cut."""
    disk = SimulatedFileSystem()
    with patch.context() as within:
        syncing(within, do)
        work(disk)
    return files_in(disk.worst_power_failure(), BACK)


def backed_up(patch: pytest.MonkeyPatch, do: Callable[[Site], bool]) -> tuple[bool, bytes | None]:
    """Whether a power cut before a sync of a backup may look like damage; and the file after the call and the worst power cut."""
    disk, file = SimulatedFileSystem(page_bytes=256, sector_bytes=64), "/copies/chats.backup"
    with library_on(disk).create(id=ID, messages=[user_message("first " * 80), user_message("second")]):
        pass
    is_damaged = False

    def look(call: FileSystemCall) -> None:
        nonlocal is_damaged
        if call.name.startswith("sync") and call.path == file:
            for left in disk.power_failures(limit=40):
                try:
                    with BackupFile(file, file_system=left) as backup:
                        is_damaged |= backup.damage is not None
                except (CorruptTranscriptError, StorageError):
                    is_damaged = True

    with patch.context() as within:
        syncing(within, do)
        with BackupFile(file, writes=True, file_system=disk) as backup:
            disk.on_call = look
            assert len([*backup_library(LIBRARY, backup, file_system=disk)]) == 1
    disk.on_call = None
    return is_damaged, disk.worst_power_failure().tree().get(file)


def made_in(work: Work, patch: pytest.MonkeyPatch) -> Callable[[Callable[[Site], bool]], object]:
    return lambda do: made_by(work, patch, do)


def test_every_sync_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: the list of syncs in the source equals the list of mutants killed."""
    killed: set[tuple[str, int]] = set()
    works = [made_in(work, monkeypatch) for work in (restored(), remains())]
    for run in (*works, lambda do: backed_up(monkeypatch, do)):
        made: set[Site] = set()
        whole = run(lambda site, made=made: made.add(site) is None)  # type: ignore[misc]
        assert len(whole) >= 2  # type: ignore[arg-type]
        for mutant in made:
            if run(lambda site, mutant=mutant: site != mutant) != whole:  # type: ignore[misc]
                killed.add((mutant.module, mutant.line))
    assert {mutant for mutant in killed if mutant[0].startswith("backends.")} == in_the_source(in_backends=True)


def test_every_sync_of_a_folder_that_continues_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: those of the archive, of a transcript before its name, and of the metadata. Another that is left out shows when the call is cut off."""
    backend = SimulatedBackend()
    first, *_ = every_moment(backend, KEY)

    def left(do: Callable[[Site], bool]) -> dict[str, bytes]:
        disk = first.copy()
        with monkeypatch.context() as within:
            syncing(within, do)
            restore(backend, ID, FOLDER, file_system=disk, with_key=True)
        return files_in(disk.worst_power_failure(), FOLDER)

    made: set[Site] = set()
    whole = left(lambda site: made.add(site) is None)  # type: ignore[func-returns-value]
    killed = {site.function for site in made if left(lambda other, site=site: other != site) != whole}  # type: ignore[misc]
    assert killed == {"archive_live", "write_temporary", "replace_file"}
