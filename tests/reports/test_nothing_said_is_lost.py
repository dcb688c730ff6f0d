"""What somebody said stands in show, on the page and in the search, whatever became of it afterwards.

Reports: what was written when the user pressed Esc (CherryHQ/cherry-studio#20798); chains that the program broke
(anthropics/claude-code#37437, #92849, #72203, #88597, #89820); branches that were left (anthropics/claude-code#24471).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.reports.sessions import SESSION, ClaudeLines, call, imported, lines, result
from transcript_store.messages import parts_of


def test_what_the_model_had_written_when_the_user_stopped_it_is_the_assistants(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user("Count slowly")
    session.reply("1. One zebra. 2. Two", model="<synthetic>")
    session.user([{"type": "text", "text": "[Request interrupted by user]"}])
    session.reply("No response requested.", model="<synthetic>")
    session.reply("API Error: 500", model="<synthetic>", isApiErrorMessage=True)
    got = imported(tmp_path, session.lines)
    assert (got.report.messages, "1. One zebra. 2. Two" in got.show()) == (3, True)
    (hit,) = got.found("zebra")
    assert (hit["role"], hit["beside"]) == ("assistant", None)
    assert not got.found('"No response requested"')
    assert got.has_its_bytes()
    with got.library.open(str(got.report.id), read_only=True) as store:
        assert store.get_metadata().model is None


def test_what_pi_had_written_when_the_user_stopped_it_is_the_assistants(tmp_path: Path) -> None:
    at = "2026-09-01T10:00:00.000Z"
    half = {
        "role": "assistant",
        "stopReason": "aborted",
        "provider": "anthropic",
        "api": "anthropic-messages",
        "model": "m",
    }
    said = [{"type": "text", "text": "One zebra"}, {"type": "toolCall", "id": "t", "name": "bash", "arguments": {}}]
    got = imported(
        tmp_path,
        [
            {"type": "session", "version": 3, "id": "s", "timestamp": at, "cwd": "/tmp"},
            {
                "type": "message",
                "id": "a",
                "parentId": None,
                "timestamp": at,
                "message": {"role": "user", "content": "Count"},
            },
            {"type": "message", "id": "b", "parentId": "a", "timestamp": at, "message": {**half, "content": said}},
        ],
    )
    assert [hit["where"] for hit in got.found("zebra")] == ["text"]
    assert "call bash" not in got.show()


def broken_by_a_retry(session: ClaudeLines) -> None:
    """The retry names the progress of a sub-agent as its parent."""
    session.user("alpha one")
    calls = session.reply(call())
    progress = session.add("progress", parent=None)
    session.user(result(), parent=calls)
    session.reply("beta reply")
    session.user("gamma three")
    session.reply("API Error: 403", model="<synthetic>", isApiErrorMessage=True)
    session.user("gamma three", parent=progress)
    session.reply("gamma reply")


def broken_by_a_compaction(session: ClaudeLines) -> None:
    """What follows the second compaction names a line from before the first."""
    session.user("alpha one")
    first = session.reply("alpha reply")
    session.user("beta two")
    session.reply("beta reply")
    session.compact()
    session.user("gamma three")
    session.reply("gamma reply")
    session.compact()
    session.user("delta four", parent=first)
    session.reply("delta reply")


def broken_by_an_error(session: ClaudeLines) -> None:
    """The reply that came after all, and the next prompt, both follow the error."""
    session.user("alpha one")
    error = session.add("system", subtype="api_error")
    session.reply("beta reply", parent=error)
    hook = session.add("system", subtype="stop_hook_summary", parent=error)
    session.user("gamma three", parent=hook)
    session.reply("delta reply")


def broken_by_a_hook(session: ClaudeLines) -> None:
    """The line of a hook follows the prompt, as the reply does."""
    prompt = session.user("alpha one")
    session.reply("beta reply")
    hook = session.add("system", subtype="stop_hook_summary", parent=prompt)
    session.user("gamma three", parent=hook)
    session.reply("delta reply")


def broken_by_a_resume(session: ClaudeLines) -> None:
    """The program's own continuation names a leaf that is long past."""
    session.user("alpha one")
    stale = session.reply("alpha reply")
    session.user("beta two")
    session.reply("beta reply")
    session.user("Continue from where you left off.", isMeta=True, parent=stale)
    session.reply("gamma reply")


