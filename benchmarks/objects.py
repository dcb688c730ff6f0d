"""What a conversation on an object store costs, beside bare requests: ``python -m benchmarks.objects URL [OPTION=VALUE …]``.

It appends 200 messages of 1 KB, one by one, beside bare PUTs of the same size, and opens 1,000 messages that are packed, beside
bare GETs of the same packs, and beside a bare loop that verifies what these hold.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any
from uuid import uuid4

import orjson

from transcript_store.backends import BackendConversation, ObjectStoreBackend

TEXT = "x" * 1000


def timed(act: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    begin = clock()
    act()
    return (clock() - begin) * 1000


def bare_proof(packs: Sequence[bytes]) -> int:
    """The least that proves what packs hold: each envelope parsed and chained, each line of an append hashed; returns how many slots."""
    slots, chained, head = 0, b"0" * 32, b"0" * 32
    for pack in packs:
        at = 0
        while at < len(pack):
            feed = pack.index(b"\n", at)
            stop = feed + 1 + orjson.loads(pack[at : feed + 1])["bytes"]
            found = sha256(chained + pack[at : feed - 43]).hexdigest()[:32].encode()
            assert pack[feed - 34 : feed - 2] == found
            for line in pack[feed + 1 : stop].splitlines(keepends=True):
                head = sha256((b"" if line.startswith(b'{"format"') else head) + line[:-44]).hexdigest()[:32].encode()
            at, chained, slots = stop, found, slots + 1
    return slots


def percentiles(times: list[float]) -> str:
    return f"p50 {statistics.median(times):.2f} ms, p99 {sorted(times)[int(len(times) * 0.99)]:.2f} ms"


def main(url: str, options: dict[str, Any]) -> None:
    import obstore
    from obstore.store import from_url

    backend = ObjectStoreBackend(url, **options)
    bare = from_url(url, client_options={"allow_http": True}, **options)
    log = BackendConversation(backend, str(uuid4()))
    log.initialize()
    appends, puts = [], []
    for number in range(200):
        appends.append(timed(lambda: log.append_message({"role": "user", "content": TEXT})))
        key, data = f"bare/{log.id}/{number}", TEXT.encode() * 2
        puts.append(timed(lambda key=key, data=data: obstore.put(bare, key, data, mode="create")))  # type: ignore[misc]
    print(f"append       {percentiles(appends)}")
    print(f"bare PUT     {percentiles(puts)}")
    for _ in range(799):
        log.append_message({"role": "user", "content": TEXT})
    log.append_message({"role": "user", "content": TEXT})
    log.close()
    log.load()
    log.pack()
    keys = [each["path"] for page in obstore.list(bare, f"c/{log.id}/p") for each in page]
    packs = [bytes(obstore.get(bare, key).bytes()) for key in keys]

    def load() -> None:
        BackendConversation(backend, log.id, read_only=True).load()

    def get() -> None:
        [bytes(obstore.get(bare, key).bytes()) for key in keys]

    for name, act in (("open", load), (f"{len(keys)} bare GETs", get), ("bare proof", lambda: bare_proof(packs))):
        times = [(timed(act), timed(act, time.process_time)) for _ in range(20)]
        waited, worked = zip(*times, strict=True)
        print(f"{name:12} {percentiles([*waited])}; of a processor, the least: {min(worked):.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1], dict(option.split("=", 1) for option in sys.argv[2:]))
