"""What sessions cost: "the single most asked question", and each counter has another answer.

Public reports: ccusage/ccusage#901 and #938 (output counted from the first line of a streamed reply), #1288 (a counter that repeats
itself), #897, #950, #1349 and #1460 and getagentseal/codeburn#1383 (forks and sub-agents of Codex repeat the counts of their parent);
cached tokens priced as input, models without a price that cost nothing.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.usage import PriceTable, UnusablePricesError, bundled_prices, count_usage, read_prices

JSON = dict[str, Any]
MILLION = 1_000_000
PRICES = PriceTable(
    "2026-01-01",
    {
        "m": {"input": 2, "cache_read": 0.5, "cache_write": 3, "cache_write_1h": 4, "output": 10},
        "plain": {"input": 1, "output": 1},
    },
)


def library_of(folder: Path, *replies: tuple[JSON, JSON]) -> ConversationLibrary:
    """One conversation; each reply is its usage, and what else stands in its extra."""
    library = ConversationLibrary(folder)
    with library.create() as conversation:
        conversation.append_messages(
            [{"role": "assistant", "content": "Yes."}] * len(replies),
            extras=[{"usage": usage, **extra} for usage, extra in replies],
        )
    return library


def cost_of(folder: Path, usage: JSON, prices: PriceTable = PRICES, **extra: object) -> float | None:
    return count_usage(library_of(folder, (usage, {"model": "m", **extra})), prices=prices).total.cost_usd


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"input_tokens": MILLION, "output_tokens": MILLION}, 12.0),
        ({"input_tokens": 0, "cache_read_input_tokens": MILLION}, 0.5),
        ({"input_tokens": 0, "cache_creation_input_tokens": MILLION}, 3.0),
        (
            {"cache_creation_input_tokens": MILLION, "cache_creation": {"ephemeral_1h_input_tokens": MILLION // 2}},
            3.5,
        ),
        ({"cache_creation_input_tokens": 10, "cache_creation": {"ephemeral_1h_input_tokens": 10**12}}, 40 / MILLION),
        ({"input_tokens": MILLION, "cached_input_tokens": MILLION // 2, "output_tokens": 0}, 1.25),  # Codex
        ({"input_tokens": MILLION, "cache_write_input_tokens": MILLION, "output_tokens": 0}, 3.0),
        ({"prompt_tokens": MILLION, "prompt_tokens_details": {"cached_tokens": MILLION}}, 0.5),
        ({"promptTokenCount": MILLION, "cachedContentTokenCount": MILLION, "thoughtsTokenCount": MILLION}, 10.5),
        ({"input_tokens": 5, "output_tokens": 5, "cost": {"total": 0.25}}, 0.25),  # the provider's own word counts
        ({"input_tokens": 0, "output_tokens": 0}, 0.0),
        ({"input_tokens": MILLION, "speed": "fast"}, None),
        ({"input_tokens": MILLION, "service_tier": "batch"}, None),
        ({"input_tokens": MILLION, "service_tier": "standard"}, 2.0),
    ],
)
def test_what_each_kind_of_token_costs(tmp_path, usage, cost):
    """Cached tokens have prices of their own, whatever the provider calls them; a tier without a price has no cost."""
    assert cost_of(tmp_path, usage) == (None if cost is None else pytest.approx(cost))


def test_a_long_request_and_a_speed_have_their_own_prices(tmp_path):
    long = {"above": 100, "input": 4, "output": 20}
    prices = PriceTable(
        "2026-01-01", {"m": {"input": 2, "output": 10, "long": long, "fast": {"input": 8, "output": 0}}}
    )
    assert cost_of(tmp_path / "a", {"input_tokens": 100, "output_tokens": 1}, prices) == pytest.approx(210 / MILLION)
    assert cost_of(tmp_path / "b", {"input_tokens": 101, "output_tokens": 1}, prices) == pytest.approx(424 / MILLION)
    assert cost_of(tmp_path / "c", {"input_tokens": 100, "speed": "fast"}, prices) == pytest.approx(800 / MILLION)
    unknown = PriceTable("2026-01-01", {"m": {"input": 2, "output": 10, "long": {"above": 100}}})
    assert cost_of(tmp_path / "d", {"input_tokens": 101}, unknown) is None


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("claude-opus-4-5", True),
        ("claude-opus-4-5-20251101", True),
        ("claude-opus-4-5@20251101", True),
        ("claude-opus-4-5[1m]", True),
        ("anthropic/claude-opus-4.5", True),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", True),
        ("gpt-5.2-2025-12-11", True),
        ("claude-opus-4-55", False),
        ("claude-opus", False),
        ("my-claude-opus-4-5", False),
        ("", False),
        ("<synthetic>", False),
    ],
)
def test_a_model_is_known_by_its_name_and_never_guessed(tmp_path, name, is_known):
    library = library_of(tmp_path, ({"input_tokens": 10, "output_tokens": 1}, {"model": name}))
    total = count_usage(library).total
    assert (total.cost_usd is not None) == is_known
    assert total.unpriced == (frozenset() if is_known else {name or "?"})


def test_a_sum_is_a_cost_only_if_every_row_has_a_price(tmp_path):
    usage = {"input_tokens": MILLION, "output_tokens": 0}
    library = library_of(
        tmp_path, (usage, {"model": "m"}), (usage, {"model": "other"}), (usage, {"model": "m", "n": 2})
    )
    found = count_usage(library, by=("model",), prices=PRICES)
    assert {row.key: row.cost_usd for row in found.rows} == {("m",): 4.0, ("other",): None}
    assert (found.total.cost_usd, found.total.known_cost_usd, {*found.total.unpriced}) == (None, 4.0, {"other"})


def test_a_reply_counts_once_with_its_final_figure(tmp_path):
    """Imported while it was written, it is on record twice: with what was counted so far, and whole."""
    begun = {"input_tokens": 10, "output_tokens": 1}
    library = library_of(tmp_path, (begun, {"model": "m", "response_id": "msg_1"}))
    (summary,) = library.list()
    with library.open(summary.id or "") as conversation:
        done = {"usage": {**begun, "output_tokens": 600}, "model": "m", "response_id": "msg_1"}
        conversation.replace_transcript([{"role": "assistant", "content": "Yes, all of it."}], extras=[done])
    total = count_usage(library, prices=PRICES).total
    assert (total.replies, total.input_tokens, total.output_tokens) == (1, 10, 600)
    assert total.cost_usd == pytest.approx((10 * 2 + 600 * 10) / MILLION)
    assert library.usage().total.output_tokens == 600


def test_a_branch_that_was_left_was_paid_for(tmp_path):
    """A rewind takes the reply out of the conversation; it stands in an event, and its tokens count."""
    left = {
        "message": {"role": "assistant", "content": "No."},
        "model": "m",
        "usage": {"input_tokens": 7, "output_tokens": 5},
    }
    library = library_of(tmp_path, ({"input_tokens": 1, "output_tokens": 2}, {"model": "m"}))
    (summary,) = library.list()
    with library.open(summary.id or "") as conversation:
        conversation.append_event({"left_branch": left})
    total = count_usage(library, prices=PRICES).total
    assert (total.replies, total.input_tokens, total.output_tokens) == (2, 8, 7)


def test_the_lines_of_a_streamed_reply_are_one_reply(tmp_path):
    """Claude Code writes a line a block, each with the usage so far."""
    lines = [
        {
            "type": "assistant",
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "sessionId": "s",
            "timestamp": f"2026-01-05T10:00:0{number}Z",
            "requestId": "r",
            "message": {
                "id": "msg_1",
                "role": "assistant",
                "model": "m",
                "content": [{"type": "text", "text": f"part {number}"}],
                "usage": {"input_tokens": 3, "output_tokens": output, "cache_read_input_tokens": 100},
            },
        }
        for number, output in enumerate((1, 1, 250))
    ]
    source = tmp_path / "s.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    library = ConversationLibrary(tmp_path / "library")
    assert [report.action for report in import_conversations([source], library)] == ["created"]
    total = count_usage(library, prices=PRICES).total
    assert (total.replies, total.input_tokens, total.cache_read_tokens, total.output_tokens) == (1, 103, 100, 250)


def codex(folder: Path, name: str, *lines: tuple[str, str, JSON]) -> Path:
    source = folder / f"rollout-2026-01-05T10-00-00-{name}.jsonl"
    said = [json.dumps({"timestamp": at, "type": kind, "payload": payload}) for at, kind, payload in lines]
    source.write_text("\n".join(said) + "\n")
    return source


def meta(name: str, at: str, **more: object) -> tuple[str, str, JSON]:
    return (
        at,
        "session_meta",
        {"id": name, "timestamp": at, "cwd": "/w", "originator": "codex", "cli_version": "0.130.0", **more},
    )


def reply(at: str, text: str = "ok") -> list[tuple[str, str, JSON]]:
    content = [{"type": "output_text", "text": text}]
    return [(at, "response_item", {"type": "message", "role": "assistant", "content": content})]


def counted(at: str, total: int | None, last: int | None) -> tuple[str, str, JSON]:
    def tokens(number: int) -> JSON:
        return {
            "input_tokens": number,
            "cached_input_tokens": number // 2,
            "output_tokens": 1,
            "total_tokens": number + 1,
        }

    info = {"total_token_usage": tokens(total)} if total is not None else None
    if info is not None and last is not None:
        info["last_token_usage"] = tokens(last)
    return at, "event_msg", {"type": "token_count", "info": info, "rate_limits": {}}


def codex_input(tmp_path: Path, *sources: Path) -> int:
    library = ConversationLibrary(tmp_path / "library")
    assert {report.action for report in import_conversations(sources, library)} == {"created"}
    return count_usage(library, prices=PRICES).total.input_tokens


def test_a_running_counter_counts_as_differences(tmp_path):
    """It repeats itself, is sent with rate limits alone, begins anew with each process, and counts a compaction that is no reply."""
    source = codex(
        tmp_path,
        "a",
        meta("a", "2026-01-05T10:00:00Z"),
        *reply("2026-01-05T10:00:05Z"),
        counted("2026-01-05T10:00:06Z", 100, 100),
        counted("2026-01-05T10:00:07Z", None, None),
        counted("2026-01-05T10:00:08Z", 100, 100),
        *reply("2026-01-05T10:01:00Z", "two"),
        counted("2026-01-05T10:01:01Z", None, None),
        counted("2026-01-05T10:01:02Z", 100, 100),
        counted("2026-01-05T10:01:03Z", 150, None),  # without what was last: the difference
        counted("2026-01-05T10:01:04Z", 180, 30),  # nobody replied: a compaction
        meta("a", "2026-01-05T11:00:00Z"),
        *reply("2026-01-05T11:00:05Z", "three"),
        counted("2026-01-05T11:00:06Z", 100, 100),  # the same total, of another process
    )
    assert codex_input(tmp_path, source) == 100 + 50 + 30 + 100


SPAWNED = {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "a"}}}}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("how", [{"forked_from_id": "a"}, {"parent_thread_id": "a"}, SPAWNED])
@pytest.mark.parametrize(
    "repeated_at", ["2026-01-05T12:00:00.00", "2026-01-05T10:00:0"], ids=["written anew", "as it was"]
)
def test_a_fork_counts_what_it_took_itself(tmp_path, how, repeated_at):
    """It repeats all that its parent said and counted: at once with new times, or with the old ones."""
    parent = codex(
        tmp_path,
        "a",
        meta("a", "2026-01-05T10:00:00Z"),
        *reply("2026-01-05T10:00:05Z"),
        counted("2026-01-05T10:00:06Z", 100, 100),
    )
    fork = codex(
        tmp_path,
        "b",
        meta("b", "2026-01-05T12:00:00.000Z", **how),
        meta("a", f"{repeated_at}1Z"),
        *reply(f"{repeated_at}2Z"),
        counted(f"{repeated_at}3Z", 100, 100),
        *reply("2026-01-05T12:00:07Z", "more"),
        counted("2026-01-05T12:00:08Z", 140, 40),
    )
    assert codex_input(tmp_path, parent, fork) == 140


def test_what_a_fork_took_along_counts_in_the_original(tmp_path):
    """ccusage/ccusage#1780, #1634 and Kilo-Org/kilocode#11034: the copies keep their times, so both began at the same moment."""
    library = ConversationLibrary(tmp_path)
    said, reply, at = (
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Yes."},
        "2026-01-05T10:00:00.000000Z",
    )
    original, fork = "f0000000-0000-4000-8000-000000000000", "10000000-0000-4000-8000-000000000000"
    for own, labels, more in ((original, {}, 0), (fork, {"forked_from": "ses_1"}, 1)):
        extras = [None, {"usage": {"input_tokens": 100, "output_tokens": 5}}]
        extras += [{"usage": {"input_tokens": 40, "output_tokens": 5}}] * more
        with library.create(
            id=own, labels=labels, messages=[said, reply, *[reply] * more], extras=extras, times=[at] * len(extras)
        ):
            pass
    sums = {total.key: total.input_tokens for total in count_usage(library, by=["session"]).rows}
    assert sums == {(original,): 100, (fork,): 40}


