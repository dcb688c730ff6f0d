"""Our own contract, the SDK's kit, and what is ours of this one."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import anyio
import pytest
from claude_agent_sdk import ClaudeAgentOptions, fold_session_summary, list_sessions_from_store, query
from claude_agent_sdk.testing import run_session_store_conformance

from tests.compat.api import surface
from tests.integrations.claude_agent_sdk.bench import PROJECT, Bench, InTheMessage, key_of
from tests.integrations.claude_agent_sdk.scripted import Scripted
from transcript_store import ConversationLibrary, ConversationLockedError, ConversationStore
from transcript_store.integrations.claude_agent_sdk import TranscriptSessionStore
from transcript_store.redaction import SecretRedactor
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore, check_integration

KEY = key_of("one")
WEIRD = {"project_key": "../a\ud800", "session_id": "../../b\0", "subpath": "subagents/../x" * 1000}


def said(n, **more):
    return {"type": "user", "uuid": f"uuid-{n}", "message": {"role": "user", "content": f"{n}"}, **more}


@pytest.fixture
def store(tmp_path):
    store = TranscriptSessionStore(tmp_path)
    yield store
    store.close()


@pytest.mark.parametrize("bench", [Bench, InTheMessage])
def test_the_contract_of_integrations(bench):
    """I1 to I11."""
    check_integration(bench)


@pytest.mark.parametrize("make_backend", [SimulatedBackend, SimulatedObjectStore])
def test_the_contract_of_integrations_on_a_backend(make_backend):
    """I1 to I10: no call of the SDK sees that the conversation is on a backend, which one process has in memory."""
    backend = make_backend()
    check_integration(Bench, backend=lambda: backend, is_shared=False)


@pytest.mark.parametrize("keys", [{}, {"encryption_key": b"k" * 32}])
@pytest.mark.parametrize("make_backend", [None, SimulatedBackend, SimulatedObjectStore])
def test_the_kit_of_the_sdk_in_one_library(make_backend, keys, tmp_path):
    """All fourteen of its contracts, where all projects are in one library: in a directory or on a backend, and sealed."""

    def store():
        place = tempfile.mkdtemp(dir=tmp_path) if make_backend is None else make_backend()
        return TranscriptSessionStore(ConversationLibrary(place, **keys))

    anyio.run(run_session_store_conformance, store)


def test_a_key_on_a_backend_has_more_than_one_life():
    """An id that was deleted stays deleted there: what is appended under its key afterwards is found, listed and deleted like the first."""
    store = TranscriptSessionStore(ConversationLibrary(SimulatedBackend()))
    of_an_agent = {**KEY, "subpath": "subagents/a"}

    async def scenario():
        for life in range(3):
            assert await store.load(KEY) is None
            await store.append(KEY, [said(life)])
            await store.append(of_an_agent, [said(life)])
            assert await store.load(KEY) == await store.load(of_an_agent) == [said(life)]
            assert [one["session_id"] for one in await store.list_sessions(PROJECT)] == ["one"]
            assert [one["session_id"] for one in await store.list_session_summaries(PROJECT)] == ["one"]
            assert await store.list_subkeys(KEY) == ["subagents/a"]
            with store.conversation(KEY) as conversation:
                assert conversation.id == Path(store.directory(KEY)).name
            await store.delete(KEY)
            assert await store.load(of_an_agent) is None
            assert await store.list_sessions(PROJECT) == []

    anyio.run(scenario)
    store.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_kit_of_the_sdk(backend, tmp_path_factory):
    """All fourteen of its contracts, in both event loops."""
    anyio.run(
        run_session_store_conformance,
        lambda: TranscriptSessionStore(tmp_path_factory.mktemp("kit")),
        backend=backend,
    )


def test_a_batch_that_is_tried_again(store):
    """Whole, in part, after a restart, and twice within itself: each uuid is stored once. What has none is always stored."""

    async def scenario():
        await store.append(KEY, [said(1), said(2)])
        await store.append(KEY, [said(1), said(2)])
        await store.append(KEY, [said(2), said(3), said(3), {"type": "title"}])
        store.close()
        await store.append(KEY, [said(3), said(4), {"type": "title"}])
        assert await store.load(KEY) == [said(1), said(2), said(3), {"type": "title"}, said(4), {"type": "title"}]

    anyio.run(scenario)


def test_the_summary_is_that_of_all_entries(store):
    """It is what the SDK folds of all entries at once, also after a restart, and in the same commit as they."""
    entries = [said(1, gitBranch="main", timestamp="2026-01-01T00:00:00Z"), said(2, customTitle="Moving"), said(3)]

    async def scenario():
        for entry in entries:
            await store.append(KEY, [entry])
            store.close()
        (summary,) = await store.list_session_summaries(PROJECT)
        assert summary["data"] == fold_session_summary(None, KEY, entries)["data"]
        (listed,) = await store.list_sessions(PROJECT)
        assert listed["mtime"] == summary["mtime"]
        assert listed["session_id"] == summary["session_id"] == "one"

    anyio.run(scenario)


def test_a_session_is_an_ordinary_conversation_of_claudes_messages(store):
    """Messages are the model's own; what is around them, and entries without one, are extras."""
    anyio.run(store.append, KEY, [{"type": "mode", "mode": "plan"}, said(1)])
    with store.conversation(KEY) as conversation:
        assert conversation.get_messages() == [{"role": "user", "content": "1"}]
        extras = [record.extra for record in conversation.get_records()]
        metadata = conversation.get_metadata()
    assert extras[0] == {"entry": {"type": "mode", "mode": "plan"}}
    assert extras[1]["entry"] == {**said(1), "message": None}
    assert metadata.provider == "claude-agent-sdk"
    assert json.loads(metadata.labels["claude-agent-sdk.key"]) == [PROJECT, "one", None]


