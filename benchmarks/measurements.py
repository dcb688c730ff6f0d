"""What is measured beside the plainest way to do the same work (``pairs``); the targets stand where the rows are made."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property, partial
from http.client import HTTPConnection
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import orjson

from benchmarks import pairs
from benchmarks.messages import text_messages
from benchmarks.pairs import KEY, TRANSCRIPT, Pair
from benchmarks.results import Row
from benchmarks.timing import interleave, median_of, middle, size
from transcript_store import ConversationStore
from transcript_store.aio import AsyncConversationStore
from transcript_store.conversation import DEFAULT_CACHE_BYTES, Durability

_DURABILITIES: tuple[Durability, ...] = ("power-loss", "process-crash")
_THREADS, _EACH = 8, 8
_TASKS, _EACH_TASK = 32, 2


class Workplace:
    """Where the files go, and how much is measured."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.directory = directory
        self.messages = 10_000 if quick else 100_000
        self.conversations = 1_000 if quick else 10_000
        self.appending_rounds = 60 if quick else 300
        self.rounds = 3 if quick else 9
        self.starts = 10 if quick else 40

    @cached_property
    def conversation(self) -> Path:
        """A conversation of many messages, made once and never appended to."""
        return pairs.make_conversation(self.directory / "conversation", self.messages)

    @property
    def described(self) -> str:
        """How large that is."""
        return f"{self.messages:,} messages, {size((self.conversation / TRANSCRIPT).stat().st_size)}"


def _compared(what: str, pair: Pair, limit: float | None = None, *, rounds: int, calls: int = 1, note: str = "") -> Row:
    ours, plain = interleave([pair.ours, pair.plain], rounds=rounds, calls=calls, after=pair.after)
    return Row.of(what, ours, plain, limit, note)


# ---- appending -------------------------------------------------------------------------------------------------------


def append(place: Workplace) -> Iterator[Row]:
    """One append, durable or not."""
    cases: tuple[tuple[Durability, int, int, int, float], ...] = (
        ("power-loss", 1, place.appending_rounds, 8, 1.15),
        ("power-loss", 64, place.appending_rounds, 8, 1.10),
        ("process-crash", 1, place.appending_rounds * 4, 40, 3.0),
    )
    for durability, kilobytes, rounds, calls, limit in cases:
        with pairs.appending(place.directory, durability=durability, encoded_bytes=kilobytes * 1024) as pair:
            yield _compared(f"append, {durability}, {kilobytes} KB", pair, limit, rounds=rounds, calls=calls)


def length(place: Workplace) -> Iterator[Row]:
    """The same append at growing lengths, beside itself at 10 messages."""
    lengths = [count for count in (10, 1_000, 100_000) if count <= place.messages]
    folders = [pairs.make_conversation(place.directory / f"length-{count}", count) for count in lengths]
    given = text_messages(64, 1024)
    for durability, calls in zip(_DURABILITIES, (2, 20), strict=True):
        stores = [ConversationStore(folder, durability=durability) for folder in folders]
        for store in stores:
            store.load()
        seconds = interleave(
            [pairs.append_to(store, given) for store in stores], rounds=place.appending_rounds, calls=calls
        )
        for store in stores:
            store.close()
        for count, at_length in zip(lengths[1:], seconds[1:], strict=True):
            what = f"append, {durability}, 1 KB, at {count:,} messages"
            yield Row.of(what, at_length, seconds[0], 1.1, "beside: at 10 messages")
    for folder in folders:
        shutil.rmtree(folder)


