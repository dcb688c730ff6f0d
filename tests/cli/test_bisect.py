"""``bisect``: the first message after which a command fails, in few runs, and no answer where there is none."""

from __future__ import annotations

import json
import shlex
import sys
from math import ceil, log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.helpers import Cli
from tests.kit.messages import user_message
from transcript_store import ConversationStore
from transcript_store.cli.bisect import VARIABLE, Answer, search

# ---- the search ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 3000).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count))))
def test_the_first_is_found_in_few_questions(case: tuple[int, int]) -> None:
    count, first = case
    found = search(count, lambda number: "fails" if number >= first else "passes")
    assert (found.passes, found.fails, found.is_first, found.against) == (first - 1, first, True, None)
    assert len(found.answers) <= 2 * ceil(log2(count + 1)) + 3


@given(st.lists(st.sampled_from(["passes", "fails", "skipped"]), min_size=1, max_size=40))
def test_whatever_the_answers_are_nothing_is_said_that_they_do_not_hold(answers: list[Answer]) -> None:
    found = search(len(answers) - 1, lambda number: answers[number])
    assert all(answers[number] == answer for number, answer in found.answers.items())
    if found.fails is None:
        assert answers[-1] != "fails"
    elif found.passes is None:
        assert answers[0] == "fails"
    else:
        assert answers[found.fails] == "fails"
        assert found.passes == 0 or answers[found.passes] == "passes"
        assert set(answers[found.passes + 1 : found.fails]) <= {"skipped"}
        monotone = [answer for answer in answers if answer != "skipped"]
        if monotone == sorted(monotone, key="passes fails".index):
            assert found.against is None


def test_answers_that_are_not_monotone_are_noticed() -> None:
    found = search(1000, lambda number: "fails" if 100 <= number < 400 or number >= 700 else "passes")
    assert found.against is not None


def test_bisect_skips_prefixes_that_cannot_be_tested() -> None:
    found = search(12, lambda number: "passes" if number < 5 else "skipped" if number < 8 else "fails")
    assert (found.passes, found.fails, found.is_first) == (4, 8, False)


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def today(tmp_path: Path) -> Path:
    """Thirty messages with an event before each; the one that says `needle` is the twentieth, record 40."""
    with ConversationStore(tmp_path / "today") as conversation:
        conversation.initialize()
        for number in range(1, 31):
            conversation.append_event({"number": number})
            conversation.append_message(user_message("needle" if number == 20 else f"hay {number}"))
    return tmp_path / "today"


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "check.py"
    path.write_text(
        "import os, sys\nfrom pathlib import Path\n"
        f"directory = sys.argv[-1]\nassert directory == os.environ[{VARIABLE!r}]\n"
        "transcript = Path(directory, 'transcript.jsonl').read_text()\n"
        f"number = sum('\"message\"' in line for line in transcript.splitlines())\n{text}"
    )
    return ["--", sys.executable, str(path)]


def test_the_message_is_named_with_the_command_that_shows_it(cli: Cli, today: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in today.rglob("*") if path.is_file()}
    done = cli("bisect", str(today), *script(tmp_path, "sys.exit('needle' in transcript)"))
    *_, found, show = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert found.startswith("#40 is the first message after which it fails (")
    assert "needle" in cli(*shlex.split(show)[1:]).out
    assert {path: path.read_bytes() for path in today.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_each_beginning_is_a_conversation_of_its_own(cli: Cli, today: Path, tmp_path: Path) -> None:
    """The check may verify it, and write to it."""
    text = (
        "from transcript_store import ConversationStore\n"
        "with ConversationStore(directory) as conversation:\n"
        "    conversation.load()\n"
        "    conversation.append_message({'role': 'user', 'content': 'from the check'})\n"
        "sys.exit('needle' in transcript)"
    )
    done = cli("bisect", str(today), "--json", *script(tmp_path, text))
    found = json.loads(done.out)
    assert (found["first_seq"], found["passes_after"], found["is_monotone"]) == (40, 38, True)
    assert found["answers"]["0"] == "passes"
    assert found["answers"]["60"] == "fails"
    assert cli("verify", str(today)).code == 0


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sys.exit(0)", "with all messages it passes"),
        ("sys.exit(125)", "with all messages it cannot be tested"),
        ("sys.exit(1)", "it fails without any message"),
        ("sys.exit(number >= 20 or 3 <= number < 12)", "the answers are not monotone"),
        ("sys.exit(125 if 18 <= number < 22 else number >= 20)", "it is one of #36 to #44"),
    ],
    ids=["never", "not to be tested", "always", "not monotone", "skipped"],
)
def test_where_there_is_no_first_message_that_is_said(
    cli: Cli, today: Path, tmp_path: Path, text: str, said: str
) -> None:
    done = cli("bisect", str(today), *script(tmp_path, text))
    assert done.code == 1
    assert said in done.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sys.exit(128)", "ended with 128, which is not an answer"),
        ("os.kill(os.getpid(), 9)", "was killed by signal 9, which is not an answer"),
    ],
)
def test_an_end_that_is_no_answer_stops_it(cli: Cli, today: Path, tmp_path: Path, text: str, said: str) -> None:
    done = cli("bisect", str(today), *script(tmp_path, text))
    assert done.code == 1
    assert said in done.err


def test_a_command_that_is_not_there_is_misuse(cli: Cli, today: Path) -> None:
    done = cli("bisect", str(today), "--", "./no-such-command")
    assert done.code == 2
    assert "./no-such-command cannot be run" in done.err
