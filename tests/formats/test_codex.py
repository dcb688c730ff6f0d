"""Codex's rollouts: items of Responses become messages of chat completions; compactions and rollbacks are generations.

The lines have the members that the program itself wrote (0.169.0, against a server on loopback).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.formats import of_others
from tests.formats.of_others import (
    Bytes,
    assert_nothing_is_lost,
    entries,
    few_or_many_seeds,
    lines,
    messages,
    original,
)
from transcript_store.formats._codex import Codex, CodexWriter
from transcript_store.testing import check_format


def line(kind: str, at: str = "2026-11-23T06:32:49.218Z", **payload: Any) -> dict[str, Any]:
    return {"timestamp": at, "type": kind, "payload": payload}


def said(role: str, text: str, kind: str = "input_text") -> dict[str, Any]:
    return line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


def answered(text: str) -> dict[str, Any]:
    return said("assistant", text, "output_text")


def spent(total: int) -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    return line(
        "event_msg", type="token_count", info={"total_token_usage": {"total_tokens": total}, "last_token_usage": usage}
    )


def rolled_back(turns: int) -> dict[str, Any]:
    return line("event_msg", type="thread_rolled_back", num_turns=turns)


META = line(
    "session_meta",
    id="01a2071b-7309-70e1-ba72-e99f646caf7a",
    cwd="/home/me/work",
    cli_version="0.169.0",
    model_provider="openai",
    source="exec",
    base_instructions={"text": "You are a coding agent."},
    git={"branch": "main"},
)
MODEL = line("turn_context", cwd="/home/me/work", model="gpt-5-codex")
SCENE = said("user", "<environment_context>\n  <cwd>/home/me/work</cwd>\n</environment_context>")
THOUGHT = line(
    "response_item",
    type="reasoning",
    id="rs_1",
    summary=[{"type": "summary_text", "text": "**Thinking**"}],
    content=None,
    encrypted_content="gAAAA",
)
CALL = line(
    "response_item", type="function_call", id="fc_1", name="exec_command", arguments='{"cmd": "ls"}', call_id="call_1"
)
CALL_2 = line(
    "response_item", type="custom_tool_call", id="c_2", name="apply_patch", input="*** Begin", call_id="call_2"
)
OUTPUT = line("response_item", type="function_call_output", call_id="call_1", output="a.txt\n")
OUTPUT_2 = line("response_item", type="custom_tool_call_output", call_id="call_2", output="Success")
COST = line(
    "token_usage_record", response_id="resp_1", usage={"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
)
ECHO = line("event_msg", type="agent_message", message="I will look.")
TURN = [
    said("user", "List the files"),
    ECHO,
    THOUGHT,
    answered("I will look."),
    CALL,
    CALL_2,
    COST,
    OUTPUT,
    OUTPUT_2,
    answered("Done"),
]
SESSION = [META, MODEL, said("developer", "<permissions instructions>"), SCENE, *TURN, spent(120)]


plan_of = partial(of_others.plan_of, Codex())


def test_items_become_messages_that_our_client_sends():
    """Reasoning, text and both calls are one reply; each result stands behind it."""
    plan = plan_of(*SESSION)
    assert plan.session == "01a2071b-7309-70e1-ba72-e99f646caf7a"
    assert (plan.version, plan.provider, plan.model) == ("0.169.0", "openai", "gpt-5-codex")
    assert plan.system_prompt == "You are a coding agent."
    assert plan.labels == {"cwd": "/home/me/work", "git_branch": "main"}
    function = {"name": "exec_command", "arguments": '{"cmd": "ls"}'}
    patch = {"name": "apply_patch", "arguments": '{"input": "*** Begin"}'}
    assert messages(plan)[2:] == [
        {"role": "user", "content": "List the files"},
        {
            "role": "assistant",
            "content": "I will look.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": function},
                {"id": "call_2", "type": "function", "function": patch},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "a.txt\n"},
        {"role": "tool", "tool_call_id": "call_2", "content": "Success"},
        {"role": "assistant", "content": "Done"},
    ]
    assert [(loss.kind, loss.count) for loss in plan.losses] == [("thinking", 1)]


def test_a_reply_has_its_cost_and_its_model():
    """From the record behind it, or from a count behind its results; a count that only repeats itself is nobody's."""
    reply, done = [entry for entry in entries(plan_of(*SESSION)) if (entry.message or {}).get("role") == "assistant"]
    assert (reply.extra["response_id"], reply.extra["usage"]["total_tokens"], reply.extra["model"]) == (
        "resp_1",
        120,
        "gpt-5-codex",
    )
    assert done.extra["usage"]["total_tokens"] == 120
    older = plan_of(META, said("user", "Hi"), CALL, OUTPUT, spent(120), spent(120), answered("Done"), spent(120))
    costs = ["usage" in entry.extra for entry in entries(older) if (entry.message or {}).get("role") == "assistant"]
    assert costs == [True, False]


def test_what_codex_itself_wrote_is_marked_and_kept():
    marked = [entry.message for entry in entries(plan_of(*SESSION)) if entry.extra.get("scaffolding")]
    assert [message["role"] for message in marked if message] == ["system", "user"]


def test_a_compaction_is_a_generation():
    """It begins with the history that replaced the one before, of which nothing is gone."""
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summary: files listed"}]}
    ]
    plan = plan_of(*SESSION, line("compacted", message="", replacement_history=history), said("user", "Go on"))
    assert [len(messages(plan, n)) for n in range(2)] == [7, 2]
    assert messages(plan)[0] == {"role": "user", "content": "Summary: files listed"}


