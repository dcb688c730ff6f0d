"""What a turn costs beside a lock that is held: ``python -m benchmarks.turns [--rounds 300] [--directory /dev/shm]``.

Everything is done in turn, round by round, on one disk, with appends that are synced, so that whoever else is at work disturbs
all alike. Printed is the 10th percentile of the processor time of a call, in microseconds: what waits for a disk is not in it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transcript_store import ConversationStore

MESSAGE = {"role": "user", "content": "x" * 1000}
CALLS = 4
"""So many are timed together: a look at the clock is not free either."""


def stores(directory: Path, count: int) -> dict[str, Callable[[], object]]:
    """What is measured at a conversation of so many messages; each at one of its own."""

    def made(name: str, **options: Any) -> ConversationStore:
        store = ConversationStore(directory / name, **options)
        if not store.exists():
            store.initialize(messages=[MESSAGE] * count)
        store.load(verify="tail")
        return store

    held = made("held")
    turns = made("turns", hold_lock=False)
    read = made("read", hold_lock=False)
    one, other = made("shared", hold_lock=False), made("shared", hold_lock=False)
    made("opened").close()

    def open_append_close() -> None:
        with ConversationStore(directory / "opened") as store:
            store.load(verify="tail")
            store.append_message(MESSAGE)

    def after_another() -> None:
        one.append_message(MESSAGE)
        other.append_message(MESSAGE)

    return {
        "append, lock held": lambda: held.append_message(MESSAGE),
        "append, in a turn": lambda: turns.append_message(MESSAGE),
        "get_messages(last=1), lock held": lambda: held.get_messages(last=1),
        "get_messages(last=1), in a turn": lambda: read.get_messages(last=1),
        "two appends, each after the other process's": after_another,
        "open, append, close": open_append_close,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--directory", help="where to measure; a temporary directory of the system's if it is not said")
    given = parser.parse_args()
    rounds = given.rounds
    for count in (10, 1_000, 20_000):
        with tempfile.TemporaryDirectory(dir=given.directory) as directory:
            measured = stores(Path(directory), count)
            took: dict[str, list[float]] = {name: [] for name in measured}
            for _ in range(rounds):
                for name, call in measured.items():
                    begin = time.process_time_ns()
                    for _ in range(CALLS):
                        call()
                    took[name].append((time.process_time_ns() - begin) / CALLS / 1000)
            for name, each in took.items():
                print(f"{count:>6} messages  {name:<45} {sorted(each)[rounds // 10]:9.1f} µs")


if __name__ == "__main__":
    main()
