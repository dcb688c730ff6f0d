"""The table of programs, its document, and the readers, writers and folders that it speaks of are one another's."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.helpers import Cli
from tests.program_list import DOCUMENT, program_list
from tests.programs.lab import PROGRAMS as RUN
from transcript_store.formats import READERS, WRITERS
from transcript_store.sources import PROGRAMS, SESSION_FOLDERS, program_table

TOP = Path(__file__).parent.parent.parent
READ_BY_ANOTHER = {"openclaw": "pi", "roo": "cline"}
"""Programs that write another one's form."""


def test_the_document_is_the_table() -> None:
    """docs/programs.md: ``python -m tests.program_list``."""
    assert DOCUMENT.read_text(encoding="utf-8") == program_list()


def test_each_reader_has_a_row_and_each_row_a_reader() -> None:
    readers = {reader.name for reader in READERS} - {"jsonl"}  # no program's
    assert {READ_BY_ANOTHER.get(one.program, one.program) for one in PROGRAMS} == readers
    assert len({one.program for one in PROGRAMS}) == len(PROGRAMS)


def test_every_resumable_program_has_a_writer() -> None:
    assert {one.program for one in PROGRAMS if one.resume is not None} == {writer.name for writer in WRITERS}


def test_each_folder_is_of_a_program_in_the_table() -> None:
    assert {place.program for place in SESSION_FOLDERS} <= {one.program for one in PROGRAMS}


def test_the_versions_are_those_that_the_tests_install() -> None:
    pinned = {name: package.rpartition("@")[2] for name, (package, _) in RUN.items()}
    tried = {one.program: one.tried[-1] for one in PROGRAMS if one.program in pinned}
    assert tried == pinned
    assert all((one.tried_on is None) == (not one.tried) for one in PROGRAMS)


def test_the_fixtures_are_there() -> None:
    assert [path for one in PROGRAMS for path in one.fixtures if not (TOP / path).exists()] == []
    assert all(one.fixtures for one in PROGRAMS)


def test_the_json_has_a_schema_and_all_members(cli: Cli) -> None:
    code, out, _ = cli("programs", "--json")
    printed = json.loads(out)
    assert (code, printed) == (0, program_table())
    assert (printed["schema"], printed["version"]) == ("transcript-store/programs", 1)
    assert {tuple(row) for row in printed["programs"]} == {
        (
            "program",
            "title",
            "versions_tried",
            "tried_on",
            "session_folders",
            "reads",
            "loses",
            "resume",
            "retention",
            "fixtures",
        )
    }


def test_the_command_prints_each_program_with_its_retention(cli: Cli) -> None:
    code, out, err = cli("programs")
    assert (code, err) == (0, "")
    assert [one.program for one in PROGRAMS if f"{one.program}: {one.title}\n" not in out] == []
    assert "sessions after 30 days, unless cleanupPeriodDays in settings.json says otherwise" in out
