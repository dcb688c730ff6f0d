"""Which tests of the frameworks run with our stores, and how many have to pass."""

from __future__ import annotations

from typing import NamedTuple


class Theirs(NamedTuple):
    files: tuple[str, ...]
    passed: int
    skipped: int
    ours: int
    """How many tests of ours pass in that environment."""
    ours_skipped: int = 0
    """And how many cannot run with that version."""


THEIRS = {
    "openai-agents": Theirs(
        # Every file that names SQLiteSession, except two: one is about a subclass with tables of its own, one about imports.
        files=(
            "tests/extensions/memory/test_encrypt_session.py",
            "tests/memory/test_compaction_model_visibility.py",
            "tests/memory/test_compaction_suffix.py",
            "tests/memory/test_openai_responses_compaction_session.py",
            "tests/memory/test_session.py",
            "tests/memory/test_session_limit.py",
            "tests/sandbox/test_memory.py",
            "tests/test_agent_runner.py",
            "tests/test_agent_runner_streamed.py",
            "tests/test_max_turns.py",
            "tests/test_native_tool_failure_history.py",
            "tests/test_programmatic_tool_calling.py",
            "tests/test_run_impl_resume_paths.py",
            "tests/test_soft_cancel.py",
            "tests/test_tool_batch_failure_history.py",
            "tests/test_tool_failure_boundaries.py",
        ),
        passed=1364,
        skipped=4,
        ours=58,
    ),
    "claude-agent-sdk": Theirs(
        # Every file that names InMemorySessionStore, except one about an example for S3.
        files=(
            "tests/test_session_helpers_store.py",
            "tests/test_session_import.py",
            "tests/test_session_resume.py",
            "tests/test_session_store_conformance.py",
            "tests/test_session_summary.py",
            "tests/test_transcript_mirror.py",
        ),
        passed=342,
        skipped=0,
        ours=29,
    ),
    # Of a store that it does not have there are no tests.
    "pydantic-ai": Theirs(files=(), passed=0, skipped=0, ours=129),
    "pydantic-ai-oldest": Theirs(files=(), passed=0, skipped=0, ours=127, ours_skipped=2),
    "pydantic-ai-harness": Theirs(files=(), passed=0, skipped=0, ours=26),
}
