"""The frameworks' tests that cannot pass with our stores, and why. Each must fail."""

from __future__ import annotations

CONNECTIONS = "it looks at the connections to SQLite and their locks, which are not there"
TRANSACTIONS = "it stops or breaks a transaction of SQLite, which is not there"
ROWS = "it writes a broken row into the database; here what is broken is an error, and not passed over"
FILES = "it looks at the database file and its rows, which are not there"
CLOSED = "a session that was closed opens again by itself; SQLiteSession refuses"
TIMES = "it sets times in a private dictionary of InMemorySessionStore"

IMPOSSIBLE: dict[str, dict[str, str]] = {
    "openai-agents": {
        "tests/extensions/memory/test_encrypt_session.py::test_encrypted_pop_authentication_is_atomic_with_concurrent_mutations[append]": FILES,
        "tests/extensions/memory/test_encrypt_session.py::test_encrypted_pop_authentication_is_atomic_with_concurrent_mutations[clear]": FILES,
        "tests/extensions/memory/test_encrypt_session.py::test_encrypted_pop_wrong_key_preserves_row_identity": FILES,
        "tests/memory/test_openai_responses_compaction_session.py::test_settled_clear_failure_invalidates_response_chain[cancelled]": TRANSACTIONS,
        "tests/memory/test_openai_responses_compaction_session.py::test_settled_clear_failure_invalidates_response_chain[error]": TRANSACTIONS,
        "tests/memory/test_openai_responses_compaction_session.py::test_settled_pop_failure_invalidates_response_chain[cancelled]": TRANSACTIONS,
        "tests/memory/test_openai_responses_compaction_session.py::test_settled_pop_failure_invalidates_response_chain[error]": TRANSACTIONS,
        "tests/memory/test_session.py::test_sqlite_session_close_closes_worker_thread_connections": CONNECTIONS,
        "tests/memory/test_session.py::test_sqlite_session_close_retries_quarantined_connection": CONNECTIONS,
        "tests/memory/test_session.py::test_sqlite_session_closed_rejects_empty_add_items": CLOSED,
        "tests/memory/test_session.py::test_sqlite_session_closes_retired_connections_before_the_next_allocation": CONNECTIONS,
        "tests/memory/test_session.py::test_sqlite_session_failed_add_items_releases_write_lock": TRANSACTIONS,
        "tests/memory/test_session.py::test_sqlite_session_failed_clear_session_rolls_back": TRANSACTIONS,
        "tests/memory/test_session.py::test_sqlite_session_failed_pop_item_releases_write_lock": TRANSACTIONS,
        "tests/memory/test_session.py::test_sqlite_session_file_lock_is_shared_across_instances": CONNECTIONS,
        "tests/memory/test_session.py::test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": ROWS,
        "tests/memory/test_session.py::test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows": ROWS,
        "tests/memory/test_session.py::test_sqlite_session_keeps_connections_of_live_worker_threads": CONNECTIONS,
        "tests/memory/test_session.py::test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": ROWS,
        "tests/memory/test_session.py::test_sqlite_session_pop_item_skips_corrupt_most_recent": ROWS,
        "tests/memory/test_session.py::test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[add]": TRANSACTIONS,
        "tests/memory/test_session.py::test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[clear]": TRANSACTIONS,
        "tests/memory/test_session.py::test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[pop]": TRANSACTIONS,
        "tests/memory/test_session.py::test_sqlite_session_reaps_connections_from_exited_worker_threads": CONNECTIONS,
        "tests/memory/test_session.py::test_sqlite_session_rollback_failure_evicts_connection": CONNECTIONS,
        "tests/test_run_impl_resume_paths.py::test_handoff_resume_after_cancelled_compaction_commits[run-json]": TRANSACTIONS,
        "tests/test_run_impl_resume_paths.py::test_handoff_resume_after_cancelled_compaction_commits[run-live]": TRANSACTIONS,
        "tests/test_run_impl_resume_paths.py::test_handoff_resume_after_cancelled_compaction_commits[streamed-json]": TRANSACTIONS,
        "tests/test_run_impl_resume_paths.py::test_handoff_resume_after_cancelled_compaction_commits[streamed-live]": TRANSACTIONS,
    },
    "claude-agent-sdk": {
        "tests/test_session_resume.py::test_continue_picks_most_recent[asyncio]": TIMES,
        "tests/test_session_resume.py::test_continue_picks_most_recent[trio]": TIMES,
        "tests/test_session_resume.py::test_continue_skips_sidechain_sessions[asyncio]": TIMES,
        "tests/test_session_resume.py::test_continue_skips_sidechain_sessions[trio]": TIMES,
        "tests/test_session_resume.py::test_continue_tie_break_is_deterministic[asyncio]": TIMES,
        "tests/test_session_resume.py::test_continue_tie_break_is_deterministic[trio]": TIMES,
    },
}

TURNS = "it gives the event loop a fixed number of turns to end a call; here a thread makes the call, and takes as many as it takes"

UNDECIDED: dict[str, dict[str, str]] = {
    "openai-agents": {},
    "claude-agent-sdk": {
        "test_load_concurrency_is_bounded": TURNS,
        "test_cancelled_after_mkdtemp_cleans_temp_dir": TURNS,
        "test_gap_fill_bounded_concurrency": TURNS,
        "test_eager_flush_mode_appends_per_frame_before_result": TURNS,
    },
}
"""By the name of the function: what sometimes passes and sometimes does not. It is not run."""
