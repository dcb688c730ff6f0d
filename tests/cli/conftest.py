"""The fixture that runs a command in this process, and a folder for each test."""

from __future__ import annotations

import io
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, Result
from transcript_store.cli import main


@pytest.fixture(scope="session")
def plain_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:  # on a disk, as doctor asks for
        yield Path(directory)


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder whose name needs no quotes, whatever TMPDIR is: a command that is printed has it as it is.

    That a name which needs them has them is tested in test_hints.
    """
    if shlex.quote(str(tmp_path)) == str(tmp_path):
        return tmp_path
    return Path(tempfile.mkdtemp(dir=request.getfixturevalue("plain_folder")))


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command and capture what it says; misuse is exit code 2, as in a shell."""

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            try:
                code = main(arguments)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        out, err = capsysbinary.readouterr()
        return Result(code, out.decode(), err.decode())

    return run


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer than a second for anything; the line that says so is tested where it is wanted."""
    monkeypatch.setattr("transcript_store.cli._shared.terminal.PATIENCE_SECONDS", 60.0)


@pytest.fixture
def a_cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an import keeps of itself goes nowhere near the cache of whoever runs this."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
