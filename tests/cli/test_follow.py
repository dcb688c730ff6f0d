"""`show --follow`: what other processes append, every record once and in order, whatever happens to them."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND, ENVIRONMENT, conversation
from transcript_store import ConversationLibrary, ConversationStore

WRITER = """
    import itertools, random, sys
    from transcript_store import ConversationStore
    choose = random.Random(int(sys.argv[2]))
    with ConversationStore(sys.argv[1], durability="process-crash", lock_timeout_seconds=30) as store:
        store.load()
        for n in itertools.count():
            print(n, flush=True)
            match choose.randrange(8):
                case 0:
                    store.replace_transcript(store.get_messages(last=3) + [{"replaced": n}])
                case 1:
                    store.append_messages([{"batch": [n, k]} for k in range(choose.randrange(1, 5))])
                case 2:
                    store.append_event({"event": n})
                case _:
                    store.append_message({"n": n, "text": "x" * choose.choices([5, 500, 50_000], [10, 10, 1])[0]})
"""


@contextmanager
def follower(directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "show", str(directory), "--follow", *options]
    with (directory.parent / "errors").open("w") as errors:  # a pipe that nobody reads would stop it
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_until(process: subprocess.Popen[str], last: str) -> list[str]:
    """What a follower prints, up to the line with these words."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if last in line:
            return lines
    raise AssertionError(f"it ended before {last!r}")


def all_records(directory: Path) -> list[tuple[int, int, object, object]]:
    """Every record of every generation, as the archive and the live transcript have them."""
    with ConversationStore(directory, read_only=True) as store:
        store.load()
        return [
            (generation.number, record.seq, record.message, record.extra)
            for generation in store.generations()
            for record in store.get_records(generation=generation.number)
        ]


def follow_a_writer_that_is_killed(directory: Path, kills: int, seed: int) -> None:
    conversation(directory, [{"n": -1}])
    choose = random.Random(seed)
    with follower(directory, "--json") as process:
        lines = lines_until(process, '{"n": -1}')
        for number in range(kills):
            command = [sys.executable, "-c", textwrap.dedent(WRITER), str(directory), str(seed + number)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as writer:
                assert writer.stdout is not None
                for _ in range(choose.randrange(30, 90)):  # what it did, not how long it took: it may not have begun
                    assert writer.stdout.readline()
                writer.kill()
        with ConversationStore(directory) as store:
            store.load()
            store.append_message({"end": True})
        shown = [json.loads(line) for line in [*lines, *lines_until(process, '{"end": true}')]]
    expected = all_records(directory)
    found = [(one["generation"], one["seq"], one["message"], one["extra"]) for one in shown]
    assert found == expected, f"seed {seed}"
    generations = {generation for generation, *_ in expected}
    print(f"{len(expected)} records, {len(generations)} generations, {kills} kills")
    assert len(generations) > 3, "hardly anything was replaced: this proves too little"


def test_a_writer_that_appends_and_replaces_and_is_killed(tmp_path: Path) -> None:
    """P12: beside a writer that appends, batches, replaces and is killed, every record is shown once, in order."""
    follow_a_writer_that_is_killed(tmp_path / "c", kills=2, seed=7)


@pytest.mark.long
@pytest.mark.parametrize("seed", [100, 200])
def test_a_writer_that_is_killed_many_times(tmp_path: Path, seed: int) -> None:
    """P12: the same through many more kills."""
    follow_a_writer_that_is_killed(tmp_path / "c", kills=15, seed=seed)


def test_for_a_person(tmp_path: Path) -> None:
    """What is there is shown at once, what comes as it comes, a replace and the deletion with a line of their own."""
    library = ConversationLibrary(tmp_path)
    with library.create(
        messages=[{"role": "user", "content": "first"}, {"role": "user", "content": "second"}]
    ) as store:
        directory = Path(store.directory)
        with follower(directory, "--last", "1") as process:
            before = "".join(lines_until(process, "second"))
            assert "    first" not in before
            store.append_message({"role": "user", "content": "third"})
            lines_until(process, "third")
            store.append_message({"role": "user", "content": "fourth"})
            store.replace_transcript([{"role": "user", "content": "instead"}])
            after = "".join(lines_until(process, "instead"))
            assert after.index("fourth") < after.index("-- the transcript was replaced: generation 1 starts")
            store.replace_transcript([])
            store.replace_transcript([{"role": "user", "content": "later"}])
            store.delete_generation(2)
            rest = "".join(lines_until(process, "later"))
            assert "generation 3 starts" in rest
            store.close()
            library.delete(directory.name)
            lines_until(process, "-- the conversation was deleted")
            assert process.wait(60) == 0


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    """Ctrl-C stops with exit code 130 and no traceback."""
    with follower(Path(conversation(tmp_path / "c", [{"n": 1}]))) as process:
        lines_until(process, '"n"')
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert (tmp_path / "errors").read_text() == ""


def test_an_older_copy_put_in_place(tmp_path: Path) -> None:
    """When a backup is put over the conversation, that is said, and what comes then is shown."""
    directory = tmp_path / "c"
    with ConversationStore(directory) as store:
        store.initialize(messages=[{"n": 1}, {"n": 2}])
        old = {name: (directory / name).read_bytes() for name in ("metadata.json", "transcript.jsonl")}
        store.append_message({"n": 3})
    with follower(directory) as process:
        lines_until(process, '{"n": 3}')
        for name, content in old.items():
            (directory / "new").write_bytes(content)
            (directory / "new").replace(directory / name)
        lines_until(process, "-- an older copy of the conversation was put in its place")
        with ConversationStore(directory) as store:
            store.load()
            store.append_message({"n": 4})
        lines_until(process, '{"n": 4}')
