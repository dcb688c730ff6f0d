"""Which processes count as a program that runs: by their words, and by the folder that their own environment names."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from tests.kit.cases import for_each
from transcript_store.sessions import program_named, running_processes
from transcript_store.sessions._programs import is_locked, is_process_of


@for_each(
    "program, words",
    [
        ("claude-code", ["claude"]),
        ("claude-code", ["/home/me/.local/bin/claude", "--resume", "x"]),
        ("claude-code", ["/Users/Ada Lovelace/.local/bin/claude"]),
        ("gemini-cli", ["/Users/Ada Lovelace/.nvm/node", "/Users/Ada Lovelace/.npm/bin/gemini"]),
        ("claude-code", ["node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"]),
        ("codex", ["/opt/codex", "app-server"]),
        ("gemini-cli", ["node", "--no-warnings=DEP0040", "/usr/bin/gemini"]),
        ("gemini-cli", ["npx", "@google/gemini-cli"]),
        ("copilot", ["copilot --resume=x"]),
        ("qwen-code", ["/usr/bin/node", "/x/node_modules/@qwen-code/qwen-code/dist/cli.js"]),
        ("kimi", ["/usr/bin/python3.12", "/home/me/.local/bin/kimi"]),
    ],
)
def test_a_program_is_known_by_its_name_or_its_package(program: str, words: list[str]) -> None:
    """As a binary, as a script of Node or Python, with a title of its own, and as an editor starts it."""
    assert is_process_of(program_named(program), words)


@for_each(
    "program, words",
    [
        ("codex", ["/usr/bin/python3", "/home/me/bin/transcript-store", "import", "codex", "--follow"]),
        ("claude-code", ["vim", "claude"]),
        ("claude-code", ["tail", "-f", "/home/me/.claude/projects/x.jsonl"]),
        ("pi", ["pip", "install", "pi"]),
        ("gemini-cli", ["node", "server.js", "gemini"]),
        ("codex", []),
    ],
)
def test_a_command_that_names_a_program_is_not_that_program(program: str, words: list[str]) -> None:
    """Our own commands name programs, too."""
    assert not is_process_of(program_named(program), words)


def test_a_locked_file_counts(tmp_path: Path) -> None:
    """A lock that another one holds is seen where processes cannot be looked into."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"{}\n")
    assert not is_locked(str(path))
    assert not is_locked(str(tmp_path / "none.jsonl"))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_locked(str(path))
    assert not is_locked(str(path))


def test_a_process_counts_for_the_folder_of_its_own_environment(tmp_path: Path) -> None:
    """Two homes: the program that runs in the one keeps nothing of the other."""
    program = tmp_path / "codex"
    program.symlink_to(sys.executable)
    with subprocess.Popen(
        [str(program), "-c", "print(1, flush=True); input()"],
        env={**os.environ, "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / "here")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for folder, found in (("here", [process.pid]), (".codex", []), ("elsewhere", [])):
            running = running_processes(program_named("codex"), str(tmp_path / folder))
            assert [one.pid for one in running if one.pid == process.pid] == found, folder
        process.kill()
