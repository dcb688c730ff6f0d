"""OpenCode's rows, of version 1 and 2, and its ``export``; Kilo and MiMo Code write the same. Forms as 1.18.33 and 7.7.7 write them.

Of version 2 no file that the program wrote is at hand: its rows are those of the schema that the module names.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.formats.of_others import Bytes, Rows, assert_nothing_is_lost, entries, few_or_many_seeds, messages
from transcript_store.formats import SessionPlan, SourceHead, head_of
from transcript_store.formats._opencode import Kilo, KiloWriter, MiMoCode, OpenCode, OpenCodeWriter
from transcript_store.testing import check_format

SESSION = "ses_de3934db8ffeZ9Tr8eaIqIkgZJ"
T = 1795773215303
TEXT = {"type": "text", "text": "Hi"}


def session(number: str = SESSION, **more: Any) -> dict[str, Any]:
    row = {"id": number, "parent_id": None, "directory": "/home/ada/project", "title": "Authors", "version": "1.18.33"}
    return {**row, "revert": None, "time_created": T, "time_updated": T + 1, "time_archived": None, **more}


def tool(number: str, name: str = "read", **state: Any) -> dict[str, Any]:
    return {
        "type": "tool",
        "tool": name,
        "callID": number,
        "state": {"status": "completed", "input": {"a": 1}, **state},
    }


class Stored:
    """Messages with their parts, as rows of version 1."""

    def __init__(self, **more: Any) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {"session": [session(**more)], "message": [], "part": []}
        self._count = 0

    def add(self, role: str, *parts: dict[str, Any], of: str = SESSION, **data: Any) -> str:
        self._count += 1
        at, number = T + self._count, f"msg_{self._count:012x}AbCdEfGhIjKlMn"
        if role == "assistant":
            data = {"modelID": "m", "providerID": "lab", **data}
        row = {"id": number, "session_id": of, "time_created": at, "time_updated": at}
        said = json.dumps({"role": role, "time": {"created": at}, **data})
        self.tables["message"].append({**row, "data": said})
        for place, part in enumerate(parts):
            its_id = f"prt_{self._count:06x}{place:06x}AbCdEfGhIjKlMn"
            row = {"id": its_id, "message_id": number, "session_id": of, "time_created": at, "time_updated": at}
            self.tables["part"].append({**row, "data": json.dumps(part)})
        return number

    def plans(self) -> list[SessionPlan]:
        found = list(OpenCode().plans(Rows(self.tables)))
        for plan in found:
            assert_nothing_is_lost(plan)
        return found

    def plan(self) -> SessionPlan:
        (plan,) = self.plans()
        return plan


def test_a_reply_its_calls_and_their_results() -> None:
    stored = Stored()
    stored.add("user", {"type": "text", "text": "Read both."}, summary={"diffs": [1]})
    tokens = {"total": 154, "input": 100, "output": 25, "reasoning": 9, "cache": {"read": 20, "write": 0}}
    stored.add(
        "assistant",
        {"type": "step-start", "snapshot": "x"},
        {"type": "reasoning", "text": "Both."},
        {"type": "text", "text": "I look."},
        tool("c1", output="one"),
        tool("c2", status="error", error="File not found", output=None),
        {"type": "step-finish"},
        tokens=tokens,
        finish="tool-calls",
        cost=0.5,
    )
    plan = stored.plan()
    call = {"type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}
    assert messages(plan) == [
        {"role": "user", "content": "Read both."},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Both.",
            "tool_calls": [{**call, "id": "c1"}, {**call, "id": "c2"}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "File not found"},
    ]
    reply, _, failed = (entry.extra for entry in entries(plan)[1:])
    assert failed["failed"] is True
    assert (reply["model"], reply["stop_reason"]) == ("m", "tool-calls")
    assert reply["usage"]["output_tokens"] == 34
    assert (reply["usage"]["input_tokens"], reply["usage"]["cache_read_input_tokens"], reply["usage"]["cost"]) == (
        100,
        20,
        0.5,
    )
    assert "diffs" not in str(entries(plan)[0].extra), (
        "it is written long after the prompt, and would make it another one"
    )
    assert dict(plan.labels) == {"title": "Authors", "cwd": "/home/ada/project"}
    assert (plan.session, plan.provider, plan.model, plan.lines) == (SESSION, "openai-compatible", "m", 2)


def test_what_the_provider_signed_says_whose_form_it_is() -> None:
    """The name of a provider is the user's own; a reply without thinking has none of what it signed."""
    stored = Stored()
    signed = {"type": "reasoning", "text": "Hm.", "metadata": {"anthropic": {"signature": "c2ln"}}}
    stored.add("user", TEXT)
    stored.add("assistant", signed, tool("toolu_1", status="error", error="no"))
    stored.add("assistant", {"type": "text", "text": "Done."})
    plan = stored.plan()
    assert plan.provider == "claude"
    assert messages(plan)[1:3] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True}],
        },
    ]


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_call_that_was_interrupted_has_no_result(status: str) -> None:
    stored = Stored()
    stored.add("user", TEXT)
    stored.add("assistant", {"type": "text", "text": ""}, tool("c1", status=status, metadata={"output": "started"}))
    assert [message["role"] for message in messages(stored.plan())] == ["user", "assistant"]