def threads(place: Workplace) -> Iterator[Row]:
    """Eight threads that append durably to one conversation, beside one thread that appends as many messages."""
    given = text_messages(_EACH, 1024)
    folder = place.directory / "threads"

    def append_all(store: ConversationStore) -> int:
        for message in given:
            store.append_message(message)
        return len(given)

    with ConversationStore(folder) as store, ThreadPoolExecutor(_THREADS) as pool:
        store.initialize()
        stores = [store] * _THREADS
        ways = [lambda: sum(pool.map(append_all, stores)), lambda: sum(map(append_all, stores))]
        ours, one = interleave(ways, rounds=place.appending_rounds // 6)
    shutil.rmtree(folder)
    what = f"{_THREADS * _EACH} durable appends, by {_THREADS} threads"
    yield Row.of(what, ours, one, 0.33, "beside: by one thread")


def tasks(place: Workplace) -> Iterator[Row]:
    """Thirty-two tasks of asyncio that append durably to one conversation, beside one thread that appends as many messages."""
    given = text_messages(_EACH_TASK, 1024)
    folder = place.directory / "tasks"

    async def share(conversation: AsyncConversationStore) -> None:
        for message in given:
            await conversation.append_message(message)

    async def all_at_once(conversation: AsyncConversationStore) -> None:
        await asyncio.gather(*(share(conversation) for _ in range(_TASKS)))

    def by_tasks() -> int:
        loop.run_until_complete(all_at_once(conversation))
        return _TASKS * _EACH_TASK

    def by_one() -> int:
        for _ in range(_TASKS):
            for message in given:
                store.append_message(message)
        return _TASKS * _EACH_TASK

    with ConversationStore(folder) as store, asyncio.Runner() as runner:
        store.initialize()
        conversation, loop = AsyncConversationStore.of(store), runner.get_loop()
        ours, one = interleave([by_tasks, by_one], rounds=place.appending_rounds // 6)
        runner.run(conversation.close())
    shutil.rmtree(folder)
    what = f"{_TASKS * _EACH_TASK} durable appends, by {_TASKS} asyncio tasks"
    yield Row.of(what, ours, one, 0.10, "beside: by one thread")


# ---- reading ---------------------------------------------------------------------------------------------------------


def load(place: Workplace) -> Iterator[Row]:
    """load() of a long conversation."""
    for read_only, how in ((True, "read_only"), (False, "as writer")):
        with pairs.loading(place.conversation, read_only=read_only) as pair:
            yield _compared(f"load(), {place.described}, {how}", pair, 0.28, rounds=place.rounds)


def last(place: Workplace) -> Iterator[Row]:
    """The end of a long conversation, beside the end of one that is a tenth as long."""
    paths = [place.directory / "long", place.directory / "short"]
    for path, count in zip(paths, (place.messages, place.messages // 10), strict=True):
        with ConversationStore(path) as store:
            store.initialize(messages=text_messages(count, 1024))  # of one size: the ends weigh the same
    ways = [partial(pairs.last_messages, path, 50) for path in paths]
    long, short = interleave(ways, rounds=place.appending_rounds // 3)
    for path in paths:
        shutil.rmtree(path)
    what = f'load(verify="tail"), the last 50 of {place.messages:,}'
    yield Row.of(what, long, short, 1.1, f"beside: of {place.messages // 10:,}")


_PEAK = """
import sys
from transcript_store import ConversationStore
if len(sys.argv) > 1:
    store = ConversationStore(sys.argv[1], read_only=sys.argv[2] == "read_only")
    store.load()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def memory(place: Workplace) -> Iterator[Row]:
    """The peak of a process that loads above one that only imports, beside the size of the file. On Linux only."""
    if not Path("/proc/self/status").exists():
        return
    file_bytes = (place.conversation / TRANSCRIPT).stat().st_size
    for how in ("read_only", "as writer"):
        low, median, high = middle([_peak_above(_PEAK, str(place.conversation), how) / file_bytes for _ in range(3)])
        spread = f"{low:.2f}–{high:.2f}"
        what = f"memory of load(), {how}, beside the file"
        yield Row(what, size(median * file_bytes), size(file_bytes), median, spread, 1.15)


def _peak_above(program: str, *arguments: str) -> float:
    """The peak of a process that is given these arguments, above one without; not getrusage: that begins with the parent's."""
    peaks = [
        int(subprocess.run([sys.executable, "-c", program, *given], check=True, capture_output=True, text=True).stdout)
        for given in (arguments, ())
    ]
    return float(peaks[0] - peaks[1]) * 1024


def get(place: Workplace) -> Iterator[Row]:
    """get_messages() of a loaded conversation that is in the cache, and of one that is not: it is read and verified again."""
    whole = (place.conversation / TRANSCRIPT).stat().st_size * 2
    for how, cache_bytes, limit in (("from the cache", whole, 1.05), ("beyond it", DEFAULT_CACHE_BYTES, 1.40)):
        with pairs.getting(place.conversation, cache_bytes) as pair:
            yield _compared(f"get_messages(), {place.messages:,} messages, {how}", pair, limit, rounds=place.rounds)


def verification(place: Workplace) -> Iterator[Row]:
    """verify() of a long conversation."""
    with pairs.verifying(place.conversation) as pair:
        yield _compared(f"verify(), {place.messages:,} messages", pair, 2.0, rounds=place.rounds)


# ---- many conversations, snapshots -----------------------------------------------------------------------------------


def library(place: Workplace) -> Iterator[Row]:
    """list() of many conversations."""
    with pairs.listing(place.directory, count=place.conversations) as pair:
        yield _compared(f"list(), {place.conversations:,} conversations", pair, 1.3, rounds=place.rounds)


_PEAK_OF_LIST = """
import sys
from transcript_store import FileStore
if len(sys.argv) > 1:
    key = bytes.fromhex(sys.argv[2]) or None
    listed = FileStore(sys.argv[1], encryption_key=key).list()
    assert len(listed) == int(sys.argv[3]), len(listed)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def snapshots(place: Workplace) -> Iterator[Row]:
    """list() of many snapshots, and its memory; save and load of a large one."""
    count = place.messages // 10
    for key, how in ((None, "plain"), (KEY, "sealed")):
        with pairs.listing_snapshots(place.directory, count=count, key=key) as pair:
            what = f"list(), {count:,} snapshots of 50 messages, {how}"
            yield _compared(what, pair, 1.3, rounds=3)
            if Path("/proc/self/status").exists():
                folder = place.directory / "snapshots"
                file_bytes = sum(path.stat().st_size for path in folder.glob("*.json"))
                arguments = (str(folder), (key or b"").hex(), str(count))
                low, median, high = middle([_peak_above(_PEAK_OF_LIST, *arguments) / 1e6 for _ in range(3)])
                what = f"memory of that list(), MB above import, {how}"
                yield Row(what, size(median * 1e6), size(file_bytes), median, f"{low:.0f}–{high:.0f}")
    large = 6_500  # about 10 MB
    for key, how in ((None, "plain"), (KEY, "sealed")):
        with pairs.saving(place.directory, count=large, key=key) as pair:
            yield _compared(f"save(), a snapshot of 10 MB, {how}", pair, 1.15, rounds=place.rounds)
        with pairs.restoring(place.directory, count=large, key=key) as pair:
            yield _compared(f"load() and messages, a snapshot of 10 MB, {how}", pair, 1.8, rounds=place.rounds)


# ---- replacing, starting ---------------------------------------------------------------------------------------------


def replace(place: Workplace) -> Iterator[Row]:
    """replace_transcript() of many messages."""
    count = 10_000
    with pairs.replacing(place.directory, count=count) as pair:
        yield _compared(f"replace_transcript(), {count:,} messages", pair, 1.25, rounds=place.rounds)


def start(place: Workplace) -> Iterator[Row]:
    """Imports and the command's help, above a bare interpreter; byte code is cached, as it is once installed."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(place.directory / "byte-code")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    bare = [sys.executable, "-c", "pass"]
    cases: tuple[tuple[str, list[str], float | None], ...] = (
        ("import orjson", ["-c", "import orjson"], None),
        ("import transcript_store", ["-c", "import transcript_store"], 10.0),
        ("… with ConversationStore", ["-c", "from transcript_store import ConversationStore"], None),
        ("transcript-store --help", ["-m", "transcript_store", "--help"], None),
    )
    ways = [
        partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL, env=environment)
        for command in (bare, *([sys.executable, *arguments] for _, arguments, _ in cases))
    ]
    nothing, *others = interleave(ways, rounds=place.starts)
    for (what, _, limit), taken in zip(cases, others, strict=True):
        low, median, high = middle([(a - b) * 1e3 for a, b in zip(taken, nothing, strict=True)])
        yield Row(
            f"{what}, ms above python", median_of(taken), median_of(nothing), median, f"{low:.0f}–{high:.0f}", limit
        )
    low, median, high = (second * 1e3 for second in middle(others[-1]))
    yield Row("transcript-store --help, ms in all", median_of(others[-1]), "", median, f"{low:.0f}–{high:.0f}", 40.0)


def first_token(place: Workplace) -> Iterator[Row]:
    """A question after 10,000 messages until the first token of the answer, above a bare POST of the same request.

    The server is on this machine and answers at once. Needs the extra ``openai``.
    """
    if find_spec("openai") is None:
        return
    from tests.chat.dialects import DIALECTS
    from tests.chat.server import serving
    from transcript_store.chat import ChatConfig, create_client

    answer = DIALECTS["openai"].stream("Hello.")
    roles = cycle(("user", "assistant"))
    given = [{**message, "role": next(roles)} for message in text_messages(10_000, 300)]
    with serving() as server, ConversationStore(place.directory / "chat") as store:
        store.initialize(provider="openai-compatible", model="m", messages=given)
        config = ChatConfig(provider="openai-compatible", token="none", base_url=f"{server.url}/v1")
        client: Any = create_client(config, conversation=store, allow_insecure_base_url=True)
        address = server.url.removeprefix("http://")

        def post() -> Iterator[object]:
            body = orjson.dumps(
                {"model": "m", "stream": True, "messages": [*given, {"role": "user", "content": "And now?"}]}
            )
            with closing(HTTPConnection(address)) as connection:
                connection.request("POST", "/v1/chat/completions", body)
                yield from connection.getresponse()

        ways: list[Callable[[], Iterator[object]]] = [partial(client.stream_chat, "And now?"), post]
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in range(place.rounds + 1):  # the first round only warms up
            for which, ask in enumerate(ways):
                server.answers.append(answer)
                begin = time.perf_counter()
                stream = ask()
                next(stream)
                taken[which].append(time.perf_counter() - begin)
                deque(stream, maxlen=0)  # it is journaled when it has been read
        client.close()
    shutil.rmtree(place.directory / "chat")
    ours, bare = taken[0][1:], taken[1][1:]
    low, median, high = middle([(a - b) * 1e3 for a, b in zip(ours, bare, strict=True)])
    what = "first token after 10,000 messages, ms above a POST"
    yield Row(what, median_of(ours), median_of(bare), median, f"{low:.0f}–{high:.0f}", 30.0)


MEASUREMENTS: dict[str, Callable[[Workplace], Iterator[Row]]] = {
    "append": append,
    "length": length,
    "threads": threads,
    "tasks": tasks,
    "load": load,
    "last": last,
    "memory": memory,
    "get": get,
    "verify": verification,
    "library": library,
    "snapshots": snapshots,
    "replace": replace,
    "start": start,
    "first-token": first_token,
}