@pytest.mark.parametrize(
    "broken", [broken_by_a_retry, broken_by_a_compaction, broken_by_an_error, broken_by_a_hook, broken_by_a_resume]
)
def test_a_chain_that_the_program_broke_is_continued(tmp_path: Path, broken: Any) -> None:
    """Nobody left that branch: what stands in the file is one conversation."""
    session = ClaudeLines()
    broken(session)
    got = imported(tmp_path, session.lines)
    assert "left-branch" not in got.findings()
    assert "broken-chain" in got.findings()
    assert got.report.lines.in_events == sum(
        line["type"] in ("progress", "system") or "isApiErrorMessage" in line for line in session.lines
    )
    for said in ("alpha one", "beta reply", "gamma"):
        assert [hit["beside"] for hit in got.found(f'"{said}"')] != []
    assert got.has_its_bytes()


def rewound() -> ClaudeLines:
    session = ClaudeLines()
    session.user("alpha one")
    turn = session.reply("alpha reply")
    session.user("wrong turn zebra", parent=turn)
    session.reply("wrong reply zebra", call("Bash", "toolu_9"))
    session.user("beta two", parent=turn)
    session.reply("beta reply")
    return session


def test_what_stands_on_a_branch_that_was_left_is_told_shown_found_and_exported(tmp_path: Path) -> None:
    got = imported(tmp_path, rewound().lines)
    (told,) = [finding.message for finding in got.report.findings if finding.kind == "left-branch"]
    assert told.startswith("2 messages are on branches")
    assert got.report.messages == 4
    assert "zebra" not in got.show()
    assert "left branches  2 messages; --branches shows them\n" in got.show()
    branches = got.show("--branches")
    assert "left branches  2 messages\n" in branches
    assert branches.count("on an abandoned branch") == 2
    assert "wrong turn zebra" in branches
    assert '"role"' not in branches
    assert [hit["beside"] for hit in got.found("zebra")] == ["left-branch"] * 2
    assert [hit["beside"] for hit in got.found("reply")] == [None, None, "left-branch"]
    assert "2 messages on an abandoned branch" in got.page()
    markdown = got.path.parent / "out.md"
    from tests.reports.sessions import told as run

    run("export", got.directory, "--to", "markdown", "--branches", "--output", str(markdown))
    assert "wrong turn zebra" in markdown.read_text()
    assert got.has_its_bytes()


def test_a_rewind_to_the_beginning_and_a_second_one_are_branches_too(tmp_path: Path) -> None:
    session = ClaudeLines()
    for word in ("first", "second", "third"):
        session.user(f"{word} try", parent=None)
        session.reply(f"{word} reply")
    got = imported(tmp_path, session.lines)
    assert (got.report.messages, got.findings()) == (2, ["left-branch"])


