"""Aider's Markdown: a run is a session; what begins with ``>`` is the program's, unless the model quotes somebody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.of_others import Bytes, assert_nothing_is_lost, few_or_many_seeds, original
from tests.formats.of_programs import READER, made, plans_at, said
from transcript_store import ConversationLibrary
from transcript_store.formats import SessionPlan
from transcript_store.importing import import_conversations
from transcript_store.testing import check_format

STARTED = """
# aider chat started at 2026-11-27 09:48:53

> /usr/bin/aider --model openai/large notes.txt\x20\x20
> Model: openai/large with diff edit format\x20\x20

"""
RUN = (
    STARTED
    + """#### Fix it\x20\x20
#### > a quoted line\x20\x20
#### #### a heading\x20\x20

As Ada said:

> I quote her.

I set the pears to 6.

> Tokens: 2.4k sent, 35 received.\x20\x20
> Applied edit to notes.txt\x20\x20
> # 1 SEARCH/REPLACE block failed to match!

## SearchReplaceNoExactMatch
plums: 1
etc\x20\x20

I set the plums.

> Tokens: 2.5k sent, 32 received.\x20\x20

#### /model openai/small\x20\x20
> Main model: openai/small with diff edit format\x20\x20

#### /clear\x20\x20
> All chat history cleared.\x20\x20

#### After it?\x20\x20

Yes.
"""
)


def plans_of(text: str) -> list[SessionPlan]:
    plans = list(READER["aider"].plans(Bytes(text.encode())))
    for plan in plans:
        assert_nothing_is_lost(plan)
    return plans


@few_or_many_seeds
def test_the_contract(seeds):
    check_format(READER["aider"], [RUN.encode(), (RUN + STARTED + "#### Once more  \n").encode()], seeds=seeds // 2)


def test_a_complete_run_is_read():
    (plan,) = plans_of(RUN)
    assert original(plan) == RUN.encode()
    assert said(plan, 0) == [
        "user: Fix it\n> a quoted line\n#### a heading",
        "assistant: As Ada said:\n\n> I quote her.\n\nI set the pears to 6.",
        "assistant: I set the plums.",
        "user: /model openai/small",
    ]
    assert said(plan) == ["user: After it?", "assistant: Yes."]
    replies = [entry.extra for entry in plan.generations[0]() if "usage" in entry.extra]
    assert [one["usage"] for one in replies] == [
        {"input_tokens": 2400, "output_tokens": 35},
        {"input_tokens": 2500, "output_tokens": 32},
    ]
    assert plan.model == "openai/small"


@pytest.mark.parametrize("cut", ["^C again to exit  \n\nword0 word1", ""])
def test_a_reply_that_was_stopped_is_what_was_written_of_it(cut):
    (plan,) = plans_of(f"{STARTED}#### A story  \n{'> ' + cut if cut else ''}")
    assert said(plan) == ["user: A story", *(["assistant: word0 word1"] if cut else [])]


def test_each_run_is_a_session_and_only_the_last_one_grows(tmp_path: Path):
    library = ConversationLibrary(tmp_path / "library")
    file = tmp_path / ".aider.chat.history.md"
    (tmp_path / ".aider.input.history").write_text(
        "\n# 2026-11-27 09:48:59.5\n+Hello\n\n# 2026-11-27 09:48:59.5\n+Hello\n"
    )
    file.write_text(f"{STARTED}#### Hello  \n")
    (first,) = import_conversations([tmp_path], library)
    file.write_text(f"{STARTED}#### Hello  \n\nHi.\n\n> Tokens: 10 sent, 2 received.  \n")
    (grown,) = import_conversations([tmp_path], library)
    assert (first.action, grown.action, grown.id) == ("created", "grew", first.id)
    with file.open("a") as appended:
        appended.write(STARTED.replace("09:48", "10:00") + "#### Again  \n")
    old, new = import_conversations([tmp_path], library)
    assert (old.action, old.id, new.action) == ("unchanged", first.id, "created")
    assert first.id is not None
    with library.open(first.id, read_only=True) as store:
        said_at = [record.at for record in store.iter_records() if record.message]
        assert store.get_metadata().labels["cwd"] == str(tmp_path)
    assert said_at[0].startswith("2026-11-27T09:48:59.5")


def test_what_0_86_2_wrote():
    (path,) = made("aider", "0.86.2")
    plans = plans_at(path)
    assert len(plans) == 8
    (failed,) = [plan for plan in plans if "#badedit" in said(plan)[0]]
    assert len(said(failed)) == 5
    assert all("SearchReplaceNoExactMatch" not in one for one in said(failed))
    (long,) = [plan for plan in plans if len(plan.generations) == 2]
    assert said(long) == [
        "user: #short After it?",
        "assistant: Apples and pears in a short note",
        "user: /save saved.txt",
        "user: /exit",
    ]
    (stopped,) = [plan for plan in plans if "another story" in said(plan)[0]]
    assert said(stopped)[1].startswith("assistant: word0 word1")