def test_a_compaction_of_the_versions_before():
    """They had only a summary: what the user had said stays, and the summary follows."""
    plan = plan_of(*SESSION, line("compacted", message="Files were listed."), said("user", "Go on"))
    assert [message["content"] for message in messages(plan)] == ["List the files", "Files were listed.", "Go on"]


def test_a_rollback_is_a_generation():
    """Turns that the user began are counted, not what Codex said in the user's name."""
    plan = plan_of(
        META,
        SCENE,
        said("user", "One"),
        answered("1"),
        said("user", "Two"),
        answered("2"),
        rolled_back(1),
        said("user", "Three"),
    )
    assert [message["content"] for message in messages(plan, 1)][1:] == ["One", "1", "Three"]
    assert len(messages(plan, 0)) == 5


def test_what_is_not_sent_is_named():
    """Searches and pictures that OpenAI made were events without a word."""
    search = line("response_item", type="web_search_call", status="completed", action={"type": "search", "query": "x"})
    drawn = line("response_item", type="image_generation_call", id="ig", status="completed", result="iVBO")
    plan = plan_of(META, said("user", "Look"), search, drawn, answered("Done"))
    assert [message["content"] for message in messages(plan)] == ["Look", "Done"]
    assert [(loss.kind, loss.count) for loss in plan.losses] == [("own", 2)]


def test_another_agents_message_is_a_user_message():
    """To this one it is what a user says, and a turn that a rollback counts, as Codex counts it."""
    asked = line("response_item", type="agent_message", author="root", recipient="child", content=[{"type": "input_text", "text": "Help"}])  # fmt: skip
    plan = plan_of(META, said("user", "Hi"), answered("Yes?"), asked, answered("I help"))
    assert messages(plan)[2] == {"role": "user", "content": "Help"}
    assert plan.losses == ()
    back = plan_of(META, said("user", "Hi"), answered("Yes?"), asked, answered("I help"), rolled_back(1))
    assert [message["content"] for message in messages(back)] == ["Hi", "Yes?"]


def test_a_search_for_tools_is_a_call_with_its_result():
    call = line("response_item", type="tool_search_call", call_id="t", execution="client", arguments={"query": "q"})
    output = line("response_item", type="tool_search_output", call_id="t", execution="client", tools=[{"name": "f"}])
    asked, found = messages(plan_of(META, said("user", "Look"), call, output))[1:]
    assert asked["tool_calls"][0]["function"] == {"name": "tool_search", "arguments": '{"query": "q"}'}
    assert (found["tool_call_id"], "f" in found["content"]) == ("t", True)


def test_a_summary_that_is_encrypted_is_named():
    """The new generation begins without it, and nobody was told."""
    kept = said("user", "One")["payload"]
    history = [kept, {"type": "compaction", "encrypted_content": "gAAAA"}]
    plan = plan_of(META, said("user", "One"), answered("1"), line("compacted", message="", replacement_history=history))
    assert messages(plan) == [{"role": "user", "content": "One"}]
    assert [(loss.kind, loss.count) for loss in plan.losses] == [("compaction", 1)]


def test_the_first_session_counts():
    """A fork begins with the lines of the session that it was forked from."""
    other = line("session_meta", id="another", cwd="/elsewhere")
    assert plan_of(META, other, said("user", "Hi")).labels["cwd"] == "/home/me/work"


def test_an_agent_of_another_session_is_part_of_it():
    spawned = line(
        "session_meta", id="child", source={"subagent": {"thread_spawn": {"parent_thread_id": "parent", "depth": 1}}}
    )
    assert plan_of(spawned, said("user", "Hi")).labels == {"part_of": "parent"}


def test_a_fork_names_the_session_that_it_copied():
    fork = line("session_meta", id="fork", forked_from_id="first")
    assert plan_of(fork, META, said("user", "Hi")).labels == {"forked_from": "first"}


def test_files_of_early_2025():
    """The lines were the session and its items themselves."""
    head = {
        "id": "5973b6c0",
        "timestamp": "2025-05-07T17:24:21.123Z",
        "instructions": "Be brief.",
        "git": {"branch": "main"},
    }
    plan = plan_of(head, {"record_type": "state"}, said("user", "Hi")["payload"], answered("Hello")["payload"])
    assert (plan.session, plan.system_prompt, len(messages(plan))) == ("5973b6c0", "Be brief.", 2)


STEPS = st.lists(
    st.sampled_from(
        [
            *SESSION,
            said("user", "Else"),
            rolled_back(1),
            rolled_back(9),
            line("compacted", message="S"),
            spent(1),
            spent(2),
        ]
    ),
    max_size=20,
)


@given(STEPS, st.integers(0, 300))
def test_any_order_of_lines_cut_anywhere(steps, cut):
    """Each whole line is accounted for, and the bytes come out again."""
    data = lines(META, *steps)
    source = Bytes(data[: max(len(lines(META)), len(data) - cut)])
    (plan,) = Codex().plans(source)
    assert_nothing_is_lost(plan)
    assert original(plan) == source.data


@few_or_many_seeds
def test_it_keeps_the_contract_of_formats(seeds):
    check_format(
        Codex(),
        [
            lines(
                *SESSION,
                line("compacted", message="S", replacement_history=[TURN[0]["payload"]]),
                *TURN,
                rolled_back(1),
                CALL,
            )
        ],
        CodexWriter(),
        seeds=seeds,
    )
