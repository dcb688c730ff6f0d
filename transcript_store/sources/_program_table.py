"""The table of programs: what is read of each, what is lost, and when it deletes sessions. ``_programs`` has its folders.

``transcript-store programs`` and docs/programs.md are printed from it (``python -m tests.program_list``). A new reader adds its row
here, its folders to ``SESSION_FOLDERS`` and itself to ``READERS``; a test compares the three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transcript_store.formats import SessionFolder
from transcript_store.sources._programs import SESSION_FOLDERS

SCHEMA = "transcript-store/programs"
VERSION = 1
"""Of the JSON of :func:`program_table`. It changes when a member is renamed or removed; new members do not change it."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The setting by which a program deletes its own sessions."""

    file: str
    """Where it is set: a path below the first of the program's folders."""
    key: str
    """The member of that file, with a dot between levels."""
    days: float | None
    """After how many days without a change a session is deleted if nothing is set; None if it is kept."""
    keeps: str
    """The line that makes the program keep its sessions, as it is written into the file."""
    note: str = ""
    """What else deletes sessions, and from which version on."""
    least: float = 0
    """A smaller number of days is refused by the program."""
    in_project: tuple[str, ...] = ()
    """The same below a project's folder, the first one counts; above ``file``. Started in that folder, the program deletes by it, wherever
    the sessions are."""
    projects: str = ""
    """The file that names the projects, as the keys of its member ``projects``: in the folder that a variable names, else in the home."""
    managed: tuple[str, ...] = ()
    """The same for all users of a machine, or of an organization: above all others, the last one counts. A relative path is below the
    program's folder, ``*`` stands for a part of a name."""
    managed_on_macos: tuple[str, ...] = ()
    managed_variable: str | None = None
    """The environment variable that names another file than the first of ``managed``."""


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """A program or a site whose sessions are read: a row of the table."""

    program: str
    """The name of its format: for ``import PROGRAM``, ``--format`` and, if it can be resumed, ``export --to``."""
    title: str
    """The name that its makers use."""
    reads: str
    """The files that are read, and which of their parts become messages."""
    loses: str
    """What its sessions hold and no message does; the bytes are kept all the same."""
    tried: tuple[str, ...] = ()
    """The versions that wrote the sessions of those tests; empty if the program was not run."""
    tried_on: str | None = None
    """The day of that run, ISO 8601."""
    resume: str | None = None
    """The command by which the program continues a session that ``export --to`` wrote; None without a writer."""
    retention: Retention | None = None
    """None if it has no such setting, and deletes nothing."""
    fixtures: tuple[str, ...] = ()
    """The tests that hold its reader, and their inputs; paths in this repository."""

    @property
    def session_folders(self) -> tuple[SessionFolder, ...]:
        """Its session folders; empty for a site, whose exports are named."""
        return tuple(place for place in SESSION_FOLDERS if place.program == self.program)


def _tests(names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}.py" for name in names.split())


