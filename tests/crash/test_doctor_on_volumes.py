"""``doctor`` on real file systems: those that keep the promises, one that syncs nothing, one in memory, one that is read-only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.forgetful import mounted
from tests.crash.volumes import run, volume
from transcript_store import Diagnosis, doctor

pytestmark = [pytest.mark.root, pytest.mark.needs("mkfs.xfs", "mkfs.btrfs")]


def ill(found: Diagnosis) -> dict[str, str]:
    return {check.name: check.found for check in found.checks if check.result == "failed"}


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay"])
def test_where_the_proof_ran(kind: str) -> None:
    with volume(kind) as there:
        found = doctor(there.path)
        assert ill(found) == {}
        assert f"{kind} on " in found.checks[0].found


def test_an_overlay_that_syncs_nothing() -> None:
    """``volatile``, as container engines offer it for builds: no sync reaches the layer below."""
    with volume("overlay") as there:
        below = there.path.parent / "below"
        layers = ",".join(f"{name}dir={below / name}" for name in ("lower", "upper", "work"))
        run("umount", there.path)
        run("mount", "-t", "overlay", "overlay", "-o", f"{layers},volatile", there.path)
        found = doctor(there.path)
        assert found.failed_promises == ("P1", "P2", "P4")
        assert {"file system", "sync"} <= ill(found).keys()


def test_a_mount_that_is_read_only() -> None:
    with volume("ext4") as there:
        run("mount", "-o", "remount,ro", there.path)
        found = doctor(there.path)
        assert ill(found) == {"writing": "refused: Read-only file system; what is here can be read"}
        assert found.sync_microseconds is None


@pytest.mark.needs("/dev/fuse", "fusermount3")
def test_a_disk_that_a_program_plays() -> None:
    """Nothing tells from outside that it forgets what it synced: the clock, which stands still there, is all that is odd."""
    with mounted("tests.crash.forgetful") as path:
        found = doctor(Path(path))
        assert ill(found) == {}
        assert {check.name for check in found.checks if check.result == "note"} >= {"file system", "clock"}