def test_a_clear_is_a_new_generation(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user("alpha one")
    session.reply("alpha reply")
    session.user("<local-command-caveat>Caveat: The messages below…</local-command-caveat>", parent=None, isMeta=True)
    session.user("<command-name>/clear</command-name>")
    session.user("beta two")
    got = imported(tmp_path, session.lines)
    assert [(hit["beside"], hit["generation"]) for hit in got.found("alpha")] == [("earlier-generation", 0)] * 2


def test_tools_that_ran_side_by_side_are_no_broken_chain(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user("Look at both")
    reply = {"id": "msg_same", "role": "assistant", "model": "m"}
    one = session.add("assistant", message={**reply, "content": [call("Read", "a")]})
    two = session.add("assistant", message={**reply, "content": [call("Read", "b")]}, parent=one)
    session.user(result("one", "a"), parent=one)
    session.user(result("two", "b"), parent=two)
    session.reply("Both are there")
    got = imported(tmp_path, session.lines)
    assert got.findings() == []
    assert got.report.messages == 5


def test_the_other_answers_of_chat_sites_are_kept_as_what_they_say(tmp_path: Path) -> None:
    def message(uuid: str, parent: str | None, sender: str, text: str) -> dict[str, Any]:
        at = "2026-09-01T10:00:00Z"
        content = [{"type": "text", "text": text}]
        return {
            "uuid": uuid,
            "parent_message_uuid": parent,
            "sender": sender,
            "text": text,
            "content": content,
            "created_at": at,
        }

    tree = [
        message("a", None, "human", "alpha one"),
        message("b", "a", "assistant", "old zebra answer"),
        message("c", "a", "assistant", "new answer"),
    ]
    data = json.dumps(
        [{"uuid": "conv", "name": "Two answers", "created_at": "2026-09-01T10:00:00Z", "chat_messages": tree}]
    )
    got = imported(tmp_path, data.encode(), "conversations.json")
    assert (got.report.messages, got.findings()) == (2, ["left-branch"])
    assert [hit["beside"] for hit in got.found("zebra")] == ["left-branch"]
    assert "old zebra answer" in got.show("--branches")
    assert got.has_its_bytes()


def test_a_branch_that_a_sub_agent_left_is_kept_in_its_own_conversation(tmp_path: Path) -> None:
    session = ClaudeLines()
    session.user("Look around")
    session.reply(call())
    agent: dict[str, Any] = {"isSidechain": True, "agentId": "a1"}
    prompt = session.user("look", parent=None, **agent)
    session.reply("old zebra finding", parent=prompt, **agent)
    session.user("look again", parent=None, **agent)
    session.reply("new finding", **agent)
    session.user(result(), parent=2)
    got = imported(tmp_path, session.lines)
    whole, part = got.reports
    assert [(report.messages, [finding.kind for finding in report.findings]) for report in (whole, part)] == [
        (3, []),
        (2, ["left-branch"]),
    ]
    (hit,) = got.found("zebra")
    assert (hit["beside"], hit["conversation"]) == ("left-branch", part.id)


def _side_by_side(
    *, results: Sequence[int], leaf: int, in_a_sub_agent: bool, one_reply: bool, one_parent: bool
) -> list[Any]:
    """A reply that calls seven tools: each call is a line of its own, all with one parent, or each with the one before.

    Each result names its call as its parent. What follows names one of the results.
    """
    session = ClaudeLines()
    session.user("Look for all")
    first = session.reply("I will look")
    calls: list[int] = []
    for number in range(7):
        above = first if one_parent or not calls else calls[-1]
        calls.append(session.reply(call(number=f"toolu_{number}"), parent=above))
    if one_reply:
        for place in (first, *calls):
            session.lines[place - 1]["message"]["id"] = "msg_a"
    answers = {n: session.user(result(f"found quagga{n}", f"toolu_{n}"), parent=calls[n]) for n in results}
    session.reply("All seven zebra", parent=answers[leaf])
    session.user("And the horse?")
    if in_a_sub_agent:
        for line in session.lines:
            line.update(isSidechain=True, agentId="ab12")
    return session.lines


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("in_a_sub_agent", [True, False])
@pytest.mark.parametrize("one_reply", [True, False])
@pytest.mark.parametrize("one_parent", [True, False])
@pytest.mark.parametrize(
    ("results", "leaf"), [(range(7), 6), (range(7), 3), (range(6, -1, -1), 0), ((3, 1, 6, 0, 2, 5, 4), 2)]
)
def test_tools_that_ran_side_by_side_are_all_there(
    tmp_path: Path, results: Sequence[int], leaf: int, in_a_sub_agent: bool, one_reply: bool, one_parent: bool
) -> None:
    """anthropics/claude-code#37779: each line has one child on the way, and its siblings were passed over. In the file's order."""
    values = _side_by_side(
        results=results, leaf=leaf, in_a_sub_agent=in_a_sub_agent, one_reply=one_reply, one_parent=one_parent
    )
    got = imported(tmp_path, values)
    with got.library.open(str(got.report.id), read_only=True) as store:
        records = [record for record in store.get_records() if record.message is not None]
    blocks = [block for record in records for block in parts_of(record.message)]
    assert sorted(block.text for block in blocks if block.kind == "result") == [f"found quagga{n}" for n in range(7)]
    assert sum(block.kind == "call" for block in blocks) == 7
    numbers = [line["n"] for record in records for line in (record.extra or {})["source"]["lines"]]
    assert (numbers if one_reply else sorted(numbers)) == [*range(1, 19)]
    assert got.report.events == 0
    assert got.has_its_bytes()
    if one_reply:  # one message has all calls, and what answers them stands behind it
        assert [record.message["role"] for record in records if record.message] == [
            *("user", "assistant"), *["user"] * 7, *("assistant", "user"),
        ]  # fmt: skip
        assert not any("at" in (record.extra or {})["source"] for record in records)


def test_seven_replies_with_one_parent_are_all_there(tmp_path: Path) -> None:
    """Siblings without a result between them: two of sixteen stayed."""
    session = ClaudeLines()
    first = session.user("Look for all")
    for number in range(7):
        session.reply(f"quagga{number}", parent=first)
    session.user("And the horse?")
    got = imported(tmp_path, session.lines)
    assert (got.report.messages, {*got.findings()}) == (9, {"broken-chain"})


def test_an_event_is_called_by_what_it_says_or_has(tmp_path: Path) -> None:
    """A line of no program's tree was "node"."""
    values = [
        {"role": "user", "content": "hi"},
        {"event": "begun"},
        {"role": "user", "content": "x"},
        {"foo": 1, "bar": 2},
    ]
    got = imported(tmp_path, [*values, {"role": "user", "content": "y"}, {}])
    assert [line.split("UTC  ")[1] for line in got.show().splitlines() if "  event  " in line][:3] == [
        "begun",
        "foo, bar",
        "empty object",
    ]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            {"content": [{"type": "voice_note", "title": "Voice", "text": "a spoken zebra"}], "text": ""},
            "a spoken zebra",
        ),
        ({"content": [{"type": "token_budget"}], "text": "a zebra in text alone"}, "a zebra in text alone"),
        ({"content": [{"type": "text", "text": ""}], "text": "a zebra in text alone"}, "a zebra in text alone"),
        ({"content": [], "text": "", "files": [{"file_name": "zebra.png"}]}, "[file: zebra.png]"),
        ({"content": [], "text": "", "files_v2": [{"file_name": "zebra.png"}]}, "[file: zebra.png]"),
    ],
)
def test_a_message_of_claude_ai_says_something_wherever_it_stands(
    tmp_path: Path, message: dict[str, Any], shown: str
) -> None:
    said = {"uuid": "a", "sender": "human", "created_at": "2026-09-01T10:00:00Z", **message}
    got = imported(tmp_path, json.dumps([{"uuid": "c", "chat_messages": [said]}]).encode(), "conversations.json")
    assert (got.report.messages, shown in got.show(), len(got.found("zebra"))) == (1, True, 1)
    assert got.has_its_bytes()