# fmt: off
PROGRAMS: tuple[KnownProgram, ...] = (
    KnownProgram("claude-code", "Claude Code", tried=("2.1.330",), tried_on="2026-11-23", resume="claude --resume ID",
        reads="JSON lines: the path to the last line, compactions and rewinds, sub-agents, titles, `stream-json` output",
        loses="attachments that are not prompts (selections, files), the program's own errors, and hooks are events, not messages",
        retention=Retention("settings.json", "cleanupPeriodDays", 30, '"cleanupPeriodDays": 36500',
            "the setting of one project deletes in all projects; 0 is refused, or the program writes no transcripts at all",
            least=1, in_project=(".claude/settings.local.json", ".claude/settings.json"), projects=".claude.json",
            managed=("/etc/claude-code/managed-settings.json", "/etc/claude-code/managed-settings.d/*.json", "remote-settings.json"),
            managed_on_macos=("/Library/Application Support/ClaudeCode/managed-settings.json",
                "/Library/Application Support/ClaudeCode/managed-settings.d/*.json", "remote-settings.json")),
        fixtures=_tests("formats/test_claude_code programs/test_programs")),
    KnownProgram("codex", "Codex", tried=("0.169.0",), tried_on="2026-11-23", resume="codex resume ID",
        reads="rollouts, including compressed (`.zst`) and archived ones: items, compactions, rolled-back turns, titles",
        loses="encrypted reasoning and summaries; searches and pictures that OpenAI made on its side",
        fixtures=_tests("formats/test_codex programs/test_programs")),
    KnownProgram("pi", "pi", tried=("0.73.1",), tried_on="2026-11-23", resume="pi --session ID",
        reads="JSON lines of versions 1 to 3: the path to the last entry, compactions, branches, titles",
        loses="thinking, except that of the last provider of a session",
        fixtures=_tests("formats/test_pi programs/test_programs")),
    KnownProgram("openclaw", "OpenClaw", tried=("2026.9.6",), tried_on="2026-11-28",
        reads="JSON lines in pi's form (not run), and the database of an agent",
        loses="as pi; calls of tools that do not exist, which the program does not store",
        retention=Retention("openclaw.json", "session.maintenance.pruneAfter", 30, '"session": {"maintenance": {"mode": "warn"}}',
            "it also deletes sessions beyond session.maintenance.maxEntries (500); older versions only warn"),
        fixtures=_tests("formats/test_openclaw")),
    KnownProgram("gemini-cli", "Gemini CLI", tried=("0.61.0",), tried_on="2026-11-23", resume="gemini --resume ID",
        reads="JSON documents and JSON lines: messages, results, rewinds, sub-agents",
        loses="the program's own notices and errors are events, not messages",
        retention=Retention("settings.json", "general.sessionRetention.maxAge", 30, '"general": {"sessionRetention": {"enabled": false}}',
            "it also deletes sessions beyond general.sessionRetention.maxCount, and a session that was resumed in another minute (0.61); "
            "older versions delete only if this is enabled",
            managed=("/etc/gemini-cli/settings.json",), managed_on_macos=("/Library/Application Support/GeminiCli/settings.json",),
            managed_variable="GEMINI_CLI_SYSTEM_SETTINGS_PATH"),
        fixtures=_tests("formats/test_gemini_cli programs/test_programs")),
    KnownProgram("qwen-code", "Qwen Code", tried=("0.24.4",), tried_on="2026-11-27",
        reads="JSON lines: the path to the last line, compactions, rewinds, forks, sub-agents, titles",
        loses="telemetry and commands are events, not messages; the program does not record that the user stopped a reply",
        fixtures=_tests("formats/test_qwen_code formats/test_made_by_programs")),
    KnownProgram("cline", "Cline", tried=("3.0.65",), tried_on="2026-11-27",
        reads="the session documents of its CLI, with compactions and sub-agents; task folders of its extension (not run)",
        loses="thinking of Claude has no signature, so it is kept beside the message; the program's own errors are events, not messages",
        fixtures=_tests("formats/test_cline formats/test_made_by_programs")),
    KnownProgram("roo", "Roo Code",
        reads="task folders, in Cline's form: messages, condensed and truncated contexts, the task, its folder and model",
        loses="encrypted reasoning; tool calls of old versions are text in a reply",
        fixtures=_tests("formats/test_cline")),
    KnownProgram("droid", "Factory Droid", tried=("0.225.2",), tried_on="2026-11-27",
        reads="JSON lines: the path to the last line, compactions (not run), sub-agents, titles; `stream-json` output",
        loses="tokens of each reply: the program stores only the session's totals; partial replies, which it does not store",
        fixtures=_tests("formats/test_droid formats/test_made_by_programs")),
    KnownProgram("cursor", "Cursor",
        reads="the agent's transcripts and `store.db`; conversations in the editor's `state.vscdb`, including deleted ones",
        loses="results and most times (not in transcripts); the graph of `store.db`; chats before `cursorDiskKV`; `.txt` transcripts",
        fixtures=_tests("formats/test_cursor formats/test_made_by_programs")),
    KnownProgram("hermes", "Hermes Agent", tried=("0.19.0",), tried_on="2026-11-27",
        reads="`state.db` with its log, `sessions export`, JSON files of the first versions: compactions, undo, sub-agents, titles",
        loses="tokens of each reply: the program stores only totals; pictures: it stores a description; the model, if a session used two",
        fixtures=_tests("formats/test_hermes formats/test_made_by_programs")),
    KnownProgram("goose", "Goose",
        reads="`sessions.db`: compactions, sub-agents, models and tokens of each reply; JSON lines of versions before 1.10",
        loses="what the program shows only to the user (notices, confirmations) is an event, not a message",
        fixtures=_tests("formats/test_goose")),
    KnownProgram("kiro", "Kiro CLI",
        reads="`data.sqlite3` of the first engine, the JSON lines of the second (with compactions) and the third",
        loses="tokens and credits; times of most replies, which the program does not store",
        fixtures=_tests("formats/test_kiro")),
    KnownProgram("kimi", "Kimi Code, Kimi CLI", tried=("2.1.0", "1.51.0"), tried_on="2026-11-28",
        reads="`wire.jsonl` of both programs: steps, calls, compactions, undo, forks, sub-agents, titles",
        loses="audio and video; in sessions of Kimi CLI also the context after a compaction, and models",
        fixtures=_tests("formats/test_kimi")),
    KnownProgram("llm", "llm", tried=("0.36",), tried_on="2026-11-28",
        reads="`logs.db`: threads of 0.33 and later, responses of earlier versions, fragments, attachments, tools",
        loses="the signature of reasoning; attached files of which the log has only the path",
        fixtures=_tests("formats/test_llm_logs")),
    KnownProgram("omp", "omp (Oh My Pi)", tried=("18.2.3",), tried_on="2026-11-27",
        reads="JSON lines: the path to the last entry, compactions, branches, titles, sub-agents with their session, forks",
        loses="as pi; a result that omp replaced before the import (the line that replaced it, which is stored, has its text)",
        fixtures=_tests("formats/test_omp")),
    KnownProgram("mistral-vibe", "Mistral Vibe", tried=("2.11.1", "3.0.3"), tried_on="2026-11-27",
        reads="`messages.jsonl` of version 2, and the folders of version 3: turns, compactions, stopped and killed turns, sub-agents",
        loses="tokens of each reply: the program stores only totals; in version 3, the context after each compaction except the last",
        fixtures=_tests("formats/test_vibe")),
    KnownProgram("openhands", "OpenHands (CLI and SDK)", tried=("1.16.0",), tried_on="2026-11-27",
        reads="the events of a conversation, and of its sub-agents: messages, calls, results, condensations, tokens of each reply",
        loses="the model of each reply: the program stores only the current one",
        fixtures=_tests("formats/test_openhands")),
    KnownProgram("continue", "Continue", tried=("1.5.47",), tried_on="2026-11-27",
        reads="`sessions/*.json`: messages, calls with their outcome, titles, the start time of the session",
        loses="times of messages, reasoning and stopped replies, which the program does not store; the parent of a fork, if both continued",
        fixtures=_tests("formats/test_continue")),
    KnownProgram("aider", "Aider", tried=("0.86.2",), tried_on="2026-11-27",
        reads="`.aider.chat.history.md` of a repository that you name: one session for each run, tokens as Aider rounds them",
        loses="reasoning, images and output of commands (not in the file); reports of Aider without a line that ends in two spaces",
        fixtures=_tests("formats/test_aider")),
    KnownProgram("vscode-chat", "Visual Studio Code, Copilot chat",
        reads="`chatSessions`, documents and logs of operations: prompts, pasted text, replies, calls, pictures, undone requests",
        loses="attached files, edits that are shown as diffs, buttons and other parts of a reply that are not text",
        fixtures=_tests("formats/test_vscode_chat")),
    KnownProgram("grok", "Grok Build", tried=("1.0.41",), tried_on="2026-11-28",
        reads="`updates.jsonl` as `acp`: rewinds, tokens of a turn; without it `chat_history.jsonl`; title, folder, models, parent",
        loses="the context after a compaction (not run) and signatures of thinking, which are in other files; a reply that a kill cut off",
        fixtures=_tests("formats/test_grok formats/test_acp")),
    KnownProgram("acp", "Clients and agents of the Agent Client Protocol",
        reads="a log of `session/update` messages, one on each line: chunks, calls with their outcome, recorded prompts",
        loses="plans, modes and commands; the protocol itself stores nothing",
        fixtures=_tests("formats/test_acp")),
    KnownProgram("antigravity", "Antigravity",
        reads="the readable `transcript.jsonl` of a conversation: prompts, replies, calls with their outcome, compactions",
        loses="titles and folders; conversations that exist only as a database or an encrypted file",
        fixtures=_tests("formats/test_antigravity")),
    KnownProgram("gptme", "gptme", tried=("0.35.1",), tried_on="2026-11-28",
        reads="`conversation.jsonl`: messages, tokens and cost of each reply, the name of the conversation",
        loses="attached files, of which only the path is stored; branches, which are separate files",
        fixtures=_tests("formats/test_gptme")),
    KnownProgram("zed", "Zed (its own agent)",
        reads="`threads.db`, versions 0.2.0 and 0.3.0: prompts and the files they mention, replies, calls, sub-agents, tokens of a prompt",
        loses="times of messages, which Zed does not store; compressed threads need the extra `zstd`",
        fixtures=_tests("formats/test_zed")),
    KnownProgram("crush", "Crush",
        reads="`.crush/crush.db` of a project that you name: messages, calls, sub-agents, summaries, titles",
        loses="tokens of each reply: the program stores only the session's totals",
        fixtures=_tests("formats/test_crush")),
    KnownProgram("opencode", "OpenCode", tried=("1.18.33",), tried_on="2026-11-27",
        resume="opencode import FILE && opencode --session ID",
        reads="the database of versions 1 and 2, the JSON folders before 1.2, `export`: compactions, undo, forks, sub-agents, titles",
        loses="patches that followed from a prompt (`summary`), snapshots, todo lists; what an undo removed before the import",
        fixtures=_tests("formats/test_opencode programs/test_imported_by_a_program")),
    KnownProgram("kilo", "Kilo Code", tried=("7.7.7",), tried_on="2026-11-27", resume="kilo import FILE && kilo --session ID",
        reads="as OpenCode, since version 7.2.21",
        loses="as OpenCode",
        fixtures=_tests("formats/test_opencode programs/test_imported_by_a_program")),
    KnownProgram("mimocode", "MiMo Code",
        reads="as OpenCode, whose tables it writes",
        loses="as OpenCode",
        fixtures=_tests("formats/test_opencode")),
    KnownProgram("copilot", "GitHub Copilot CLI", tried=("1.0.102",), tried_on="2026-11-27",
        resume="copilot sessions import FILE && copilot --continue",
        reads="`events.jsonl`: prompts as they were sent, calls in any order, sub-agents, pictures, compactions, names; documents of 2025",
        loses="what a compaction kept besides its summary; what `/undo` removed before the import; encrypted reasoning",
        fixtures=_tests("formats/test_copilot programs/test_imported_by_a_program")),
    KnownProgram("openai-agents", "OpenAI Agents SDK",
        reads="the database of an `SQLiteSession`",
        loses="encrypted rows; calls that carry their result, such as `mcp_call`",
        fixtures=_tests("formats/test_openai_agents")),
    KnownProgram("claude-ai", "Claude.ai",
        reads="the ZIP of an export, or its `conversations.json`: the path to the newest message, attachments",
        loses="thinking, which has no signature in the export; files, which the export does not contain",
        fixtures=_tests("formats/test_exports")),
    KnownProgram("chatgpt", "ChatGPT",
        reads="the ZIP of an export, or its `conversations.json`: the path to the current node, thoughts, pictures, calls",
        loses="hidden nodes; files that the export does not contain, and files that are too large",
        fixtures=_tests("formats/test_exports")),
)
# fmt: on
"""Those that this package reads, in the order of docs/programs.md. Formats that other packages add are not in it."""


def program_table() -> dict[str, Any]:
    """The table as JSON has it: ``schema``, ``version`` and ``programs``, a row each with all members of :class:`KnownProgram`."""
    return {"schema": SCHEMA, "version": VERSION, "programs": [_row(one) for one in PROGRAMS]}


def _row(one: KnownProgram) -> dict[str, Any]:
    # Member by member: the published names stay when a field in the code is renamed.
    return {
        "program": one.program,
        "title": one.title,
        "versions_tried": list(one.tried),
        "tried_on": one.tried_on,
        "session_folders": [
            {
                "folder": place.folder,
                "folder_on_macos": place.mac_folder or place.folder,
                "variable": place.variable,
                "below_variable": place.below_variable,
                "patterns": list(place.patterns),
                "not_sessions": list(place.not_sessions),
            }
            for place in one.session_folders
        ],
        "reads": one.reads,
        "loses": one.loses,
        "resume": one.resume,
        "retention": None
        if (kept := one.retention) is None
        else {"file": kept.file, "key": kept.key, "days": kept.days, "keeps": kept.keeps, "note": kept.note},
        "fixtures": list(one.fixtures),
    }
