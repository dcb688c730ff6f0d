"""`demo`: an agent is killed again and again, and its records are compared with the acknowledgements.

A demonstration that cannot fail shows nothing. So it is also run with agents that lie, lose, die or do nothing, and must
say so each time.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.cli.helpers import Cli
from transcript_store import ConversationStore, verify
from transcript_store.cli import demo
from transcript_store.cli._demo_agent import appended_behind, work
from transcript_store.cli.demo import AGENT, DemoFailedError, Trial, TrialCounts


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where a demo without --directory puts its own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def numbers(out: str) -> dict[str, str]:
    """The closing table."""
    return dict(re.findall(r"^  (\S.*?)  +(\S.*?) *$", out, re.MULTILINE))


def test_nothing_is_lost(cli: Cli, temporary: Path) -> None:
    """A short demo: agents were killed, messages were acknowledged, none was lost; the conversation is removed, and it says so."""
    code, out, err = cli("demo", "--rounds", "2", "--seed", "1")
    assert (code, err) == (0, "")
    table = numbers(out)
    assert table["kills (SIGKILL)"] == "2"
    assert int(table["messages acknowledged"].replace(",", "")) > 0
    assert table["acknowledged and lost"] == "0"
    assert float(table["latency of a durable append of up to 4 kB, p50"].removesuffix(" ms")) > 0
    assert float(table["and p99"].removesuffix(" ms")) > 0
    assert "--seed 1" in out
    assert "Every acknowledged message is stored" in out
    assert f"was removed from {temporary}" in out
    assert "What this does not show: SIGKILL ends a process, not the machine." in out
    assert list(temporary.iterdir()) == []


def test_the_conversation_can_be_kept(cli: Cli, tmp_path: Path) -> None:
    """--directory leaves the conversation there, whole; a place where there is something is refused."""
    directory = str(tmp_path / "kept")
    code, out, _ = cli("demo", "--rounds", "1", "--seed", "2", "--directory", directory)
    assert code == 0
    assert f"is left in {directory}" in out
    assert verify(directory).is_intact
    code, out, err = cli("demo", "--rounds", "1", "--directory", directory)
    assert (code, out) == (1, "")
    assert "needs a new directory" in err


def test_interrupted(cli: Cli, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle removes what was written."""

    def interrupted(trial: Trial, progress: object) -> TrialCounts:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "run", interrupted)
    assert cli("demo", "--rounds", "1").code == 130
    assert list(temporary.iterdir()) == []


# ---- demos that must fail -----------------------------------------------------------------------------------------

SAYS_ONLY = """
import sys, time
from transcript_store.cli._demo_agent import appended_behind
number = 0
print("continues after 0", flush=True)
while True:
    number += len(appended_behind(number, int(sys.argv[2])))
    print("stored", number, "in 5", flush=True)
    time.sleep(0.001)
"""
WITH_A_STORE_THAT = """
import os, sys, time
from transcript_store.cli._demo_agent import ConversationStore, work
{lie}
def say(line):
    {meanwhile}
    os.write(1, (line + "\\n").encode())
    time.sleep(0.001)
work(sys.argv[1], int(sys.argv[2]), say)
"""
SKIPS_ONE = WITH_A_STORE_THAT.format(
    lie="""
store, count = ConversationStore.append_message, 0
def lossy(self, message):
    global count
    count += 1
    return store(self, message) if count != 2 else None
ConversationStore.append_message = lossy
""",
    meanwhile="pass",
)
HALF_A_BATCH = WITH_A_STORE_THAT.format(
    lie="""
store = ConversationStore.append_messages
ConversationStore.append_messages = lambda self, messages: store(self, messages[:-1])
""",
    meanwhile="pass",
)
DAMAGES = WITH_A_STORE_THAT.format(
    lie="", meanwhile="line[0] == 's' and open(sys.argv[1] + '/metadata.json', 'w').write('gone')"
)
ENDS = "import sys; sys.exit('no wish to go on')"
ENDS_SILENTLY = "print('ready')"
OUT_OF_ORDER = "import time; print('continues after 0' + 20 * '\\nstored 99 in 5', flush=True); time.sleep(60)"
SILENT = "import time; print('continues after 0', flush=True); time.sleep(60)"


def tried(directory: Path, script: str, *, rounds: int = 4) -> TrialCounts:
    """A trial with another agent."""
    return Trial(str(directory), rounds=rounds, seed=1, agent=(sys.executable, "-c", script)).run(lambda _: None)


def test_an_agent_that_lies(tmp_path: Path) -> None:
    """An agent that acknowledges what it never stored: everything it acknowledged is lost."""
    tally = tried(tmp_path / "c", SAYS_ONLY)
    assert tally.lost > 0
    assert tally.problem is not None
    assert tally.problem.startswith(f"only the first 0 of {tally.lost} acknowledged messages are stored in order")


