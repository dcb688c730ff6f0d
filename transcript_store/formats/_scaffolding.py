"""Scaffolding: text that a program wrote in the user's name, and the part of a message that the user typed.

Every reader marks it in a record's ``extra.scaffolding``, and :func:`transcript_store.messages.typed_of` reads the mark:

* ``true``: all of the message is about the program's surroundings. It is not exported to another program;
* ``{"typed": text}``: the user typed only this text. It is empty if the program wrote a message of the conversation: a summary, the
  text of a command, news of a task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from transcript_store.formats._members import Json, first_text, obj

_TAG = r"([A-Za-z][\w-]*(?: [a-z]+)?)"
_OPENED = re.compile(rf"<{_TAG}(?:\s[^<>]*)?>")
_CLOSED = re.compile(rf"</{_TAG}>\Z")
_BLANKS = re.compile(r"\s+")
_LONGEST_TAG = 100
_MOST_NESTED = 64
"""The limit of tags of one name in the search for an element's end: hostile text would take quadratic time."""


@dataclass(frozen=True, slots=True)
class Scaffolding:
    """How one program marks its text in the user's name."""

    tags: frozenset[str] = frozenset()
    """Elements before or after the typed text."""
    openings: tuple[str, ...] = ()
    """A text that starts with one of these is the program's to its end."""
    headings: tuple[tuple[str, str], ...] = ()
    """A text that starts with the first is the program's up to the second, a pattern; without that all of it is."""
    attached: tuple[str, str] | None = None
    """The lines around files that the program appended to the typed text; they may be several texts."""
    typed_within: Callable[[dict[str, str]], str] | None = None
    """Returns the typed text within the elements in front, by their names."""

    def typed(self, said: str) -> str:
        """The typed part of a text; the same text if that is all of it."""
        rest = self._below_headings(said.strip())
        found: dict[str, str] = {}
        begin, end = 0, len(rest)
        while (opened := _OPENED.match(rest, begin)) is not None and opened[1] in self.tags:
            inner, begin = _closed(rest, opened)
            found.setdefault(opened[1], rest[slice(*inner)].strip())
            begin = _past_blanks(rest, begin)
        if rest.startswith(self.openings, begin):
            begin = end
        while (closed := _CLOSED.search(rest, max(begin, end - _LONGEST_TAG), end)) is not None and closed[
            1
        ] in self.tags:
            opens = _opened(rest, closed[1], begin, end)
            if opens < 0:
                break
            end = opens
            while end > begin and rest[end - 1].isspace():
                end -= 1
        rest = self._below_headings(rest[begin:end])
        typed = self.typed_within(found) if self.typed_within is not None and found else ""
        return said if rest == said.strip() else "\n\n".join(filter(None, (typed, rest)))

    def _below_headings(self, said: str) -> str:
        for begins, ends in self.headings:
            if said.startswith(begins):
                end = re.search(ends, said, re.MULTILINE | re.DOTALL)
                said = "" if end is None else said[end.end() :].strip()
        return said

    def command_in(self, texts: Iterable[str]) -> str:
        """The command that the user typed, in a message that the program marks as its own; empty if there is none."""
        typed = (self.typed(said) for said in texts if said.lstrip().startswith("<"))
        return next((said for said in typed if said.startswith(("/", "! "))), "")

    def typed_of(self, texts: Iterable[str]) -> str | None:
        """The typed part of a message's texts; None for all of them."""
        given = [said for said in texts if said.strip()]
        typed = [self.typed(said) for said in self._without_files(given)]
        return None if typed == given else "\n\n".join(filter(None, typed))

    def _without_files(self, texts: list[str]) -> list[str]:
        if self.attached is None:
            return texts
        begins, ends = self.attached
        kept, is_file = [], False
        for said in texts:
            if not is_file:
                typed, begun, _ = said.partition(begins)
                is_file = bool(begun) and (not typed or typed.endswith("\n"))
                kept.append(typed.rstrip() if is_file else said)
            is_file = is_file and not said.rstrip().endswith(ends)
        return kept


def _closed(said: str, opened: re.Match[str]) -> tuple[tuple[int, int], int]:
    """The content of an element as a range, and the end of the element. It may contain elements of its name."""
    name, begin, depth = opened[1], opened.end(), 1
    for tag in islice(re.compile(rf"<(/?){re.escape(name)}(?:\s[^<>]*)?>").finditer(said, begin), _MOST_NESTED):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return (begin, tag.start()), tag.end()
    first = said.find(f"</{name}>", begin)  # a tag that is opened and not closed is a mention of it
    return ((begin, len(said)), len(said)) if first < 0 else ((begin, first), first + len(name) + 3)