def test_sub_agents_count_with_their_parent_or_alone(tmp_path):
    folder = tmp_path / "projects/p"
    (folder / "s/subagents").mkdir(parents=True)

    def write(path: Path, message: str, **more: object) -> None:
        usage = {"input_tokens": 10, "output_tokens": 1}
        said = {
            "id": message,
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "x"}],
            "usage": usage,
        }
        at = "2026-01-05T10:00:00Z"
        line = {
            "type": "assistant",
            "uuid": message,
            "parentUuid": None,
            "timestamp": at,
            "cwd": "/home/ada/shop",
            "message": said,
        }
        path.write_text(json.dumps({**line, "sessionId": "s", **more}) + "\n")

    write(folder / "s.jsonl", "msg_1")
    write(folder / "s/subagents/agent-a1.jsonl", "msg_2", isSidechain=True, agentId="a1")
    library = ConversationLibrary(tmp_path / "library")
    assert {report.action for report in import_conversations([tmp_path / "projects"], library)} == {"created"}
    together = count_usage(library, by=("program", "project", "session"), prices=PRICES)
    assert [(row.key[:2], row.replies) for row in together.rows] == [(("claude-code", "/home/ada/shop"), 2)]
    alone = count_usage(library, by=("session",), prices=PRICES, subagents_alone=True)
    assert [row.replies for row in alone.rows] == [1, 1]
    assert together.total.input_tokens == alone.total.input_tokens == 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a table of prices"),
        ('{"models": {}}', "has no date"),
        ('{"date": "2026-01-01", "models": {"m": 3}}', "m: the prices of a model are an object"),
        ('{"date": "2026-01-01", "models": {"m": {"input": -1}}}', "`input` must be a number from 0"),
        ('{"date": "2026-01-01", "models": {"m": {"long": {"output": "3"}}}}', "m: long: `output` must be"),
        (None, "cannot be read"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, text, said):
    table = tmp_path / "prices.json"
    if text is not None:
        table.write_text(text)
    with pytest.raises(UnusablePricesError, match=said):
        read_prices(table)