@pytest.mark.parametrize("script", [SKIPS_ONE, HALF_A_BATCH], ids=["one message", "half a batch"])
def test_an_agent_that_loses(tmp_path: Path, script: str) -> None:
    """A single message that is missing in the middle is noticed."""
    tally = tried(tmp_path / "c", script, rounds=20)
    assert tally.problem is not None
    assert "acknowledged messages are stored in order" in tally.problem
    assert tally.lost > 0


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (DAMAGES, "metadata.json"),
        (ENDS, "ended by itself before it was killed: no wish to go on"),
        (ENDS_SILENTLY, "ended by itself before it was killed: exit code 0"),
        (OUT_OF_ORDER, "out of their order"),
        (SILENT, "did nothing"),
    ],
)
def test_agents_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str) -> None:
    """Damage, an agent that ends, one that acknowledges nonsense and one that hangs each end the trial with their reason."""
    monkeypatch.setattr(demo, "PATIENCE_SECONDS", 0.5 if script == SILENT else 60)
    tally = tried(tmp_path / "c", script)
    assert tally.problem is not None
    assert problem in tally.problem


def test_nothing_tried_is_a_failure(tmp_path: Path) -> None:
    """No kill, or no acknowledgement, is not a success."""
    tally = Trial(str(tmp_path / "c"), rounds=0, seed=1).run(lambda _: None)
    assert tally.problem == "nothing was acknowledged, so nothing was tested"


def test_a_failure_is_said(cli: Cli, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo that finds a loss is exit code 1, says what, and leaves the conversation to be looked at."""
    agent = (sys.executable, "-c", SKIPS_ONE)
    monkeypatch.setattr(demo, "Trial", functools.partial(Trial, agent=agent))
    code, out, err = cli("demo", "--rounds", "20", "--seed", "1")
    assert code == 1
    assert err.startswith("transcript-store: the demo failed: only the first ")
    assert int(numbers(out)["acknowledged and lost"]) > 0
    assert "Every acknowledged message is stored" not in out
    assert f"is left in {temporary}" in out
    (folder,) = temporary.iterdir()
    assert (folder / "conversation" / "transcript.jsonl").exists()


# ---- the agent and the trial --------------------------------------------------------------------------------------


def test_messages_follow_from_the_seed() -> None:
    """What is appended is the same each time, and of all kinds: that is what makes the comparison exact."""
    first, again, other = ([appended_behind(n, seed) for n in range(60)] for seed in (1, 1, 2))
    assert first == again != other
    sizes = [sum(len(message["content"]) for message in messages) for messages in first]
    assert min(sizes) < 4000
    assert max(sizes) > 1_000_000
    assert any(len(messages) > 1 for messages in first)


def test_the_agent_does_what_it_says(tmp_path: Path) -> None:
    """The agent acknowledges each append after the store has it, and goes on where it was killed."""

    class KilledError(Exception):
        pass

    done: list[str] = []

    def say(line: str) -> None:
        done.append(line)
        if len(done) in (31, 62):
            raise KilledError

    for _ in range(2):
        with pytest.raises(KilledError):
            work(str(tmp_path / "c"), 1, say)
    expected: list[dict[str, object]] = []
    numbers = []
    for _ in range(60):
        expected += appended_behind(len(expected), 1)
        numbers.append(len(expected))
    assert [int(line.split()[1]) for line in done if line.startswith("stored")] == numbers
    assert done[0] == "continues after 0"
    assert done[31] == f"continues after {numbers[29]}"
    with ConversationStore(tmp_path / "c", read_only=True) as store:
        store.load()
        assert store.get_messages() == expected


def test_an_unanswered_append_may_be_there(tmp_path: Path) -> None:
    """The call that was under way when the kill came may have stored all of its messages; a part of them, or more, is a fault."""
    seed = next(seed for seed in range(99) if len(appended_behind(0, seed)) > 1)
    messages = appended_behind(0, seed)
    for stored, is_whole in ((messages, True), (messages[:-1], False), ([*messages, *messages], False), ([], True)):
        trial = Trial(str(tmp_path / str(len(stored))), rounds=1, seed=seed)
        with ConversationStore(tmp_path / str(len(stored))) as store:
            store.initialize(messages=stored)
        with nullcontext() if is_whole else pytest.raises(DemoFailedError, match="of 0 acknowledged messages"):
            trial.look(may_have_more=True)


def test_findings_fail_the_trial(tmp_path: Path) -> None:
    """The last look verifies the whole folder: damage in the archive is a failure, though the messages are all there."""
    directory = tmp_path / "c"
    with ConversationStore(directory) as store:
        store.initialize(messages=[{"n": 1}])
        store.replace_transcript([])
    archived = directory / "archive" / "transcript-000000.jsonl"
    archived.write_bytes(archived.read_bytes().replace(b'"n":1', b'"n":2'))
    trial = Trial(str(directory), rounds=0, seed=1)
    trial.tally.kills = trial.tally.acknowledged = 1
    trial.run(lambda _: None)
    assert trial.tally.problem is not None
    assert "transcript-000000.jsonl" in trial.tally.problem


def test_the_closing_table() -> None:
    """Numbers on the right, percentiles in milliseconds; without two latencies there are no percentiles."""
    table = numbers("\n".join(TrialCounts(kills=1234, latencies_us=[*range(1000, 102_000, 1000)]).lines()))
    assert table["kills (SIGKILL)"] == "1,234"
    assert table["latency of a durable append of up to 4 kB, p50"] == "51.00 ms"
    assert table["and p99"] == "100.00 ms"
    assert len(TrialCounts(latencies_us=[5]).lines()) == 4


def test_the_agent_is_this_python() -> None:
    """The agent runs under the interpreter that runs the demo."""
    assert AGENT[0] == sys.executable
    assert json.dumps(AGENT)
