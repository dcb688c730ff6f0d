"""Search and lists at scale: built, asked and listed, beside a bare FTS5 table of the same text, and ripgrep.

``python -m benchmarks.searching --conversations 10000 --messages 50`` makes a library by script (its folders are written as this
library would write them, and not synced), and prints a table. What counts are ratios of one run. ``--plot`` takes libraries that were
made with ``--library``, and draws what a search costs in each, into docs/benchmarks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import plots
from benchmarks.results import Curve, MissingError, Row
from benchmarks.timing import duration
from benchmarks.timing import size as told_size
from transcript_store import ConversationLibrary
from transcript_store.search import Order, SearchIndex
from transcript_store.search._answers import ORDERS, listed, page_of
from transcript_store.search._catalogue import FolderIndexSource, find_changes
from transcript_store.search._database import Database
from transcript_store.search._query import functions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument(
        "--rows", type=int, help="only list so many conversations, whose rows are made in an index alone"
    )
    parser.add_argument("--library", type=Path, help="keep it here, and use it if it is there")
    parser.add_argument(
        "--plot", type=Path, nargs="+", help="libraries, the smallest first: what a search costs in each"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.rows:
            pages(Path(folder, "index.sqlite"), arguments.rows)
            return
        if arguments.plot:
            plot(arguments.plot, Path(folder))
            return
        directory = arguments.library or Path(folder, "library")
        if not directory.exists():
            made(directory, arguments.conversations, arguments.messages)
        measure(directory, Path(folder))


def word(rank: int) -> str:
    """A word of two or three syllables; the common ones are short."""
    syllables, rest = "", rank + 400
    while rest:
        rest, place = divmod(rest, 75)
        syllables += "bcdfghklmnprstz"[place // 5] + "aeiou"[place % 5]
    return syllables


COMMON, OTHER = word(3), word(5)
QUERIES = {
    "a rare word": ("rareword7", r"\brareword7\b"),
    "a common word": (COMMON, rf"\b{COMMON}\b"),
    "two common words": (f"{COMMON} {OTHER}", rf"\b{COMMON}\b.*\b{OTHER}\b|\b{OTHER}\b.*\b{COMMON}\b"),
    "a phrase": (f'"{COMMON} {OTHER}"', rf"\b{COMMON} {OTHER}\b"),
    "a part of words": ("*rewor*", "rewor"),
    "a common word, a title": (f"{COMMON} title:12", rf"\b{COMMON}\b"),
    "Chinese, three characters": ("库索引", "库索引"),
}
"""What is asked, and for ripgrep the same as nearly as it can be said."""


def said(chance: random.Random, number: int) -> str:
    """A message of some 570 bytes: few words are common, many are rare, and now and then there is some Chinese."""
    words = [word(int(chance.paretovariate(0.7)) % 50_000) for _ in range(110)]
    if number % 500 == 0:
        words.append(f"rareword{number // 500}")
    if number % 100 == 0:
        words.append("数据库索引很快")
    return " ".join(words)


def said_in(conversations: int, messages: int) -> Iterator[list[str]]:
    """The texts of each conversation, the same in every run."""
    chance = random.Random(1)
    for number in range(conversations):
        yield [said(chance, number * messages + seq) for seq in range(messages)]


def made(directory: Path, conversations: int, messages: int) -> None:
    library = ConversationLibrary(directory)
    for number, texts in enumerate(said_in(conversations, messages)):
        contents: list[dict[str, Any]] = [{"role": "user", "content": text} for text in texts]
        labels = {"title": f"Conversation {number}"}
        with library.create(messages=contents, labels=labels, provider="claude", durability="process-crash"):
            pass


def texts_in(directory: Path) -> Iterator[str]:
    for path in directory.glob("*/transcript.jsonl"):
        with path.open("rb") as file:
            next(file)
            for line in file:
                yield json.loads(line)["message"]["content"]


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def bare(directory: Path, path: Path) -> float:
    """The seconds that FTS5 alone takes for the same text, which is in memory already, a transaction for 2,000."""
    texts = list(texts_in(directory))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content='')")

    def insert() -> None:
        for at in range(0, len(texts), 2000):
            connection.execute("BEGIN")
            rows = ((at + place + 1, text) for place, text in enumerate(texts[at : at + 2000]))
            connection.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", rows)
            connection.execute("COMMIT")

    took = processor(insert, 1)
    connection.close()
    return took


BUILD = """
import re, sys, time
from transcript_store.search import SearchIndex
def peak():
    return int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before, began = peak(), time.process_time()
with SearchIndex(sys.argv[1], cache=sys.argv[2]) as index:
    index.update()