def _opened(said: str, name: str, begin: int, end: int) -> int:
    """The start of the element that ends at ``end``; -1 if it does not start after ``begin``."""
    depth, place = 0, end
    for _ in range(_MOST_NESTED):
        opens, closes = said.rfind(f"<{name}", begin, place), said.rfind(f"</{name}>", begin, place)
        place = max(opens, closes)
        if opens < 0:
            break
        if closes > opens:
            depth += 1
        elif said[opens + 1 + len(name)] in " \t\n>":  # no element whose name only begins so
            depth -= 1
            if depth == 0:
                return opens
    return said.rfind(f"<{name}", begin, end)


def _past_blanks(said: str, begin: int) -> int:
    blank = _BLANKS.match(said, begin)
    return begin if blank is None else blank.end()


def marked(typed: str | None, *, is_said: bool = False) -> Json:
    """The mark of a message of which the user typed this: none for None. ``is_said``: it is a part of the conversation all the same."""
    if typed is None:
        return {}
    return {"scaffolding": {"typed": typed} if typed or is_said else True}


def marked_summary() -> Json:
    """The mark of a compaction's summary: the program wrote it, and it is a part of the conversation."""
    return {"compaction": True, **marked("", is_said=True)}


def texts_in(content: Any) -> list[str]:
    """The texts of a message's content: a text, or parts that have one."""
    members = content if isinstance(content, list) else [content]
    return [
        said for one in members if (said := one if isinstance(one, str) else first_text(obj(one).get("text")) or "")
    ]


def _tags(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _typed_at_claude_code(found: dict[str, str]) -> str:
    if command := found.get("bash-input"):
        return f"! {command}"
    return " ".join(filter(None, (found.get("command-name"), found.get("command-args"))))


CLAUDE_CODE = Scaffolding(
    _tags(
        "local-command-caveat local-command-stdout local-command-stderr bash-input bash-stdout bash-stderr "
        "command-name command-message command-args command-contents system-reminder task-notification "
        "ide_opened_file ide_selection ide_diagnostics new-diagnostics user-prompt-submit-hook "
        "session-start-hook user-memory-input teammate-message channel cross-session-message fork-boilerplate tick "
        "uploaded_files mcp-resource-update mcp-polling-update background-task-input background-task-output "
        "agent-notification"
    ),
    (
        "Caveat: The messages below were generated by the user while running local commands.",
        "This session is being continued from a previous conversation",
        "[Request interrupted by user",
        "Write a 3-6 word summary of the TEXTBLOCK below.",
        "[Image: source: ",
    ),
    typed_within=_typed_at_claude_code,
)
_REQUEST = r"^## My request(?: for Codex)?:"
"""The heading above what was typed in Codex's editors and its app, below the sections that these add."""
_REQUEST_IF_ANY = rf"\A(?!.*{_REQUEST})|{_REQUEST}"
"""Without that heading all of it was typed: a user may write such a line too."""
_SURROUNDINGS = (
    "# Files mentioned by the user:",
    "# Files pasted by the user:",
    "# In app browser:",
    "# Browser comments:",  # a comment is the user's too
    "## Referenced chats with Codex:",
    "## My request",
)
CODEX = Scaffolding(
    _tags(
        "environment_context user_instructions skills_instructions turn_aborted collaboration_mode "
        "model_switch subagent_notification user_shell_command apps_instructions plugins_instructions "
        "INSTRUCTIONS skill user_action personality_spec goal_context hook_prompt multi_agent_mode "
        "token_budget realtime_conversation codex_internal_context app-context recommended_plugins "
        "environments_instructions in-app-browser-context image"
    )
    | {"permissions instructions"},
    (
        "Another language model started to solve this problem and produced a summary",
        "Warning: The maximum number of unified exec",
        "</image>",
    ),
    (
        ("# AGENTS.md instructions", "</INSTRUCTIONS>"),
        ("# Context from my IDE setup:", _REQUEST),
        *((heading, _REQUEST_IF_ANY) for heading in _SURROUNDINGS),
    ),
)
GEMINI_CLI = Scaffolding(
    _tags(
        "session_context hook_context loaded_context state_snapshot environment_context "
        "background_task_notification system_note system-reminder untrusted_context project_context"
    ),
    ("This is the Gemini CLI. We are setting up the context for our chat.", "System: Please continue."),
    attached=("--- Content from referenced files ---", "--- End of content ---"),
)
KIMI = Scaffolding(
    frozenset({"git-context", "system", "system-reminder", "notification", "current_focus", "environment"})
)
_UNTRUSTED = r"[^\n]{1,80}\(untrusted metadata\):\n```json\n.*?\n```"
PI = Scaffolding(
    frozenset({"skill", "file", "system-reminder"}),
    # OpenClaw tells the model who wrote in which chat, and when.
    headings=tuple(
        (heading, rf"\A(?:{_UNTRUSTED}\s*)*(?:\[\w{{3}} [0-9][^\]\n]*\])?")
        for heading in ("Conversation info (untrusted metadata):", "Sender (untrusted metadata):")
    ),
)
