"""The documents agree with the code."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.crash.seeded_bugs import BUGS
from transcript_store import ConversationStore, ToolSnapshot, verify
from transcript_store._log.damage import Kind

TOP = Path(__file__).parent.parent
README = (TOP / "README.md").read_text()
BENCHMARKS = (TOP / "docs/benchmarks.md").read_text()
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
    # `.ci/alone` takes rooms away; the proofs of such a room went with it.
    rooms = set(re.findall(r"transcript_store\.(\w+)", (TOP / "pyproject.toml").read_text()))
    gone = {room for room in rooms if not (TOP / "tests" / room).exists()}
    assert sorted(path for path in named - known if path.removeprefix("tests/").partition("/")[0] not in gone) == []


def test_every_kind_of_damage_to_a_snapshot_is_described() -> None:
    """docs/format.md names each kind that the source gives to a ``CorruptSnapshotError`` or a finding of a store's."""
    source = "".join(
        (TOP / "transcript_store/_snapshots" / name).read_text()
        for name in ("file_store.py", "stored.py", "store.py", "snapshot.py")
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


def test_importing_the_package_is_cheap() -> None:
    """What only some callers need is imported only when they need it, whatever they import of the package."""
    dear = {"filelock", "asyncio", "msgspec", "cryptography", "transcript_store.cli", "transcript_store.testing"}
    code = f"import sys; from transcript_store import *; print(*{dear} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"


def printed(document: str, language: str) -> list[str]:
    """The blocks of a document that are printed as this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", document, re.DOTALL | re.MULTILINE)


def test_the_four_lines_of_the_format_are_real(tmp_path: Path) -> None:
    """P20: what docs/format.md prints of a conversation, put into files, is a conversation that is whole to the byte."""
    (transcript,) = printed(FORMAT, "json")
    metadata = next(block for block in printed(FORMAT, "text") if '"format"' in block)
    assert transcript.count("\n") == 4
    (tmp_path / "transcript.jsonl").write_text(transcript)
    (tmp_path / "metadata.json").write_text(metadata)
    assert verify(tmp_path).findings == ()
    with ConversationStore(tmp_path, read_only=True) as conversation:
        conversation.load()
        assert [message["content"] for message in conversation.get_messages()] == [
            "Where were we?",
            "In the kitchen.",
            "Which box?",
        ]


VARIES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z|[0-9a-f]{32}")
"""Times and hashes: other ones in each conversation."""


@pytest.mark.needs("jq")
def test_what_the_readme_shows_of_a_transcript_is_what_one_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first example, run; then each command that stands behind a ``$`` prints what stands below it."""
    monkeypatch.chdir(tmp_path)
    exec(printed(README, "python")[0], {})
    session = next(block for block in printed(README, "text") if block.startswith("$ "))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n)+)", session, re.MULTILINE):
        seen = subprocess.run(command, shell=True, check=True, capture_output=True, text=True, env={"PATH": path})
        assert VARIES.sub("…", seen.stdout) == VARIES.sub("…", shown)


def test_the_story_that_the_page_on_testing_tells_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It had a line less than what a reader saw, and another place to stop at."""
    page = (TOP / "docs/testing.md").read_text()
    exec(printed(page, "python")[0], {})
    assert capsys.readouterr().out == printed(page, "text")[0]


def test_the_figures_of_the_readme_are_those_that_were_measured() -> None:
    """The table beside SQLite has the figures that docs/benchmarks.md has in its overview."""
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in BENCHMARKS.splitlines() if "|" in line]
    measured = {
        name: next(row for row in rows if row[0].strip("*").startswith(name))
        for name in ("transcript_store, `power-loss`", "SQLite, WAL, FULL", "OpenAI Agents SDK, `SQLiteSession`")
    }
    columns = {"append 1 KB": 2, "open, hand out all": 5, "open, hand out the last 50": 6}
    for what, column in columns.items():
        line = next(line for line in README.splitlines() if line.startswith(f"| {what}"))
        shown = [cell.strip(" *") for cell in line.strip("| ").split("|")][1:]
        assert shown == [row[column] for row in measured.values()], what


def test_the_readme_is_short_and_tells_the_story_of_the_page_on_testing() -> None:
    """At most 700 words; what it prints of a crash test is a part of what that page prints, which is run."""
    assert len(README.split()) <= 700
    story = next(block for block in printed(README, "text") if block.startswith("process 1:"))
    assert story in printed((TOP / "docs/testing.md").read_text(), "text")[0]


UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "": 1}


def test_the_limits_are_those_of_the_code() -> None:
    """Each row of docs/limits.md that names a constant has its value."""
    row = re.compile(r"\| (?:2\^(\d+)( − 1)?|([\d,]+) ?(\wiB)?) \| `([\w.]+)\.(\w+)` \|$", re.MULTILINE)
    rows = row.findall((TOP / "docs/limits.md").read_text())
    assert len(rows) > 20
    for power, less, count, unit, module, name in rows:
        if importlib.util.find_spec(f"transcript_store.{module.partition('.')[0]}") is None:
            continue  # `.ci/alone` took this room away
        value = getattr(importlib.import_module(f"transcript_store.{module}"), name)
        written = 2 ** int(power) - bool(less) if power else int(count.replace(",", "")) * UNITS[unit]
        assert value == written, f"{module}.{name}"


WIDE = {"benchmarks", "modules", "programs"}
"""Pages that programs write."""


def test_text_is_at_most_120_columns_wide() -> None:
    """Tables and code aside: a diff of a sentence shows that sentence, and a terminal shows all of it."""
    wide = [
        f"{path.name}: {line}"
        for path in [TOP / "DECISIONS.md", TOP / "SECURITY.md", *(TOP / "docs").glob("*.md")]
        if path.stem not in WIDE
        for line in re.sub(
            r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        ).splitlines()
        if len(line) > 120 and not line.lstrip().startswith(("|", "!", "#"))
    ]
    assert wide == []


def test_every_link_leads_somewhere() -> None:
    """A link from one document to another names a file that is there, and a heading of it."""
    for document in [TOP / "README.md", TOP / "CONTRIBUTING.md", *(TOP / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            if target.startswith("http"):
                continue
            name, _, anchor = target.partition("#")
            path = (document.parent / name).resolve() if name else document
            assert path.exists(), f"{document.name} names {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in anchors, f"{document.name} names {target}"
