"""Small sessions of other programs, imported and asked by the command line, as a person would."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transcript_store import ConversationLibrary
from transcript_store.cli import main
from transcript_store.exporting import export
from transcript_store.importing import ImportReport, import_conversations

SESSION = "00000003-0000-4000-8000-000000000003"


@dataclass(frozen=True)
class Imported:
    """A library with what was imported into it."""

    library: ConversationLibrary
    path: Path
    reports: tuple[ImportReport, ...]

    @property
    def report(self) -> ImportReport:
        (report,) = self.reports
        return report

    @property
    def directory(self) -> str:
        return f"{self.library.directory}/{self.report.id}"

    def findings(self) -> list[str]:
        return [finding.kind for finding in self.report.findings]

    def show(self, *options: str) -> str:
        return told("show", self.directory, "--plain", "--no-pager", *options)

    def found(self, *query: str) -> list[dict[str, Any]]:
        """The hits of a search, as ``--json`` prints them."""
        query = query if "--regex" in query else (*query, self.library.directory)
        return [json.loads(line) for line in told("search", *query, "--wait", "--json").splitlines()]

    def page(self) -> str:
        page = self.path.parent / "page.html"
        told("view", self.directory, "--output", str(page))
        return page.read_text()

    def name(self) -> str:
        """What the conversation is called."""
        (title,) = re.findall(r"<title>(.*?)</title>", self.page())
        return str(title)

    def has_its_bytes(self) -> bool:
        out = io.BytesIO()
        export(self.library, str(self.report.id), to="original", output=out)
        return out.getvalue() == self.path.read_bytes()


def told(*arguments: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        main(list(arguments))
    return out.getvalue()


def changed_by(*arguments: str, code: int = 0) -> str:
    """What ``session`` prints, with what it says on standard error; its exit code must be this one."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        assert main(["session", *arguments]) == code, out.getvalue()
    return out.getvalue()


def imported(folder: Path, data: bytes | Sequence[Any], name: str = f"{SESSION}.jsonl") -> Imported:
    """A file of these bytes, or of these lines, imported into a new library; a second import changes nothing."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else lines(data))
    library = ConversationLibrary(folder / "library")
    reports = tuple(import_conversations([path], library))
    again = [report.action for report in import_conversations([path], library)]
    assert set(again) <= {"unchanged", "refused"}, again
    return Imported(library, path, reports)


def lines(values: Sequence[Any]) -> bytes:
    spelled = (value if isinstance(value, str) else json.dumps(value, separators=(",", ":")) for value in values)
    return "".join(f"{line}\n" for line in spelled).encode()


class ClaudeLines:
    """Lines of Claude Code, each five seconds behind the one before. A line follows the one before unless it names another."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def add(self, kind: str, *, parent: int | str | None = "", **members: Any) -> int:
        """Add a line; returns its number, from 1."""
        number = len(self.lines) + 1
        above = number - 1 if parent == "" else parent
        self.lines.append(
            {
                "parentUuid": _uuid(int(above)) if above else None,
                "isSidechain": False,
                "sessionId": SESSION,
                "version": "2.1.278",
                "cwd": "/tmp/p",
                "type": kind,
                "uuid": _uuid(number),
                "timestamp": f"2026-09-01T10:{number * 5 // 60:02d}:{number * 5 % 60:02d}.000Z",
                **members,
            }
        )
        return number

    def user(self, content: Any, **members: Any) -> int:
        return self.add("user", message={"role": "user", "content": content}, **members)

    def reply(self, *blocks: Any, model: str = "claude-opus-4-7", **members: Any) -> int:
        content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        message = {"id": f"msg_{len(self.lines)}", "role": "assistant", "model": model, "content": content}
        return self.add("assistant", message=message, **members)

    def compact(self, summary: str = "This session is being continued from a previous conversation. Summary.") -> int:
        last = len(self.lines)
        self.add("system", subtype="compact_boundary", parent=None, logicalParentUuid=_uuid(last))
        return self.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)


def _uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{number:012x}"


def call(name: str = "Task", number: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": number, "name": name, "input": {"prompt": "look"}}


def result(said: str = "found it", number: str = "toolu_1") -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": number, "content": said}]
