"""What the documents say of the code is held against the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.crash.seeded_bugs import BUGS
from transcript_store import ToolSnapshot
from transcript_store._log.damage import Kind

TOP = Path(__file__).parent.parent
FORMAT = (TOP / "docs/format.md").read_text()
DURABILITY = (TOP / "docs/durability.md").read_text()
SNAPSHOTS = (TOP / "docs/snapshots.md").read_text()


def test_every_kind_of_damage_is_described() -> None:
    """docs/format.md has a row for each kind that an error or a finding can carry."""
    rows = [line for line in FORMAT.splitlines() if line.startswith("| `")]
    described = {kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    assert described == {*get_args(Kind), "damaged", "version"}


def test_every_seeded_bug_is_in_the_table() -> None:
    """docs/durability.md says which technique catches which bug."""
    for bug in BUGS:
        on_the_kernel = ", ".join(bug.on_the_kernel).replace("_", " ") or "–"
        row = f"| {bug.name.replace('_', ' ')} | {bug.caught_by.replace('_', ' ')}, on `{bug.case.name}` | {on_the_kernel} |"
        assert row in DURABILITY


def test_every_test_that_holds_up_a_promise_exists() -> None:
    """docs/durability.md names no file that is not there, with its folder or without."""
    named = set(re.findall(r"`([a-z_/]+\.py)`", DURABILITY))
    assert len(named) > 20
    there = {
        str(path.relative_to(TOP)) for part in ("tests", "transcript_store") for path in (TOP / part).rglob("*.py")
    }
    known = there | {path.rpartition("/")[2] for path in there}
    assert sorted(named - known) == []


def test_every_kind_of_damage_to_a_snapshot_is_described() -> None:
    """docs/format.md names each kind that the source gives to a ``CorruptSnapshotError`` or a finding of a store's."""
    source = "".join(
        (TOP / "transcript_store/_snapshots" / name).read_text()
        for name in ("files.py", "file_store.py", "snapshot.py")
    )
    given = set(re.findall(r'kind="([a-z-]+)"', source))
    assert given > {"wrong-id", "wrong-media", "unopened"}
    assert [kind for kind in sorted(given) if f"`{kind}`" not in FORMAT] == []


def test_what_go_cannot_read_is_described() -> None:
    """Each schema that docs/snapshots.md prints in its table is read, written otherwise or warned of as its row says."""
    rows = [line.split("|")[1:3] for line in SNAPSHOTS.splitlines() if line.startswith("| ")]
    printed = 0
    for given, verdict in rows:
        for members in re.findall(r'`(?:\{\}|(".*?))`', given):
            tool = ToolSnapshot("t", "", json.loads(f"{{{members}}}".replace("…", "")))
            assert bool(tool.unreadable_for_go) == ("cannot read" in verdict), members
            for equal in re.findall(r'`(true|"anyOf".*?|"type".*?)`', verdict):
                assert tool.parameters == json.loads("true" if equal == "true" else f"{{{equal}}}")
            printed += 1
    assert printed > 10


@pytest.mark.parametrize(
    "module",
    ["filelock", "asyncio", "msgspec", "cryptography", "transcript_store.cli", "transcript_store.testing"],
)
def test_importing_the_package_is_cheap(module: str) -> None:
    """What only some callers need is imported only when they need it, whatever they import of the package."""
    code = f"import sys; from transcript_store import *; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