def test_what_claude_ai_writes_in_the_place_of_a_call_is_not_said(tmp_path: Path) -> None:
    """A call is a block that the field ``text`` mentions as not supported."""
    mention = "```\nThis block is not supported on your current device yet.\n```"
    called = {"uuid": "a", "sender": "assistant", "content": [{"type": "tool_use", "name": "x"}], "text": mention}
    thought = {"uuid": "b", "sender": "assistant", "content": [{"type": "thinking", "thinking": "?"}], "text": mention}
    got = imported(
        tmp_path, json.dumps([{"uuid": "c", "chat_messages": [called, thought]}]).encode(), "conversations.json"
    )
    assert (got.report.messages, "not supported" in got.show()) == (1, False)


def test_the_summary_of_kiro_begins_a_generation(tmp_path: Path) -> None:
    def line(kind: str, **data: Any) -> dict[str, Any]:
        return {"version": "v1", "kind": kind, "data": data}

    def prompt(said: str) -> dict[str, Any]:
        return line("Prompt", message_id="m", content=[{"kind": "text", "data": said}])

    compaction = line("Compaction", summary="A summary with a heron", strategy={}, messages_snapshot=[])
    got = imported(tmp_path, [prompt("Where is the zebra?"), compaction, prompt("And now?")])
    assert "A summary with a heron" in got.show()
    assert got.show().count("Where is the zebra?") == 1  # the title
    assert got.show("--generation", "0").count("Where is the zebra?") == 2
    assert (len(got.found("heron")), len(got.found("zebra")), got.name()) == (1, 1, "Where is the zebra?")
    assert got.has_its_bytes()


