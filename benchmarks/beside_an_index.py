"""F11: what an append costs while an index reads its conversation, beside one at the same moment that no index reads.

``python -m benchmarks.beside_an_index`` has two libraries and an index in another process that updates itself without a pause. One
process appends to both in turns: what is at work on the machine, the index among it, slows both alike, so the ratio has what the
index does to the conversation that it reads and nothing else. Halfway the index changes sides, and so does which one begins.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from benchmarks.searching import said
from transcript_store import ConversationLibrary, ConversationStore

_INDEXING = """
import sys
from transcript_store.search import SearchIndex
with SearchIndex(sys.argv[1], cache=sys.argv[2]) as index:
    index.update()
    print(0, flush=True)
    updates = 0
    while True:
        index.update()
        updates += 1
        if updates % 10 == 0:
            print(updates, flush=True)
"""

_TIMES: dict[Literal["power-loss", "process-crash"], int] = {"power-loss": 1, "process-crash": 20}
"""How many times as many appends are measured: what is not synced takes a tenth of the time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--appends",
        type=int,
        default=4000,
        help="to each of the two; 20 times as many without a sync (default: %(default)s)",
    )
    parser.add_argument(
        "--conversations", type=int, default=100, help="beside it in its library (default: %(default)s)"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        libraries = [filled(Path(folder, name), arguments.conversations) for name in ("one", "other")]
        for durability, times in _TIMES.items():
            ratios: list[float] = []
            with (
                ConversationStore(libraries[0] / durability, durability=durability) as one,
                ConversationStore(
                    libraries[1] / durability,
                    durability=durability,
                ) as other,
            ):
                for store in (one, other):
                    store.initialize(provider="claude")
                for read, alone, library in ((one, other, libraries[0]), (other, one, libraries[1])):
                    with indexing(library, Path(folder, f"cache-{durability}")):
                        ratios += by_turns(read, alone, arguments.appends * times // 2)
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(
                f"{durability}: an append beside an index takes {middle:.3f} x one without ({low:.3f} to {high:.3f}); "
                f"{len(ratios)} blocks of {_BLOCK} pairs; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
            )


_BLOCK = 50


def by_turns(read: ConversationStore, alone: ConversationStore, appends: int) -> list[float]:
    """The ratios of the medians of blocks: appends to what the index reads, beside those to what it does not."""
    ratios = []
    for block in range(appends // _BLOCK):
        took: dict[bool, list[float]] = {True: [], False: []}
        for pair in range(_BLOCK):
            for is_read in (True, False) if pair % 2 else (False, True):
                message = {"role": "user", "content": f"message {block} {pair} " + "x" * 1000}
                began = time.perf_counter()
                (read if is_read else alone).append_message(message)
                took[is_read].append(time.perf_counter() - began)
        ratios.append(statistics.median(took[True]) / statistics.median(took[False]))
    return ratios


def filled(directory: Path, conversations: int) -> Path:
    chance, library = random.Random(1), ConversationLibrary(directory)
    for number in range(conversations):
        messages = [{"role": "user", "content": said(chance, number * 10 + seq)} for seq in range(10)]
        library.create(messages=messages, provider="claude", durability="process-crash").close()
    return directory


@contextmanager
def indexing(library: Path, cache: Path) -> Iterator[None]:
    """An index in another process that updates itself without a pause, and that has looked at everything once."""
    command = [sys.executable, "-c", _INDEXING, str(library), str(cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        yield
        process.kill()
        updates = process.stdout.read().split()
    print(f"  {updates[-1] if updates else 'fewer than 10'} updates meanwhile")


if __name__ == "__main__":
    main()