print(peak() - before, time.process_time() - began)
"""


def measure(directory: Path, folder: Path) -> None:
    size = sum(len(text.encode()) for text in texts_in(directory))
    busy = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{len(os.listdir(directory)):,} conversations, {size / 1e6:.0f} MB of text; {busy}")
    for row in rows(directory, folder):
        target = "" if row.limit is None else f" (≤ {row.limit:.3g}{'' if row.is_met else ', MISSED'})"
        print(f"{row.what}: {row.ours}, beside {row.beside or '–'}: {row.value:.3g}{target} {row.note}".rstrip())


def rows(directory: Path, folder: Path) -> Iterator[Row]:
    """What is asked of an index, of a library made by ``made()``. Times are of the processor, except where the row says so."""
    cache = folder / "cache"
    size = sum(len(text.encode()) for text in texts_in(directory))
    plain = bare(directory, folder / "bare.sqlite")
    command = [sys.executable, "-c", BUILD, str(directory), str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    memory, built = int(done[0]) * 1024, float(done[1])
    (path,) = cache.glob("*.sqlite")
    of = f"{len(os.listdir(directory)):,} conversations"
    yield _row(f"search: build, {of}", built, plain, 1 / 0.6, "beside: FTS5 alone (at least 0.6 of its rate)")
    yield Row("search: memory while it is built, MB", told_size(memory), "", memory / 1e6, "", 200.0)
    file = path.stat().st_size
    least = f"of the text; FTS5 alone: {(folder / 'bare.sqlite').stat().st_size / size:.2f}"
    yield Row("search: size of the index", told_size(file), told_size(size), file / size, "", 0.5, least)
    with SearchIndex(directory, cache=cache) as index:
        look, calls = processor(index.update), processor(lambda: floor_of_a_look(directory))
        yield _row(f"search: a look at {of}", look, calls, None, "beside: its system calls alone")
        yield from queries(index, directory)
        yield one_more(index, directory, folder)
        yield from lists(index, directory)


def _row(what: str, ours: float, beside: float, limit: float | None, note: str) -> Row:
    return Row(what, duration(ours), duration(beside), ours / beside, "", limit, note)


def processor(work: Callable[[], Any], times: int = 15) -> float:
    """The seconds of this process's processor that a call takes: others at work on the machine do not count, nor does waiting."""
    return statistics.median(_each(work, times, lambda: 0.0))


class Look:
    """The look at every conversation, which an answer begins with. It is counted here, so that it can be taken from a call's time:
    between two calls it varies by more than most queries take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        began = time.process_time()
        try:
            return find_changes(*arguments, **more)
        finally:
            self.seconds += time.process_time() - began


LOOK = Look()


def besides_the_look(work: Callable[[], Any], times: int = 15) -> float:
    """The seconds of processor that a call takes without its look."""
    with mock.patch("transcript_store.search._catalogue.find_changes", LOOK):
        return statistics.median(_each(work, times, lambda: LOOK.seconds))


def _each(work: Callable[[], Any], times: int, apart: Callable[[], float]) -> list[float]:
    took = []
    for _ in range(times):
        began, before = time.process_time(), apart()
        work()
        took.append(time.process_time() - began - (apart() - before))
    return took


def grepped(directory: Path, pattern: str) -> tuple[float, float]:
    """The seconds that ripgrep takes by the clock, and what it would take on two cores that nobody else uses: half of its processor."""
    command = ["rg", "--count", "--glob", "transcript.jsonl", pattern, str(directory)]

    def run() -> tuple[float, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        clock = seconds(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=False))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return clock, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 2

    clocks, idle = zip(*(run() for _ in range(3)), strict=True)
    return min(clocks), statistics.median(idle)


def queries(index: SearchIndex, directory: Path) -> Iterator[Row]:
    if not shutil.which("rg"):
        raise MissingError("ripgrep: apt-get install ripgrep")
    note = "beside: ripgrep on two idle cores, half of its processor time"
    asked: list[tuple[float, str, float]] = []
    for name, (query, pattern) in QUERIES.items():
        ours = besides_the_look(lambda query=query: index.search(query))  # type: ignore[misc]
        clock, idle = grepped(directory, pattern)
        asked.append((ours / idle, name, ours))
        found = f"{index.search(query).total} found; by the clock {duration(clock)}"
        yield _row(f"search: {name}", ours, idle, None, f"{note}; {found}")
    times = sorted(each[0] for each in asked)
    yield Row("search: a query, p50", "", "", statistics.median(times), "", 1 / 100, note)
    yield Row("search: a query, the worst", "", "", times[-1], "", 1 / 20, note)


def floor_of_a_look(directory: Path) -> None:
    """The system calls of a look, and nothing else: what changed in a conversation is told by its two files."""
    above = os.fsencode(directory) + b"/"
    for name in os.listdir(above):
        os.lstat(above + name + b"/transcript.jsonl")
        os.lstat(above + name + b"/metadata.json")


def plot(libraries: list[Path], folder: Path) -> None:
    """What a search costs as a library grows: figures and a plot in docs/benchmarks. By the processor, but for ripgrep: by the clock."""
    points: dict[str, list[tuple[int, float]]] = {}
    for number, library in enumerate(libraries):

        def put(name: str, took: float, library: Path = library) -> None:
            points.setdefault(name, []).append((len(os.listdir(library)), took))

        with SearchIndex(library, cache=folder / str(number)) as index:
            index.update()
            put("the look at each conversation", processor(index.update))
            put("two lstat a conversation, alone", processor(lambda library=library: floor_of_a_look(library)))  # type: ignore[misc]
            for name, (query, _) in QUERIES.items():
                put(name, besides_the_look(lambda index=index, query=query: index.search(query)))  # type: ignore[misc]
        if shutil.which("rg"):
            put("ripgrep, a common word", grepped(library, QUERIES["a common word"][1])[0])
    where = Path(__file__).parents[1] / "docs" / "benchmarks"
    (where / "search-size.json").write_text(json.dumps(points, indent=1) + "\n", encoding="utf-8")
    curves = [Curve("search-size", name, values) for name, values in points.items()]
    plots.draw("search-size", curves, where / "search-size.svg", across="conversations of 50 messages in the library")
    print(
        "\n".join(
            f"{name}: {', '.join(f'{1e3 * took:.1f} ms at {size:,}' for size, took in values)}"
            for name, values in points.items()
        )
    )


def one_more(index: SearchIndex, directory: Path, folder: Path) -> Row:
    """What it costs to find one message more, the catalogue's note with it, besides the look; beside a commit of SQLite alone."""
    library = ConversationLibrary(directory)
    own_id = library.list()[0].id
    assert own_id is not None
    took = []
    with library.open(own_id, durability="process-crash") as conversation:
        for number in range(15):
            conversation.append_message({"role": "user", "content": f"onemore{number}"})
            took.append(besides_the_look(index.update, 1))
    connection = sqlite3.connect(folder / "commits.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content='')")
    commits = [
        processor(lambda: connection.execute("INSERT INTO words (text) VALUES ('one more message')")) for _ in range(15)
    ]
    note = "besides the look; beside: a commit of SQLite alone"
    return _row("search: one message more", statistics.median(took), statistics.median(commits), 3.0, note)


