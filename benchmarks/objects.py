"""What a conversation on an object store costs, beside bare requests: ``python -m benchmarks.objects URL [OPTION=VALUE …]``.

It appends 200 messages of 1 KB, one by one, beside bare PUTs of the same size, and opens 1,000 messages that are packed, beside
bare GETs of the same packs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from transcript_store.places import ObjectPlace, PlacedConversation

TEXT = "x" * 1000


def timed(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return (time.perf_counter() - begin) * 1000


def percentiles(times: list[float]) -> str:
    return f"p50 {statistics.median(times):.2f} ms, p99 {sorted(times)[int(len(times) * 0.99)]:.2f} ms"


def main(url: str, options: dict[str, Any]) -> None:
    import obstore
    from obstore.store import from_url

    place = ObjectPlace(url, **options)
    bare = from_url(url, client_options={"allow_http": True}, **options)
    log = PlacedConversation(place, str(uuid4()))
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
    opens, gets = [], []
    for _ in range(20):
        reader = PlacedConversation(place, log.id, read_only=True)
        opens.append(timed(lambda reader=reader: reader.load()))  # type: ignore[misc]
        gets.append(timed(lambda: [bytes(obstore.get(bare, key).bytes()) for key in keys]))
    print(f"open         {percentiles(opens)}")
    print(f"{len(keys)} bare GETs  {percentiles(gets)}")


if __name__ == "__main__":
    main(sys.argv[1], dict(option.split("=", 1) for option in sys.argv[2:]))
