"""The fixture that runs a command in this process."""

from __future__ import annotations

import io
import sys

import pytest

from tests.cli.helpers import Cli, Result
from transcript_store.cli import main


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
    monkeypatch.setattr("transcript_store.cli._shared.progress.PATIENCE_SECONDS", 60.0)


@pytest.fixture
def a_cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an import keeps of itself goes nowhere near the cache of whoever runs this."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