def lists(index: SearchIndex, directory: Path) -> Iterator[Row]:
    newest = statistics.median(seconds(lambda: index.list(limit=50)) for _ in range(15))
    whole = min(seconds(ConversationLibrary(directory).list) for _ in range(2))
    note = "with the look, by the clock; beside: ConversationLibrary.list()"
    yield _row("search: list the newest 50", newest, whole, None, note)


def row(n: int) -> dict[str, Any]:
    month, moment = n % 12 + 1, f"01T{n % 24:02}:00:00.{n:06}Z"
    return {
        "folder": b"folder%d" % n, "stamp": "", "id": f"{n:08}", "title": f"Title {n * 7919 % 999_983}",
        "provider": "claude", "model": f"model-{n % 9}", "created_at": f"2026-{month:02}-{moment}",
        "updated_at": f"2026-{n * 31 % 12 + 1:02}-{moment}", "record_count": n % 100, "generation": 0,
        "size_bytes": n, "torn_bytes": 0,
    }  # fmt: skip


def pages(path: Path, rows: int) -> None:
    """Pages of a list of many conversations, besides the look at their folders, beside the bare query."""
    database = Database(str(path), "/library")
    functions(database.connection)
    statement = f"INSERT INTO conversation ({', '.join(row(0))}) VALUES ({', '.join('?' * len(row(0)))})"
    with database.writing() as connection:
        connection.executemany(statement, (tuple(row(n).values()) for n in range(rows)))
        connection.executemany("INSERT INTO label VALUES (?, 'title', '')", ((n + 1,) for n in range(rows)))
    database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    print(f"{rows:,} rows, {path.stat().st_size / 1e6:.0f} MB")

    def timed(after: str | None, order: Order, filter: str = "", times: int = 51) -> float:
        return 1e3 * processor(
            lambda: listed(database, FolderIndexSource("/library"), page_of(50, after, order, filter)), times
        )

    asked = "SELECT * FROM conversation ORDER BY updated_at DESC, n DESC LIMIT 50"
    bare = 1e3 * processor(lambda: database.connection.execute(asked).fetchall(), 51)
    for order in ORDERS:
        took = timed(None, order)
        print(f"50 by {order}: {took:.2f} ms, the bare query {bare:.2f} ms: {took / bare:.1f} x")
    second = listed(database, FolderIndexSource("/library"), page_of(50, None, "updated", "")).next
    print(f"the page behind it: {timed(second, 'updated'):.2f} ms")
    print(f"title: with how many there are: {timed(None, 'updated', 'title:77777', 3):.0f} ms")
    database.close()


if __name__ == "__main__":
    main()
    print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