@pytest.mark.parametrize("is_log", [True, False])
def test_messages_of_gemini_with_one_id_or_without_one_are_all_there(tmp_path: Path, is_log: bool) -> None:
    at = "2026-09-01T10:00:00.000Z"
    about = {"sessionId": SESSION, "projectHash": "ab", "startTime": at, "lastUpdated": at}
    said = [
        {"id": "1", "timestamp": at, "type": "user", "content": "Where is the zebra?"},
        {"id": "1", "timestamp": at, "type": "gemini", "content": "The heron"},
        {"timestamp": at, "type": "user", "content": "And the okapi?"},
    ]
    states = [{"id": "1", "timestamp": at, "type": "gemini", "content": "The heron knows"}]
    data = lines([about, *said, *states]) if is_log else json.dumps({**about, "messages": said}, indent=1).encode()
    got = imported(tmp_path, data, "session-1.jsonl" if is_log else "session-1.json")
    assert got.report.messages == 3
    assert [len(got.found(word)) for word in ("zebra", "heron", "okapi")] == [1, 1, 1]
    assert ("heron knows" in got.show()) is is_log
    assert got.has_its_bytes()


def test_a_list_of_geminis_messages_with_one_id_or_without_one_has_them_all(tmp_path: Path) -> None:
    at = "2026-09-01T10:00:00.000Z"
    about = {"sessionId": SESSION, "projectHash": "ab", "startTime": at, "lastUpdated": at}
    said = [
        {"id": "1", "timestamp": at, "type": "user", "content": "Where is the zebra?"},
        {"id": "1", "timestamp": at, "type": "gemini", "content": "The heron"},
        {"timestamp": at, "type": "user", "content": "And the okapi?"},
    ]
    more = {"id": "2", "timestamp": at, "type": "gemini", "content": "The ibis"}
    got = imported(
        tmp_path, [about, {"$set": {"messages": said}}, {"$set": {"messages": [*said, more]}}], "session-1.jsonl"
    )
    assert (got.report.messages, got.report.action) == (4, "created")
    assert [len(got.found(word)) for word in ("zebra", "heron", "okapi", "ibis")] == [1, 1, 1, 1]
    with got.library.open(str(got.report.id), read_only=True) as store:
        assert store.get_metadata().generation == 0, "the second list begins with the first"


def test_what_a_tool_of_chatgpt_quotes_without_a_call_is_found(tmp_path: Path) -> None:
    """The site looks up the user's files by itself: the quotation was an event, which no search finds."""

    def node(name: str, parent: str | None, role: str, **content: Any) -> dict[str, Any]:
        message = {"id": name, "author": {"role": role, "name": "file_search"}, "content": content, "recipient": "all"}
        return {"id": name, "parent": parent, "children": [], "message": message}

    nodes = [
        node("a", None, "user", content_type="text", parts=["Where is it?"]),
        node("b", "a", "tool", content_type="tether_quote", url="file-1", title="zoo.pdf", text="The zebra is here"),
        node("c", "b", "assistant", content_type="text", parts=["There"]),
    ]
    talk: dict[str, Any] = {"title": "t", "create_time": 1.75e9, "update_time": 1.75e9, "current_node": "c"}
    talk |= {"mapping": {one["id"]: one for one in nodes}, "conversation_id": SESSION}
    got = imported(tmp_path, json.dumps([talk]).encode(), "conversations.json")
    assert (got.report.messages, len(got.found("zebra"))) == (3, 1)
    assert "that the program wrote" in got.show()
    assert got.has_its_bytes()


