"""Claude Code's files: the conversation that its program would continue, and every other line beside it."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats import of_others
from tests.formats.of_others import Bytes, few_or_many_seeds
from tests.formats.of_others import messages as messages_in
from tests.formats.sources import check_accounts, corpora, entries_of, json_lines, texts_in
from transcript_store.formats import head_of
from transcript_store.formats._claude_code import ClaudeCode, ClaudeCodeWriter
from transcript_store.testing import check_format
from transcript_store.testing._exchanges import problem_with

SESSION = "11111111-2222-3333-4444-555555555555"


def line(uuid, parent, text="", *, kind="user", **more):
    """A line of the tree; of an assistant, one block of a reply."""
    content = text if kind == "user" else [{"type": "text", "text": text}]
    message = {"role": kind, "content": more.pop("content", content), **more.pop("message", {})}
    said = {"message": message} if kind in ("user", "assistant") else {}
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "cwd": "/home/me/work",
        "sessionId": SESSION,
        "version": "2.1.112",
        "gitBranch": "main",
        "type": kind,
        **said,
        "uuid": uuid,
        "timestamp": "2026-01-02T03:04:05.678Z",
        **more,
    }


def reply(uuid, parent, *blocks, id, **more):
    usage = {"input_tokens": 10, "output_tokens": more.pop("tokens", 1)}
    about = {
        "id": id,
        "type": "message",
        "model": "claude-sonnet-4-5",
        "stop_reason": more.pop("stop", None),
        "usage": usage,
    }
    return line(uuid, parent, kind="assistant", content=list(blocks), message=about, requestId=f"req_{id}", **more)


def text(said):
    return {"type": "text", "text": said}


def call(id):
    return {
        "type": "tool_use",
        "id": id,
        "name": "Bash",
        "input": {"command": f"echo a command long enough for a hole {id}"},
    }


def result(uuid, parent, id, said):
    return line(
        uuid,
        parent,
        content=[{"type": "tool_result", "tool_use_id": id, "content": said}],
        toolUseResult={"stdout": said},
    )


def plans(values, **options):
    data = values if isinstance(values, bytes) else json_lines(values)
    found = list(ClaudeCode(**options).plans(Bytes(data, f"{SESSION}.jsonl")))
    if found:
        check_accounts(found[0], data)
    return found


def plan(values):
    return plans(values)[0]


@pytest.mark.parametrize("path", corpora("claude-code"), ids=lambda path: path.stem)
def test_files_that_others_wrote_are_whole_conversations(path):
    data = path.read_bytes()
    assert ClaudeCode().recognizes(head_of(Bytes(data)))
    found = plan(data)
    # Counted by another program's rule: each line that has a message is one, in the order of the lines.
    counted = [value["message"] for value in map(json.loads, data.splitlines()) if "message" in value]
    assert messages_in(found) == [{"role": one["role"], "content": one["content"]} for one in counted]
    assert found.findings == ()
    assert found.labels["title"]
    assert found.provider == "claude"


def test_the_conversation_is_the_way_from_the_last_line_to_its_root():
    left = [
        line("u1", None, "Hello"),
        line("a1", "u1", "Hi", kind="assistant"),
        line("u2", "a1", "left"),
        line("a2", "u2", "left too", kind="assistant"),
    ]
    found = plan([*left, line("u3", "a1", "better"), line("a3", "u3", "Yes", kind="assistant")])
    assert texts_in(found) == ["Hello", "Hi", "better", "Yes"]
    events = [entry.lines for entry in entries_of(found) if entry.message is None]
    assert events == [(3,), (4,)]


def attached(uuid, parent, kind, **more):
    return line(uuid, parent, kind="attachment", attachment={"type": kind, **more})


@pytest.mark.parametrize("prompt", ["And delete nothing", [text("And delete nothing")]], ids=["text", "blocks"])
def test_what_is_said_while_the_model_is_at_work_is_the_users(prompt):
    """The program writes it as an attachment and sends it; the reply to it answered nothing here."""
    found = plan(
        [
            line("u1", None, "Start"),
            reply("a1", "u1", call("t1"), id="m1"),
            result("r1", "a1", "t1", "done"),
            attached("q1", "r1", "queued_command", prompt=prompt),
            attached("q2", "q1", "file", filename="a.txt", content={"type": "text"}),
            attached("q3", "q2", "queued_command", prompt=None),
            attached("q4", "q3", "todo_reminder", content=[]),
            line("a2", "q4", "I delete nothing", kind="assistant"),
        ]
    )
    assert texts_in(found) == ["Start", "Bash", "done", "And delete nothing", "I delete nothing"]
    assert messages_in(found)[3] == {"role": "user", "content": prompt}
    assert [(loss.kind, loss.count) for loss in found.losses] == [("attachments", 1)]


def test_what_is_said_between_a_call_and_its_result_stands_behind_it():
    """Nothing may be sent in between. Where tools ran side by side, the result that it hangs on need not be on the way."""
    (start, asked) = line("u1", None, "Start"), reply("a1", "u1", call("t1"), id="m1")
    end = line("a2", "r1", "I delete nothing", kind="assistant")
    queued = attached("q1", "a1", "queued_command", prompt="And delete nothing")
    one = plan([start, asked, queued, {**result("r1", "q1", "t1", "done")}, end])
    beside = attached("q1", "r2", "queued_command", prompt="And delete nothing")
    second = reply("a3", "a1", call("t2"), id="m1")
    two = plan([start, asked, second, result("r2", "a1", "t1", "done"), beside, result("r1", "a3", "t2", "too"), end])
    assert texts_in(one) == ["Start", "Bash", "done", "And delete nothing", "I delete nothing"]
    assert texts_in(two)[-4:] == ["done", "too", "And delete nothing", "I delete nothing"]
    assert problem_with(messages_in(one)) is problem_with(messages_in(two)) is None


def test_a_rewind_is_where_the_conversation_continues():
    """Until something is said behind it, only the rewind says what was taken back: the last line is still what was."""
    said = [line("u1", None, "one"), line("a1", "u1", "two", kind="assistant"), line("u2", "a1", "three")]

    def rewind(leaf, **more):
        return {"type": "last-prompt", "sessionId": SESSION, "leafUuid": leaf, **more}

    back = rewind("a1", explicit=True, rewound=True, cutUuid="u2")
    assert texts_in(plan([*said, back])) == ["one", "two"]
    assert texts_in(plan([*said, back, line("p1", "u2", kind="progress")])) == ["one", "two"]
    assert texts_in(plan([*said, rewind(None, explicit=True)])) == []
    assert texts_in(plan([*said, back, line("u3", "a1", "four")])) == ["one", "two", "four"]
    for nothing in (rewind("a1"), rewind("lost", explicit=True), {"type": "last-prompt", "explicit": True}):
        assert texts_in(plan([*said, nothing])) == ["one", "two", "three"]


def test_a_branch_that_was_left_is_a_plan_of_its_own_if_asked_for():
    values = [line("u1", None, "Hello"), line("u2", "u1", "left"), line("u3", "u1", "better")]
    main, branch = plans(values, branches=True)
    assert texts_in(main) == ["Hello", "better"]
    assert texts_in(branch) == ["Hello", "left"]
    assert branch.labels["forked_from"] == main.session == SESSION
    assert branch.session != main.session


def test_the_blocks_of_a_reply_stand_on_lines_of_their_own_and_are_one_message_counted_once():
    thinking = {"type": "thinking", "thinking": "I think", "signature": "sig"}
    values = [
        line("u1", None, "Hello"),
        reply("a1", "u1", thinking, id="m1", tokens=3),
        reply("a2", "a1", text("Hi"), id="m1", tokens=3),
        reply("a3", "a2", call("t1"), id="m1", tokens=42, stop="tool_use"),
        result("r1", "a3", "t1", "done"),
    ]
    found = plan(values)
    assert texts_in(found) == ["Hello", "I think Hi Bash", "done"]
    said = entries_of(found)[1]
    assert said.message == {"role": "assistant", "content": [thinking, text("Hi"), call("t1")]}
    assert said.lines == (2, 3, 4)
    assert {name: said.extra[name] for name in ("response_id", "model", "stop_reason")} == {
        "response_id": "m1",
        "model": "claude-sonnet-4-5",
        "stop_reason": "tool_use",
    }
    assert said.extra["usage"]["output_tokens"] == 42
    assert "a command long enough" not in json.dumps(said.extra)  # it stands in the message alone


def test_calls_side_by_side_and_their_results_are_found_though_the_way_misses_them():
    """Each result names its own call as its parent, so only the last of them is on the way to the leaf."""
    values = [
        line("u1", None, "Both!"),
        reply("a1", "u1", call("t1"), id="m1"),
        result("r1", "a1", "t1", "one"),
        reply("a2", "a1", call("t2"), id="m1"),
        result("r2", "a2", "t2", "two"),
        reply("a3", "r2", text("Done"), id="m2"),
    ]
    found = plan(values)
    assert texts_in(found) == ["Both!", "Bash Bash", "one", "two", "Done"]
    assert [entry.lines for entry in entries_of(found)] == [(1,), (2, 4), (3,), (5,), (6,)]


def test_what_the_program_said_itself_is_an_event():
    refused = {"id": "x", "model": "<synthetic>"}
    values = [
        line("u1", None, "Hello"),
        line("a1", "u1", "API Error", kind="assistant", message=refused, isApiErrorMessage=True),
        line("u2", "a1", "Again"),
    ]
    assert texts_in(plan(values)) == ["Hello", "Again"]


COMPACTED = [
    line("u1", None, "one"),
    line("a1", "u1", "two", kind="assistant"),
    line("u2", "a1", "three"),
    line("a2", "u2", "four", kind="assistant"),
    line("b1", None, kind="system", subtype="compact_boundary", logicalParentUuid="a2", content="Conversation compacted", compactMetadata={"trigger": "auto"}),
    line("s1", "b1", "the summary", isCompactSummary=True, isVisibleInTranscriptOnly=True),
    line("u3", "s1", "five"),
]  # fmt: skip


def test_a_compaction_is_a_generation_that_begins_with_the_summary():
    found = plan(COMPACTED)
    assert [texts_in(found, number) for number in (0, 1)] == [["one", "two", "three", "four"], ["the summary", "five"]]


def test_a_compaction_that_does_not_say_what_it_follows_follows_the_line_before_it():
    """So the real program (2.1.112) wrote it in a session that was resumed without a terminal."""
    boundary = {name: member for name, member in COMPACTED[4].items() if name != "logicalParentUuid"}
    aside = line("s9", None, "aside", isSidechain=True)
    found = plan([*COMPACTED[:4], aside, line("p9", "a2", kind="progress"), boundary, *COMPACTED[5:]])
    assert [texts_in(found, number) for number in (0, 1)] == [["one", "two", "three", "four"], ["the summary", "five"]]
    assert found.findings == ()


def test_what_a_compaction_kept_is_taken_over_behind_the_summary_and_names_no_line_again():
    kept = {"headUuid": "u2", "tailUuid": "a2", "anchorUuid": "s1"}
    values = [*COMPACTED[:4], {**COMPACTED[4], "compactMetadata": {"preservedSegment": kept}}, *COMPACTED[5:]]
    found = plan(values)
    assert texts_in(found) == ["the summary", "three", "four", "five"]
    assert [entry.lines for entry in found.generations[1]()] == [(5,), (6,), (), (), (7,)]
    lost = plan(
        [
            *COMPACTED[:4],
            {**COMPACTED[4], "compactMetadata": {"preservedSegment": {**kept, "headUuid": "?"}}},
            *COMPACTED[5:],
        ]
    )
    assert [finding.kind for finding in lost.findings] == ["kept-missing"]


def test_two_compactions_are_two_generations():
    again = [
        line("b2", None, kind="system", subtype="compact_boundary", logicalParentUuid="u3"),
        line("s2", "b2", "shorter", isCompactSummary=True),
        line("u4", "s2", "six"),
    ]
    found = plan([*COMPACTED, *again])
    assert [texts_in(found, number) for number in range(3)] == [
        ["one", "two", "three", "four"],
        ["the summary", "five"],
        ["shorter", "six"],
    ]


def test_a_sub_agent_in_its_parents_file_is_a_conversation_of_its_own():
    side = {"isSidechain": True}
    values = [
        line("u1", None, "Find it"),
        reply("a1", "u1", call("t1"), id="m1"),
        line("s1", None, "You find it", **side),
        line("s2", "s1", "Found", kind="assistant", **side),
        line("o1", None, "Another", **side),
        result("r1", "a1", "t1", "Found"),
    ]
    main, agent, other = plans(values)
    assert texts_in(main) == ["Find it", "Bash", "Found"]
    assert texts_in(agent) == ["You find it", "Found"]
    assert texts_in(other) == ["Another"]
    assert agent.labels["part_of"] == other.labels["part_of"] == SESSION
    assert len({main.session, agent.session, other.session}) == 3
    assert [one.is_part for one in (main, agent, other)] == [False, True, True]  # the main one has all the lines


def test_the_file_of_a_sub_agent_is_a_conversation_and_part_of_its_parents():
    side = {"isSidechain": True, "agentId": "a7"}
    (found,) = plans([line("s1", None, "You find it", **side), line("s2", "s1", "Found", kind="assistant", **side)])
    assert found.session == f"{SESSION}/agent-a7"
    assert found.labels["part_of"] == SESSION
    assert texts_in(found) == ["You find it", "Found"]


def test_a_branch_that_the_user_began_names_the_session_that_it_copied():
    """``/branch`` copies the lines, and each says from where; what follows does not."""
    copied = {"forkedFrom": {"sessionId": "first", "messageUuid": "u1"}}
    found = plan(
        [
            line("u1", None, "one", **copied),
            line("a1", "u1", "two", kind="assistant", **copied),
            line("u2", "a1", "three"),
        ]
    )
    assert (found.labels["forked_from"], texts_in(found)) == ("first", ["one", "two", "three"])


def test_a_missing_parent_is_reported_and_what_stood_before_is_kept():
    values = [line("u1", None, "one"), line("a1", "u1", "two", kind="assistant"), line("u2", "lost", "three")]
    found = plan(values)
    assert texts_in(found) == ["one", "two", "three"]
    assert [(finding.kind, finding.line) for finding in found.findings] == [("dangling-parent", 3)]
    at_the_beginning = plan([line("u1", "elsewhere", "one"), line("u2", "u1", "two")])
    assert [(finding.kind, finding.line) for finding in at_the_beginning.findings] == [("dangling-parent", 1)]


def test_a_cycle_of_parents_ends_and_is_reported():
    found = plan([line("u1", "u3", "one"), line("u2", "u1", "two"), line("u3", "u2", "three")])
    assert texts_in(found) == ["one", "two", "three"]
    assert [finding.kind for finding in found.findings] == ["cycle"]


def test_a_uuid_twice_is_reported_and_a_conversation_all_the_same():
    first = line("u1", None, "one")
    found = plan([first, line("u2", "u1", "two"), first, line("u3", "u2", "three")])
    assert texts_in(found) == ["one", "two", "three"]
    assert [(finding.kind, finding.line) for finding in found.findings] == [("duplicate-uuid", 3)]
    changed = plan([first, line("u1", None, "changed"), line("u2", "u1", "two")])
    assert texts_in(changed) == ["changed", "two"]


def test_the_title_is_the_one_that_somebody_gave_before_the_one_that_was_made_up():
    said = line("u1", None, "Hello")
    named: list[tuple[dict[str, Any], str]] = [
        ({"type": "summary", "summary": "of another session", "leafUuid": "elsewhere"}, "of another session"),
        ({"type": "summary", "summary": "of this one", "leafUuid": "u1"}, "of this one"),
        ({"type": "ai-title", "aiTitle": "a model's", "sessionId": SESSION}, "a model's"),
        ({"type": "agent-name", "agentName": "an agent's", "sessionId": SESSION}, "an agent's"),
        ({"type": "custom-title", "customTitle": "mine", "sessionId": SESSION}, "mine"),
        ({"type": "ai-title", "aiTitle": "a model's later one", "sessionId": SESSION}, "mine"),
    ]
    values: list[dict[str, Any]] = [said]
    for value, title in named:
        values.append(value)
        found = plan(values)
        assert found.labels == {"title": title, "cwd": "/home/me/work", "git_branch": "main"}
    assert found.version == "2.1.112"


def test_other_json_lines_are_not_taken_for_claude_codes():
    others: list[dict[str, Any]] = [
        {"role": "user", "content": "x"},
        {"type": "message", "id": "1", "parentId": None, "message": {}},
        {"type": "session", "id": "x"},
        {"type": ["user"], "uuid": "x", "sessionId": "x"},
    ]
    for value in others:
        assert not ClaudeCode().recognizes(head_of(Bytes(json_lines([value]))))
    assert list(ClaudeCode().plans(Bytes(b""))) == []


# ---- any tree ----

PARENTS = st.integers(-2, 30)
KINDS = st.sampled_from(["user", "user", "assistant", "assistant", "reply", "result", "system", "boundary", "summary", "progress", "title", "torn", "duplicate", "sidechain", "glued", "null-content"])  # fmt: skip
SHAPES = st.lists(st.tuples(KINDS, PARENTS), max_size=14)


def one_of_a_tree(kind, uuid, parent, number, at):
    match kind:
        case "assistant":
            return line(uuid, parent, f"said {number}", kind="assistant")
        case "reply":
            return reply(uuid, parent, text(f"part {number}"), call(f"t{at}"), id=f"m{at % 3}")
        case "result":
            return result(uuid, parent, f"t{at}", f"result {number}")
        case "system":
            return line(uuid, parent, kind="system", subtype="turn_duration")
        case "boundary":
            kept = {"headUuid": f"n{at}", "tailUuid": f"n{at + 1}", "anchorUuid": f"n{number + 1}"}
            about = {"subtype": "compact_boundary", "compactMetadata": {"preservedSegment": kept}}
            return line(uuid, None, kind="system", logicalParentUuid=parent, **about)
        case "summary":
            return line(uuid, parent, f"summary {number}", isCompactSummary=True)
        case "progress":
            return line(uuid, parent, kind="progress")
        case "title":
            return {"type": "custom-title", "customTitle": f"title {number}", "sessionId": SESSION}
        case "duplicate":
            return line("n0", parent, f"duplicate {number}")
        case "sidechain":
            return line(uuid, parent, f"aside {number}", isSidechain=True)
        case "null-content":
            return line(uuid, parent, content=None)
    return line(uuid, parent, f"asked {number}")


def tree(shape):
    """Lines of any tree: the parent of each is one before it, one behind it, one that is not there, or none."""
    data = b""
    numbers = count()
    for kind, at in shape:
        number = next(numbers)
        parent = None if at == -1 else "nowhere" if at == -2 else f"n{at % (len(shape) + 1)}"
        uuid = f"n{number}"
        if kind == "torn":
            data += json_lines([line(uuid, parent, "torn")])[: 20 + number] + b"\n"
            continue
        value = one_of_a_tree(kind, uuid, parent, number, at)
        data += json_lines([value])
        if kind == "glued":
            data = data[:-1]
    return data


@given(SHAPES)
def test_any_tree_is_accounted_for_line_by_line_and_comes_out_again(shape):
    data = tree(shape)
    for found in plans(data, branches=True)[1:]:
        assert len({number for entry in entries_of(found) for number in entry.lines}) == found.lines


@given(SHAPES)
def test_a_source_that_is_read_again_line_by_line_gives_the_same(shape):
    """A source that is too large for memory is not held."""
    data = tree(shape)

    class Large(Bytes):
        held = 0

        @property
        def size(self):
            self.held += 1
            return len(self.data) if self.held > 1 else 1 << 40

    assert [list(map(repr, entries_of(one))) for one in ClaudeCode().plans(Large(data))] == [
        list(map(repr, entries_of(one))) for one in ClaudeCode().plans(Bytes(data))
    ]


LINEAR = [
    {"type": "summary", "summary": "title", "leafUuid": "u2"},
    line("u1", None, "one"),
    reply("a1", "u1", text("two"), id="m1"),
    {"type": "file-history-snapshot", "messageId": "u2", "snapshot": {}},
    line("u2", "a1", "three"),
    reply("a2", "u2", call("t1"), id="m2"),
    result("r1", "a2", "t1", "four"),
    line("y1", "r1", kind="system", subtype="turn_duration"),
    reply("a3", "y1", text("five"), id="m3"),
    line("b1", None, kind="system", subtype="compact_boundary", logicalParentUuid="a3", compactMetadata={"preservedSegment": {"headUuid": "r1", "tailUuid": "a3", "anchorUuid": "s1"}}),
    line("s1", "b1", "summary", isCompactSummary=True),
    line("u3", "s1", "six"),
]  # fmt: skip


def test_the_plan_of_a_file_that_grew_extends_the_plan_of_what_it_was():
    """So an import appends, and replaces nothing. Entries that were planned stay, also where a generation follows."""
    before: list[list[str]] = []
    for length in range(1, len(LINEAR) + 1):
        found = plan(LINEAR[:length])
        now = [[repr(entry) for entry in generation()] for generation in found.generations]
        for earlier, later in zip(before, now, strict=False):
            if earlier is before[-1] and len(now) == len(before) and any("lines=()" in one for one in later):
                continue  # what a compaction keeps follows its summary: until that is written, the boundary
            assert later[: len(earlier)] == earlier
        before = now
    assert found.session == SESSION


@pytest.mark.parametrize("path", corpora("claude-code"), ids=lambda path: path.stem)
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.long)])
def test_a_file_cut_at_any_byte_is_read_to_its_last_whole_line(path, step):
    data = path.read_bytes()
    whole = texts_in(plan(data))
    for cut in range(0, len(data), step):
        for found in plans(data[:cut])[:1]:
            assert found.tail == b"" or not data[:cut].endswith(b"\n")
            assert whole[: len(texts_in(found))] == texts_in(found)


@given(st.data())
def test_a_line_with_a_member_taken_away_or_changed_is_still_accounted_for(data):
    values = orjson.loads(orjson.dumps(LINEAR))
    for _ in range(data.draw(st.integers(1, 3))):
        value = data.draw(st.sampled_from(values))
        name = data.draw(st.sampled_from(sorted(value)))
        inner = value[name] if isinstance(value[name], dict) and value[name] and data.draw(st.booleans()) else value
        name = data.draw(st.sampled_from(sorted(inner))) if inner is not value else name
        if data.draw(st.booleans()):
            inner[name] = data.draw(
                st.sampled_from([None, 0, "", "n", [], {}, [None], ["x"], {"a": 1}, True, 1e300, "u1", "a3"])
            )
        else:
            del inner[name]
        if not value:
            value["x"] = 1
    plans(values, branches=True)


@few_or_many_seeds
def test_it_keeps_the_contract_of_formats(seeds):
    check_format(ClaudeCode(), [of_others.lines(*LINEAR)], ClaudeCodeWriter(), seeds=seeds)