def test_keys_of_any_kind(store, tmp_path):
    """Project, session and sub-agent may have any characters and any length; nothing leaves the directory."""

    async def scenario():
        await store.append(WEIRD, [said(1)])
        await store.append({**WEIRD, "subpath": "b"}, [said(2)])
        main = {name: WEIRD[name] for name in ("project_key", "session_id")}
        assert await store.load(main) is None
        assert sorted(await store.list_subkeys(main)) == ["b", WEIRD["subpath"]]
        await store.append(main, [said(3)])
        assert [one["session_id"] for one in await store.list_sessions(WEIRD["project_key"])] == [WEIRD["session_id"]]
        await store.delete(main)
        assert await store.list_subkeys(main) == []
        assert await store.list_sessions(WEIRD["project_key"]) == []

    anyio.run(scenario)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_sdk_lists_what_is_stored(store, tmp_path):
    """``list_sessions_from_store`` of the SDK needs no entry: the summaries have all."""
    project = tmp_path / "project"
    project.mkdir()
    from claude_agent_sdk import project_key_for_directory

    key = {"project_key": project_key_for_directory(str(project)), "session_id": "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"}

    async def scenario():
        await store.append(key, [said("What is on the list?", timestamp="2026-01-01T00:00:00Z", cwd=str(project))])
        (info,) = await list_sessions_from_store(store, directory=str(project))
        assert (info.session_id, info.first_prompt) == (key["session_id"], "What is on the list?")

    anyio.run(scenario)


def test_a_repaired_session_loads(store):
    """The note that a repair leaves of a gap is no entry."""
    anyio.run(store.append, KEY, [said(n) for n in range(5)])
    store.close()
    with ConversationStore(store.directory(KEY)) as conversation:
        conversation.load()
        conversation.append_event({"transcript_store.gap": {"offset": 1, "length": 2}})
    assert anyio.run(store.load, KEY) == [said(n) for n in range(5)]


def test_another_process_has_it(store, tmp_path):
    """The call waits for the given time. Then its error names the process that has the session."""
    anyio.run(store.append, KEY, [said(1)])
    store.close()
    impatient = TranscriptSessionStore(tmp_path, lock_timeout_seconds=0)
    with ConversationStore(store.directory(KEY)) as other:
        other.load()
        with pytest.raises(ConversationLockedError):
            anyio.run(impatient.append, KEY, [said(2)])
    anyio.run(impatient.append, KEY, [said(2)])
    impatient.close()


def test_a_conversation_that_was_removed(store):
    """Nothing is there any more, so the next batch begins anew."""
    anyio.run(store.append, KEY, [said(1)])
    store.close()
    shutil.rmtree(store.directory(KEY))
    anyio.run(store.append, KEY, [said(1)])
    assert anyio.run(store.load, KEY) == [said(1)]


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_a_secret_never_reaches_the_disk(tmp_path):
    """P22: neither in a message nor in what stands around it; no file has it."""
    store = TranscriptSessionStore(tmp_path, redact=SecretRedactor())
    entry = {**said(1), "toolUseResult": f"token {SECRET}", "message": {"role": "user", "content": f"use {SECRET}"}}
    anyio.run(store.append, KEY, [entry])
    entries = anyio.run(store.load, KEY)
    assert entries is not None
    (loaded,) = entries
    assert loaded["message"]["content"] == "use [redacted:github-token]"
    assert loaded["toolUseResult"] == "token [redacted:github-token]"
    store.close()
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_what_stands_as_text_around_a_message_comes_back_also_where_a_secret_was_taken_out(tmp_path):
    """P22: a number beyond 64 bits and a secret beside it: the entry was left out of what was loaded, and stored again by a retry."""
    store = TranscriptSessionStore(tmp_path, redact=SecretRedactor())
    entry = {**said(1), "cwd": SECRET, "n": 2**70}
    anyio.run(store.append, KEY, [entry])
    store.close()
    anyio.run(store.append, KEY, [entry, said(2)])
    loaded = anyio.run(store.load, KEY)
    assert loaded == [{**entry, "cwd": "[redacted:github-token]"}, said(2)]
    store.close()


@pytest.mark.parametrize("flush", ["eager", "batched"])
def test_a_session_that_is_written_elsewhere_is_told(store, tmp_path, caplog, monkeypatch, flush):
    """Claude Code with another HOME: the SDK hands nothing on. The store says so once, with both folders and what to do."""
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    elsewhere = tmp_path / "elsewhere"
    options = ClaudeAgentOptions(session_store=store, session_store_flush=flush, env={"HOME": str(elsewhere)})

    async def ask() -> None:
        program = Scripted("one", "yes", str(elsewhere / ".claude"))
        assert [each async for each in query(prompt="Hello?", options=options, transport=program)]

    for _ in range(2):
        anyio.run(ask)
    assert anyio.run(store.load, KEY) is None
    (told,) = [each.getMessage() for each in caplog.records if each.name == "transcript_store.integrations"]
    for part in (str(elsewhere / ".claude"), str(tmp_path / "here"), "os.environ", "HOME"):
        assert part in told


def test_the_public_surface():
    """After a change that is meant, write what this finds into api.txt, and a line into CHANGELOG.md."""
    agreed = Path(__file__).with_name("api.txt").read_text().splitlines()
    assert surface([".integrations.claude_agent_sdk"]) == agreed