def test_a_call_that_no_tool_took_failed_though_it_is_completed() -> None:
    stored = Stored()
    stored.add("user", TEXT)
    stored.add("assistant", tool("c1", "invalid", input={"tool": "x", "error": "no such tool"}, output="no such tool"))
    assert entries(stored.plan())[-1].extra["failed"] is True


def test_an_early_version_has_several_steps_in_one_message() -> None:
    stored = Stored()
    stored.add("user", TEXT)
    step = {"type": "step-start"}
    stored.add(
        "assistant", step, tool("c1", output="1"), step, tool("c2", output="2"), step, {"type": "text", "text": "3"}
    )
    assert [message["role"] for message in messages(stored.plan())] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]


def test_what_the_program_wrote_in_the_users_name_is_marked() -> None:
    stored = Stored()
    picture = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA", "filename": "x.png"}
    read = {"type": "text", "text": "Called the Read tool", "synthetic": True}
    stored.add("user", read, picture, {"type": "text", "text": "What is it?"})
    (entry,) = entries(stored.plan())
    assert entry.message is not None
    assert entry.extra["scaffolding"] == {"typed": "What is it?"}
    assert entry.message["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def test_a_compaction_begins_a_generation_with_its_summary_and_what_it_kept() -> None:
    stored = Stored()
    stored.add("user", {"type": "text", "text": "One"})
    kept = stored.add("user", {"type": "text", "text": "Two"})
    marker = stored.add("user", {"type": "compaction", "auto": False, "tail_start_id": kept})
    stored.add("assistant", {"type": "text", "text": "Summary"}, summary=True, parentID=marker, agent="compaction")
    stored.add("user", {"type": "text", "text": "Three"})
    plan = stored.plan()
    assert [m["content"] for m in messages(plan, 0)] == ["One", "Two"]
    assert [m["content"] for m in messages(plan, 1)] == ["What did we do so far?", "Summary", "Two", "Three"]
    assert entries(plan, 1)[1].extra["compaction"] is True
    assert entries(plan, 1)[2].lines == (), "it was counted in the generation before"


def test_the_marker_of_a_compaction_without_a_summary_is_an_event() -> None:
    """A fork copies it without what it belongs to; a compaction may fail."""
    stored = Stored()
    stored.add("user", TEXT)
    stored.add("user", {"type": "compaction", "auto": True})
    stored.add("assistant", {"type": "text", "text": "Go on"})
    plan = stored.plan()
    assert len(plan.generations) == 1
    assert [m["content"] for m in messages(plan)] == ["Hi", "Go on"]


def test_what_was_undone_and_is_still_there_is_kept_beside() -> None:
    stored = Stored()
    stored.add("user", TEXT)
    undone = stored.add("user", {"type": "text", "text": "Undone"})
    stored.tables["session"][0]["revert"] = json.dumps({"messageID": undone, "snapshot": "x", "diff": ""})
    plan = stored.plan()
    assert [m["content"] for m in messages(plan)] == ["Hi"]
    assert entries(plan)[1].extra["left_branch"]["message"]["content"] == "Undone"
    assert [finding.kind for finding in plan.findings] == ["left-branch"]


def test_a_fork_is_said_to_be_one_though_nothing_names_its_origin() -> None:
    stored = Stored()
    stored.add("user", TEXT)
    created = json.loads(stored.tables["message"][0]["data"])["time"]
    stored.tables["session"] += [
        session("ses_f", title="Authors (fork #1)"),
        session("ses_o", title="Others (fork #1)"),
    ]
    stored.add("user", TEXT, of="ses_f", time=created)
    stored.add("user", TEXT, of="ses_o")
    assert [plan.labels.get("forked_from") for plan in stored.plans()] == [None, SESSION, None]


def test_a_sub_agent_is_part_of_its_parent_and_an_archived_session_says_so() -> None:
    stored = Stored(time_archived=T, title="New session - 2026-11-27T09:55:51.284Z", parent_id="ses_parent")
    stored.add("user", TEXT)
    labels = stored.plan().labels
    assert (labels["part_of"], labels["archived"][:10], labels.get("title")) == ("ses_parent", "2026-11-27", None)


def test_the_older_schema_joins_parts_by_their_message() -> None:
    stored = Stored()
    stored.add("user", TEXT)
    stored.tables["part"] = [{k: v for k, v in row.items() if k != "session_id"} for row in stored.tables["part"]]
    assert messages(stored.plan()) == [{"role": "user", "content": "Hi"}]


def second(number: int, kind: str, **data: Any) -> dict[str, Any]:
    at = T + number
    row = {"id": f"msg_{number:012x}BbCdEfGhIjKlMn", "session_id": SESSION, "type": kind, "seq": number}
    return {**row, "time_created": at, "time_updated": at, "data": json.dumps({"time": {"created": at}, **data})}


ITEMS = [
    {"type": "reasoning", "text": "Hm."},
    {"type": "text", "text": "I look."},
    {"type": "tool", "id": "c1", "name": "read", "state": {"status": "completed", "input": {}, "content": [TEXT]}},
    {"type": "tool", "id": "c2", "name": "read", "state": {"status": "error", "input": {}, "error": {"message": "no"}}},
    {"type": "tool", "id": "c3", "name": "read", "state": {"status": "streaming", "input": "{"}},
]
MODEL = {"id": "claude-x", "providerID": "anthropic", "variant": "default"}
SECOND = {
    "session_v2": [session() | {"fork_session_id": "ses_origin"}],
    "session_message": [
        second(1, "model-switched", model=MODEL),
        second(2, "user", text="Read it."),
        second(3, "assistant", agent="build", model=MODEL, content=ITEMS, finish="tool-calls", tokens={"input": 3}),
        second(4, "synthetic", text="A shell ended."),
        second(5, "shell", shellID="s", command="ls", status="exited", output={"text": "a.txt"}),
        second(6, "compaction", status="running", reason="auto", summary="Hal", recent=""),
        second(7, "compaction", status="completed", reason="auto", summary="Half of it", recent="and this"),
        second(8, "user", text="Go on."),
        second(9, "idle", outcome="succeeded"),
    ],
}


def test_the_rows_of_version_2() -> None:
    (plan,) = OpenCode().plans(Rows(SECOND))
    assert_nothing_is_lost(plan)
    first = messages(plan, 0)
    assert [message["role"] for message in first] == ["user", "assistant", "user", "user", "user"]
    assert [block["type"] for block in first[1]["content"]] == ["text", "tool_use", "tool_use", "tool_use"]
    assert [block.get("is_error", False) for block in first[2]["content"]] == [False, True]
    assert [part["text"] for part in messages(plan, 1)[0]["content"]] == ["Half of it", "and this"]
    assert (plan.provider, plan.model, plan.labels["forked_from"]) == ("claude", "claude-x", "ses_origin")
    assert [loss.kind for loss in plan.losses] == ["thinking"]


def test_an_empty_table_of_version_2_in_a_late_version_1_says_nothing() -> None:
    """Public report: xiufengsun/TokenTracker#501, where a reader took its presence for version 2 and read no row."""
    stored = Stored()
    stored.add("user", TEXT)
    stored.tables["session_message"] = [second(1, "user", text="not its session's") | {"session_id": "ses_other"}]
    assert messages(stored.plan()) == [{"role": "user", "content": "Hi"}]


def test_a_session_that_was_taken_over_has_what_the_migration_dropped() -> None:
    """Public report: levi-qiao/herdr-agent-quota#112: the tables of version 1 stay in the file, frozen. The union by id, each once."""
    stored = Stored()
    stored.add("user", TEXT)
    first = stored.add("assistant", {"type": "text", "text": "Dropped by the migration"})
    taken = second(2, "assistant", content=[{"type": "text", "text": "the copy"}]) | {"id": first}
    tables = {
        **stored.tables,
        "session_v2": [session()],
        "session_message": [taken, second(8, "user", text="After it")],
    }
    (plan,) = OpenCode().plans(Rows(tables))
    assert [m["content"] for m in messages(plan)] == ["Hi", "Dropped by the migration", "After it"]


def test_which_sessions_changed_is_known_without_reading_a_message() -> None:
    stored = Stored()
    number = stored.add("user", TEXT)
    before = OpenCode().session_stamps(Rows(stored.tables))
    assert OpenCode().session_stamps(Rows(stored.tables)) == before
    for table in ("session", "message", "part"):
        changed = {**stored.tables, table: [{**row, "time_updated": T + 99} for row in stored.tables[table]]}
        assert OpenCode().session_stamps(Rows(changed)) != before, table
    counted = {**stored.tables, "event_sequence": [{"aggregate_id": SESSION, "seq": 7}]}
    after = {**counted, "event_sequence": [{"aggregate_id": SESSION, "seq": 8}]}
    assert OpenCode().session_stamps(Rows(counted)) != OpenCode().session_stamps(Rows(after))
    assert list(OpenCode().plans(Rows(stored.tables), skip={SESSION})) == []
    assert list(OpenCode().session_times(Rows(stored.tables))) == [(T / 1000, (T + 1) / 1000)]
    assert number


def exported(agent: str = "build") -> bytes:
    stored = Stored()
    stored.add("user", {"type": "text", "text": "Größe?"}, agent=agent)
    stored.add("assistant", {"type": "text", "text": "Drei."}, tool("c1", output="x"), agent=agent)
    found = [
        {
            "info": {**json.loads(row["data"]), "id": row["id"], "sessionID": SESSION},
            "parts": [json.loads(part["data"]) for part in stored.tables["part"] if part["message_id"] == row["id"]],
        }
        for row in stored.tables["message"]
    ]
    info = {"id": SESSION, "slug": "x", "title": "Authors", "version": "1", "time": {"created": T, "updated": T + 1}}
    return json.dumps({"info": info, "messages": found}, indent=2, ensure_ascii=False).encode()


def test_the_writer_is_recognized_by_the_content() -> None:
    tables = {name: tuple(rows[0]) for name, rows in Stored().tables.items() if rows} | {
        "message": ("session_id", "data")
    }
    board = {**tables, "kilo_board": ("id",)}
    for head, reader in (
        (SourceHead("/x/opencode.db", tables=tables), "opencode"),
        (SourceHead("/x/copy.db", tables=board), "kilo"),
        (SourceHead("/x/kilo.db", tables=tables), "kilo"),
        (SourceHead("/x/mimocode.db", tables=tables), "mimocode"),
        (head_of(Bytes(exported())), "opencode"),
        (head_of(Bytes(exported("code"))), "kilo"),
    ):
        assert next(each.name for each in (Kilo(), MiMoCode(), OpenCode()) if each.recognizes(head)) == reader
    assert not OpenCode().recognizes(SourceHead("x", tables={"session": ("id", "directory")}))


@few_or_many_seeds
def test_the_contract_of_a_format(seeds: int) -> None:
    stored = Stored()
    stored.add("user", TEXT)
    stored.add("assistant", {"type": "reasoning", "text": "Hm."}, tool("c1", output="1"), {"type": "text", "text": "1"})
    check_format(OpenCode(), [stored.tables, SECOND], seeds=seeds)
    check_format(OpenCode(), [exported()], OpenCodeWriter(), seeds=seeds)
    check_format(Kilo(), [exported("code")], KiloWriter(), seeds=seeds)