@pytest.mark.parametrize(
    "attached",
    [
        {"kind": "string", "name": "Problems", "value": "a zebra"},
        {"kind": "promptText", "name": "rules", "value": "a zebra"},
        {"kind": "generic", "name": "notes", "value": "a zebra"},
        {"kind": "terminalCommand", "name": "t", "command": "cat x", "output": "a zebra"},
        {"kind": "paste", "name": "p", "code": "a zebra"},
    ],
)
def test_an_attachment_of_vs_code_that_has_its_text_is_found(tmp_path: Path, attached: dict[str, Any]) -> None:
    request = {"requestId": "1", "message": {"text": "Look"}, "variableData": {"variables": [attached]}, "response": []}
    chat = {"version": 3, "sessionId": SESSION, "requesterUsername": "u", "requests": [request]}
    got = imported(tmp_path, json.dumps(chat).encode(), "a.json")
    assert (len(got.found("zebra")), got.name()) == (1, "Look")


def test_hermes_says_what_is_in_an_object_and_in_other_roles(tmp_path: Path) -> None:
    said = [
        {"role": "developer", "content": "a heron"},
        {"role": "user", "content": {"text": "a zebra", "images": []}},
        {"role": "tool", "tool_call_id": "c", "content": {"files": ["okapi.txt"]}},
        {"role": "function", "name": "f", "content": "a lynx"},
    ]
    about = {"session_id": SESSION, "session_start": "2026-09-01T10:00:00", "last_updated": "2026-09-01T10:00:00"}
    got = imported(tmp_path, json.dumps({**about, "messages": said}).encode(), f"session_{SESSION}.json")
    assert [len(got.found(word)) for word in ("heron", "zebra", "okapi", "lynx")] == [1, 1, 1, 1]


def test_what_codex_said_in_an_event_alone_is_found(tmp_path: Path) -> None:
    """A turn that was aborted has no item of it: the text stood in no search. What an item repeats is there once."""

    def line(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-09-01T10:00:00.000Z", "type": kind, "payload": payload}

    def item(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])

    said = [
        line("session_meta", id=SESSION, timestamp="2026-09-01T10:00:00.000Z", cwd="/p"),
        item("user", "Where is it?"),
        line("event_msg", type="agent_message", message="The okapi sleeps"),
        item("assistant", "The okapi sleeps"),
        line("event_msg", type="agent_message", message="The zebra was"),
        line("event_msg", type="item_completed", item={"type": "AgentMessage", "text": "The zebra was"}),
        line("event_msg", type="turn_aborted", reason="interrupted"),
    ]
    got = imported(tmp_path, said, f"rollout-2026-09-01T10-00-00-{SESSION}.jsonl")
    assert (got.report.messages, got.findings()) == (2, ["left-branch"])
    (hit,) = got.found("zebra")
    assert (hit["role"], hit["beside"]) == ("assistant", "left-branch")
    assert (len(got.found("okapi")), got.show("--branches").count("The zebra was")) == (1, 1)
    assert got.has_its_bytes()


def test_a_prompt_that_waited_and_was_never_sent_is_found(tmp_path: Path) -> None:
    """Claude Code: the session ended, or the user took it back. One that was sent, by itself or with others, is there once."""
    session = ClaudeLines()

    def queue(operation: str, **content: str) -> None:
        at = "2026-09-01T10:00:00.000Z"
        line = {"type": "queue-operation", "operation": operation, "timestamp": at, "sessionId": SESSION, **content}
        session.lines.append(line)

    queue("enqueue", content="Where is the okapi?")
    queue("dequeue")
    session.user("Where is the okapi?", parent=None)
    parent = session.reply("There")
    queue("enqueue", content="And the heron?")
    queue("enqueue", content="And the lynx?")
    queue("enqueue", content="<task-notification>done</task-notification>")
    queue("enqueue", content="/compact now")
    session.add("user", parent=parent, message={"role": "user", "content": "And the heron?\nAnd the lynx?"})
    queue("enqueue", content="And the zebra?")
    got = imported(tmp_path, session.lines)
    assert (got.report.messages, got.findings()) == (3, ["left-branch"])
    (hit,) = got.found("zebra")
    assert (hit["role"], hit["beside"]) == ("user", "left-branch")
    assert [len(got.found(word)) for word in ("okapi", "heron", "lynx", "compact")] == [1, 1, 1, 0]
    assert got.has_its_bytes()