def test_the_table_that_comes_with_it_is_one(tmp_path):
    """It has a date, and every price is written as a user's own table would have it."""
    table = tmp_path / "prices.json"
    table.write_text(json.dumps({"date": bundled_prices().date, "models": JSON(bundled_prices().models)}))
    assert read_prices(table) == bundled_prices()
    assert bundled_prices().date[:2] == "20"


SHARED = os.environ.get("TRANSCRIPT_STORE_SHARED")
WILD = Path(SHARED or "nowhere", "corpora/wild")
SESSIONS = sorted([*WILD.glob("claudecode/*.jsonl"), *WILD.glob("codex/ir-*.jsonl"), *WILD.glob("pi/ir-*.jsonl")])


def lines_of(source: Path) -> list[JSON]:
    found = []
    for line in source.read_text(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found.append(value if isinstance(value, dict) else {})
    return found


def plainly_counted(source: Path) -> tuple[int, int]:
    """Input and output of a file, counted in another way: of Claude Code the largest figure of each message id; of Codex the highest
    running total of each session that the file has.
    """
    if source.parent.name == "claudecode":
        replies: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for line in lines_of(source):
            message = line.get("message")
            if isinstance(message, dict) and isinstance(usage := message.get("usage"), dict):
                counts = [
                    usage.get(n) or 0
                    for n in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
                ]
                replies[message["id"]] = max(replies[message["id"]], (sum(counts), usage["output_tokens"]))
        return sum(taken for taken, _ in replies.values()), sum(given for _, given in replies.values())
    if source.parent.name == "pi":
        said = [line["message"] for line in lines_of(source) if line.get("type") == "message"]
        used = [message["usage"] for message in said if message.get("usage")]
        taken = sum(usage["input"] + usage["cacheRead"] + usage["cacheWrite"] for usage in used)
        return taken, sum(usage["output"] for usage in used)
    totals: list[tuple[int, int]] = []
    for line in lines_of(source):
        payload = line.get("payload") or {}
        if line.get("type") == "session_meta" and (not totals or totals[-1] != (0, 0)):
            totals = [] if payload.get("forked_from_id") else totals  # its counter goes on from there
            totals.append((0, 0))
        elif payload.get("type") == "token_count" and (total := (payload.get("info") or {}).get("total_token_usage")):
            totals[-1] = max(totals[-1], (total["input_tokens"], total["output_tokens"]))
    return sum(taken for taken, _ in totals), sum(given for _, given in totals)


@pytest.mark.skipif(SHARED is None, reason="TRANSCRIPT_STORE_SHARED is not set")
@pytest.mark.sampled(every=19)
@pytest.mark.parametrize("source", SESSIONS, ids=lambda path: path.name[:40])
def test_real_sessions_counted_in_another_way(tmp_path, source):
    library = ConversationLibrary(tmp_path)
    list(import_conversations([source], library, empty=True))
    total = count_usage(library).total
    assert (total.input_tokens, total.output_tokens) == plainly_counted(source)
