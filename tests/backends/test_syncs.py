"""P5 for what comes from a place onto a disk: every sync there is needed, because a power cut behind the call shows when it is not made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends.shipped import BACK, FOLDER, ID, KEY, every_moment, files_in, said, shipped, with_a_history
from tests.crash.sync_sites import Site, in_the_source, syncing
from transcript_store import ConversationLibrary
from transcript_store.backends import restore
from transcript_store.backends._restoring import write_remains
from transcript_store.testing import SimulatedBackend, SimulatedFileSystem

Work = Callable[[SimulatedFileSystem], object]


def restored() -> Work:
    """A folder of a place's conversation: earlier generations, a key, and all."""
    place = SimulatedBackend()
    shipped(with_a_history(KEY), place, with_key=True)
    return lambda disk: restore(place, ID, BACK, file_system=disk, with_key=True)


def remains() -> Work:
    """What is left of a conversation whose live generation began behind the damage."""
    place = SimulatedBackend()
    with ConversationLibrary(place, file_system=SimulatedFileSystem()).create(id=ID, messages=[said("first")]) as store:
        store.append_message(said("second"))
        store.replace_transcript([said("summary")])
    place.set_object(ID, "s/2", place.object(ID, "s/2").replace(b"second", b"secone"))
    return lambda disk: write_remains(disk, BACK, ID, place.read(ID), None)


def made_by(work: Work, patch: pytest.MonkeyPatch, do: Callable[[Site], bool]) -> dict[str, bytes]:
    """What is in the folder after the call and the worst power cut."""
    disk = SimulatedFileSystem()
    with patch.context() as within:
        syncing(within, do)
        work(disk)
    return files_in(disk.worst_power_failure(), BACK)


def test_every_sync_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: the list of syncs in the source equals the list of mutants killed."""
    killed: set[tuple[str, int]] = set()
    for work in (restored(), remains()):
        made: set[Site] = set()
        whole = made_by(work, monkeypatch, lambda site, made=made: made.add(site) is None)  # type: ignore[misc]
        assert len(whole) > 2
        for mutant in made:
            if made_by(work, monkeypatch, lambda site, mutant=mutant: site != mutant) != whole:  # type: ignore[misc]
                killed.add((mutant.module, mutant.line))
    assert {mutant for mutant in killed if mutant[0].startswith("places.")} == in_the_source(in_places=True)


def test_every_sync_of_a_folder_that_goes_on_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: those of the archive, of a transcript before its name, and of the metadata. Another that is left out shows when the call is cut off."""
    place = SimulatedBackend()
    first, *_ = every_moment(place, KEY)

    def left(do: Callable[[Site], bool]) -> dict[str, bytes]:
        disk = first.copy()
        with monkeypatch.context() as within:
            syncing(within, do)
            restore(place, ID, FOLDER, file_system=disk, with_key=True)
        return files_in(disk.worst_power_failure(), FOLDER)

    made: set[Site] = set()
    whole = left(lambda site: made.add(site) is None)  # type: ignore[func-returns-value]
    killed = {site.function for site in made if left(lambda other, site=site: other != site) != whole}  # type: ignore[misc]
    assert killed == {"archive_live", "write_temporary", "replace_file"}
