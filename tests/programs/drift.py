"""What the newest version of a program writes that the pinned one does not: ``python -m tests.programs.drift FOLDER [PROGRAM…]``.

Both versions are installed below FOLDER, and hold the same short session in the lab. Of each session file the shapes are compared: types
of lines with their members, tables with their columns, and the members of the JSON in them. What is new is printed. It is no error:
a reader keeps what it does not know as events. It says where to look before the pinned version is raised.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.programs.exchanges import QUESTION, sessions
from tests.programs.lab import PROGRAMS, opened

_DEEPEST = 4
_ID = re.compile(r"[0-9a-f]{8}-|[0-9a-f]{16}|[/\\\\]")
"""In the name of a member: it names one of many, and is no shape."""
_IDS = 20
"""An object with more members than that has ids or paths for names: they are no shape."""


def shapes(path: Path) -> set[str]:
    """The shapes in a session file."""
    if path.read_bytes()[:16].startswith(b"SQLite format 3"):
        return set(_of_database(path))
    found: set[str] = set()
    for line in path.read_bytes().split(b"\n"):
        try:
            found.update(_members(json.loads(line or b"0"), ""))
        except ValueError:
            continue
    return found


def _of_database(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            yield from (f"{table}.{column}" for column in columns)
            for row in database.execute(f'SELECT * FROM "{table}"'):
                for column, value in zip(columns, row, strict=True):
                    if isinstance(value, str) and value[:1] == "{":
                        try:
                            yield from _members(json.loads(value), f"{table}.{column} ")
                        except ValueError:
                            continue


def _members(value: Any, before: str, depth: int = 0) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _members(one, f"{before}[]", depth + 1)
    if not isinstance(value, dict) or depth > _DEEPEST:
        return
    kind = next((value[name] for name in ("type", "role", "status") if isinstance(value.get(name), str)), None)
    here = f"{before}{kind or ''}{{}}"
    yield here
    for given, member in value.items() if len(value) <= _IDS else ():
        name = "ID" if _ID.search(given) else given
        yield f"{here}.{name}"
        yield from _members(member, f"{here}.{name} ", depth + 1)


def written_by(program: str, package: str, folder: Path) -> set[str] | str:
    """The shapes of what a version of a program writes; why not, if it cannot be installed or run here."""
    folder.mkdir(parents=True, exist_ok=True)
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), package]
    done = subprocess.run(npm, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{package} cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    os.environ["TRANSCRIPT_STORE_PROGRAMS"] = str(folder)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, opened(Path(scratch)) as lab:
        try:
            lab.ask(program, QUESTION)
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            return f"{package} does not run here: {str(error)[:200]}"
        return {shape for path in sessions(lab, program) for shape in shapes(Path(path))}


def drift(folder: Path, programs: Iterable[str]) -> Iterator[str]:
    """A line for each program that has nothing new, and one for each shape that is new."""
    for program in programs:
        pinned, _ = PROGRAMS[program]
        newest = f"{pinned.rpartition('@')[0]}@latest"
        before, now = (written_by(program, one, folder / program / one.rpartition("@")[2]) for one in (pinned, newest))
        if isinstance(before, str) or isinstance(now, str):
            yield f"{program}: {before if isinstance(before, str) else now}"
            continue
        new = sorted(now - before)
        yield f"{program}: {pinned} and {newest}: {f'{len(new)} shapes are new' if new else 'nothing is new'}"
        yield from (f"  {shape}" for shape in new)


if __name__ == "__main__":
    for line in drift(Path(sys.argv[1]), sys.argv[2:] or PROGRAMS):
        print(line, flush=True)
