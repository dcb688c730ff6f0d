"""The programs whose files are changed here: how their processes are called, and where their session files are.

``sources`` knows where a program keeps sessions. The other entries here are for programs that are not imported from yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from transcript_store.formats import SessionFolder
from transcript_store.formats._claude_code import project_folder
from transcript_store.sources import folder_of, session_folders


@dataclass(frozen=True, slots=True)
class Program:
    """A program, by the names of its processes."""

    name: str
    commands: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """npm packages: a process of Node that runs a file below one of these is the program."""


_PROGRAMS = {
    program.name: program
    for program in (
        Program("claude-code", ("claude",), ("@anthropic-ai/claude-code",)),
        Program("codex", ("codex", "codex-app-server"), ("@openai/codex",)),
        Program("gemini-cli", ("gemini",), ("@google/gemini-cli",)),
        Program("pi", ("pi",), ("@mariozechner/pi-coding-agent", "@earendil-works/pi-coding-agent")),
        Program("openclaw", ("openclaw", "openclaw-gateway", "clawdbot", "moltbot"), ("openclaw",)),
        Program("kimi", ("kimi", "kimi-cli", "kimi-code")),
        Program("llm", ("llm",)),
        Program("copilot", ("copilot",), ("@github/copilot",)),
        Program("qwen-code", ("qwen",), ("@qwen-code/qwen-code",)),
        Program("droid", ("droid",)),
        Program("omp", ("omp",), ("@oh-my-pi/pi-coding-agent",)),
        Program("opencode", ("opencode",), ("opencode-ai",)),
        Program("kilo", ("kilo",), ("@kilocode/cli",)),
    )
}
_OTHER_PLACES = (
    SessionFolder("copilot", ".copilot", ("session-state/*/events.jsonl", "session-state/*.jsonl"), "COPILOT_HOME"),
    SessionFolder("qwen-code", ".qwen", ("projects/*/chats/*.jsonl", "projects/*/subagents/*/*.jsonl"), "QWEN_HOME"),
    SessionFolder("droid", ".factory", ("sessions/*/*.jsonl", "sessions/*.jsonl")),
    SessionFolder("omp", ".omp/agent", ("sessions/*/*.jsonl", "sessions/*.jsonl"), "PI_CODING_AGENT_DIR"),
    *(
        SessionFolder(name, f".local/share/{name}", (f"{name}*.db",), "XDG_DATA_HOME", below_variable=name)
        for name in ("opencode", "kilo")
    ),
)


def project_name(program: str, cwd: str) -> str:
    """The name of a project's folder, as a program makes it of the project's directory."""
    if program in ("pi", "omp"):
        return "--" + re.sub(r"[/:\\]", "-", cwd.removeprefix("/")) + "--"
    return project_folder(cwd) if program == "claude-code" else re.sub("[^a-zA-Z0-9]", "-", cwd)


def program_folders() -> tuple[SessionFolder, ...]:
    """Where programs keep sessions, those too that nothing is imported from."""
    known = session_folders()
    names = {folder_kept.program for folder_kept in known}
    return (*known, *(folder_kept for folder_kept in _OTHER_PLACES if folder_kept.program not in names))


def program_names() -> tuple[str, ...]:
    """The names of all programs, in the order in which they are known."""
    return tuple(dict.fromkeys(folder_kept.program for folder_kept in program_folders()))


def line_programs() -> tuple[str, ...]:
    """The names of the programs that keep sessions in files of lines."""
    found = (
        folder_kept.program
        for folder_kept in program_folders()
        if any(each.endswith(".jsonl") for each in folder_kept.patterns)
    )
    return tuple(dict.fromkeys(found))


def program_named(name: str) -> Program:
    """A program by its name. One that is known by its folder alone has a process of its own name."""
    return _PROGRAMS.get(name) or Program(name, (name,))


def folders_of(program: Program, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The folders of a program for an environment; this process's if None."""
    found = (
        folder_of(folder_kept, environ=environ)
        for folder_kept in program_folders()
        if folder_kept.program == program.name
    )
    return tuple(dict.fromkeys(found))


def session_files(
    program: Program, environ: Mapping[str, str] | None = None, *, packed: bool = False
) -> Iterator[tuple[str, str]]:
    """The session files of a program that are lines of JSON: the program's folder, and the path of each; also those that it ``packed``."""
    seen = set()
    for folder_kept in program_folders():
        if folder_kept.program == program.name:
            folder = folder_of(folder_kept, environ=environ)
            for pattern in folder_kept.patterns:
                for path in _matching(folder, pattern.split("/"), folder_kept.not_sessions):
                    if path.endswith((".jsonl", ".zst") if packed else ".jsonl") and path not in seen:
                        seen.add(path)
                        yield folder, path


def program_of(path: str, environ: Mapping[str, str] | None = None) -> tuple[Program, str] | None:
    """Whose session file a path is, by its place, and that program's folder; None if it is in no program's folder."""
    for folder_kept in program_folders():
        folder = folder_of(folder_kept, environ=environ)
        below = os.path.relpath(path, folder).split(os.sep)
        if any(_fits(below, pattern.split("/")) for pattern in folder_kept.patterns):
            return program_named(folder_kept.program), folder
    return None


def _fits(names: list[str], pattern: list[str]) -> bool:
    return len(names) == len(pattern) and all(map(_is_like, names, pattern))


def _is_like(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and not name.startswith(".")


def _matching(folder: str, pattern: list[str], not_sessions: tuple[str, ...]) -> Iterator[str]:
    name, *rest = pattern
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # the program is not used here, or the folder is another user's
    for entry in entries:
        if not _is_like(entry.name, name):
            continue
        if rest and entry.is_dir(follow_symlinks=False):
            yield from _matching(entry.path, rest, not_sessions)
        elif (
            not rest
            and entry.is_file(follow_symlinks=False)
            and not any(fnmatchcase(entry.name, other) for other in not_sessions)
        ):
            yield entry.path
