"""docs/programs.md, from the table of programs. ``python -m tests.program_list`` writes it."""

from __future__ import annotations

from pathlib import Path

from transcript_store.sources import PROGRAMS, KnownProgram

DOCUMENT = Path(__file__).parent.parent / "docs/programs.md"
HEAD = """\
# Supported programs

`python -m tests.program_list` makes this page from `transcript_store/sources/_program_table.py`. `transcript-store programs`
prints the same table. `transcript-store programs --json` is for other programs: it has `schema` (`transcript-store/programs`) and
`version` (1; it changes when a member is renamed or removed).

A program's name is that of its format: use it in `import NAME`, `--format NAME`, and, if the program can resume a session,
`export --to NAME`. [import.md](import.md) says what becomes of each line.

## Versions, and what is read

"Not run": the reader is tested with published files and the sources that its tests name, not with sessions that we made with the
program.

| program | format | versions run | on | read | lost | resumed by |
|---|---|---|---|---|---|---|
"""
FOLDERS = """
## Where sessions are

Folders are below the home directory. `*` matches a part of one name that does not start with a dot. The variable names another
folder. For a site, or a program without its own folder, name the file.

| format | folder | sessions | variable |
|---|---|---|---|
"""
RETENTION = """
## When a program deletes its sessions

The other programs have no such setting that we know of. The file is below the program's first folder above.

| format | default | setting | file | the line that keeps them | |
|---|---|---|---|---|---|
"""
FIXTURES = """
## Tests of each reader

| format | tests |
|---|---|
"""


def program_list() -> str:
    """The document as it should be."""
    return "".join(
        (
            HEAD,
            *(_cells(*_what_is_read(one)) for one in PROGRAMS),
            FOLDERS,
            *(_cells(*row) for one in PROGRAMS for row in _folders(one)),
            RETENTION,
            *(_cells(*_retention(one)) for one in PROGRAMS if one.retention is not None),
            FIXTURES,
            *(_cells(f"`{one.program}`", ", ".join(f"`{path}`" for path in one.fixtures)) for one in PROGRAMS),
        )
    )


def _cells(*texts: str) -> str:
    return f"| {' | '.join(texts)} |\n"


def _what_is_read(one: KnownProgram) -> tuple[str, ...]:
    versions = ", ".join(one.tried) or "not run"
    resume = f"`{one.resume}`" if one.resume else "–"
    return one.title, f"`{one.program}`", versions, one.tried_on or "–", one.reads, one.loses, resume


def _folders(one: KnownProgram) -> list[tuple[str, ...]]:
    return [
        (
            f"`{one.program}`",
            f"`{place.folder}`" + (f" (macOS: `{place.mac_folder}`)" if place.mac_folder else ""),
            ", ".join(f"`{pattern}`" for pattern in place.patterns),
            (f"`{place.variable}`" if place.variable else "–")
            + (f", then `{place.below_variable}`" if place.below_variable else ""),
        )
        for place in one.session_folders
    ]


def _retention(one: KnownProgram) -> tuple[str, ...]:
    kept = one.retention
    assert kept is not None
    days = "never" if kept.days is None else f"{kept.days:g} days"
    return f"`{one.program}`", days, f"`{kept.key}`", f"`{kept.file}`", f"`{kept.keeps}`", kept.note


if __name__ == "__main__":
    DOCUMENT.write_text(program_list(), encoding="utf-8")
