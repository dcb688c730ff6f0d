"""docs/operations.md: its unit files are units, and its commands are commands. (Its ``bash`` blocks run as they are printed: conftest.py.)"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transcript_store import ConversationLibrary

PAGE = (Path(__file__).parent.parent.parent / "docs/operations.md").read_text()
COMMAND = [sys.executable, "-m", "transcript_store"]
INSTALLED = "/opt/transcript-store/bin/transcript-store"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_units_are_units(tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing wrong: no unknown member, no program that is missing."""
    units = blocks("ini")
    assert len(units) == 4
    program = tmp_path / "transcript-store"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in units:
        name = re.match(r"# /etc/systemd/system/(\S+)\n", unit)
        assert name is not None
        (tmp_path / name[1]).write_text(unit.replace(INSTALLED, str(program)))
    files = [str(path) for path in sorted(tmp_path.glob("transcript-*.*"))]
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, check=False, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("needs systemd-analyze")
    said = [line for line in done.stderr.splitlines() if "transcript-" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def commands() -> list[list[str]]:
    """The command lines that units and the container start."""
    found = [
        shlex.split(line)[1:] for unit in blocks("ini") for line in re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    ]
    return found + [json.loads(line) for line in re.findall(r"^CMD (\[.*\])$", blocks("dockerfile")[0], re.MULTILINE)]


def test_the_commands_are_understood(tmp_path: Path) -> None:
    """Each is taken, and fails for what is not here alone: exit code 1. A misspelled option would be misuse, 2."""
    lines = commands()
    assert len(lines) == 4
    code = f"import sys; from transcript_store.cli import main; sys.exit(max(main(line) == 2 for line in {lines!r}))"
    environment = {**os.environ, "AWS_ENDPOINT": "http://127.0.0.1:9", "AWS_REGION": "eu-central-1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_copy_that_keeps_up_ends_with_sigterm(tmp_path: Path) -> None:
    """Exit code 0, what was claimed is released, and the status file says how it went."""
    library = ConversationLibrary(tmp_path / "chats")
    library.create(messages=[{"role": "user", "content": "hello"}]).close()
    status = tmp_path / "ship.prom"
    words = ["ship", library.directory, "memory:///x", "--follow", "--every", "0.1", "--status-file", str(status)]
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "1 record" in process.stdout.readline()
    while (
        'ship",source' not in (text := status.read_text() if status.exists() else "")
        or "records_total" not in text
        or " 1\n" not in text.rpartition("records_total")[2]
    ):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.communicate()
    assert re.search(r"^transcript_store_records_total\{.*\} 1$", status.read_text(), re.MULTILINE)


@pytest.mark.long
def test_a_server_says_that_it_lives(tmp_path: Path) -> None:
    """Its status file is there within a second or two, and it ends with 130, as the table has it."""
    library = ConversationLibrary(tmp_path / "chats")
    library.create(messages=[{"role": "user", "content": "hello"}]).close()
    status = tmp_path / "serve.prom"
    words = ["serve", library.directory, "--no-open", "--status-file", str(status)]
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    while not re.search(r"last_round_timestamp_seconds\{[^}]*\} [1-9]", status.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    process.communicate()
