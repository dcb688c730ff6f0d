"""Two processes that write to one conversation on a server at the same time, ours and three peers: ``python -m benchmarks.two_writers``.

Each stores 100 messages, one call each, as its users would. Counted is what was acknowledged, and of that what is not there at the end,
what stands twice, and what stands before what the same process stored earlier. PostgreSQL and SeaweedFS are started from their packages
(``TRANSCRIPT_STORE_WEED`` names the latter's program); each peer has a virtual environment of its own.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.environments import default_folder, interpreter
from tests.backends.servers import seaweedfs
from tests.kit.postgres import PostgresServer

COUNT = 100
_ABOVE = Path(__file__).parent.parent
CONTENDERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "transcript_store, PostgreSQL": ("ours", "postgres", ()),
    "transcript_store, SeaweedFS": ("ours", "objects", ()),
    "Strands, S3SessionManager, SeaweedFS": ("strands", "objects", ("strands-agents==1.62.0", "boto3")),
    "LangGraph, PostgresSaver": (
        "langgraph",
        "postgres",
        ("langgraph-checkpoint-postgres==3.1.2", "langgraph", "psycopg[binary]"),
    ),
    "OpenAI Agents SDK, SQLAlchemySession": (
        "openai-agents",
        "postgres",
        ("openai-agents[sqlalchemy]==0.24.0", "psycopg[binary]"),
    ),
}


def main() -> None:
    """Measure, and print a table in Markdown."""
    print(
        "| two writers, 100 messages each | acknowledged | refused | lost | twice | out of order |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as postgres:
        postgres.restart(fsync="on")
        weed = seaweedfs(Path(folder))
        try:
            for name, (way, kind, requirements) in CONTENDERS.items():
                server = (
                    {"kind": kind, "url": postgres.schema()}
                    if kind == "postgres"
                    else {"kind": kind, "url": "s3://tests", "options": weed.options}
                )
                python = str(interpreter(default_folder(), requirements))
                print(f"| {name} | {' | '.join(str(each) for each in judged(python, way, server))} |", flush=True)
        finally:
            weed.kill()


def judged(python: str, way: str, server: dict[str, Any]) -> tuple[int, int, int, int, int]:
    """How many were acknowledged and refused; of the former, how many are lost, stand twice and are out of order."""
    program = [python, "-m", "benchmarks.drivers.two_writers", way, json.dumps(server)]
    subprocess.run([*program, "read"], check=True, stdout=subprocess.DEVNULL, cwd=_ABOVE)  # makes it
    writers = [
        subprocess.Popen(
            [*program, "write", name, str(COUNT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ABOVE,
        )
        for name in ("a", "b")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    said = [writer.communicate()[0].split("\n")[:-1] for writer in writers]
    told = [line.split() for lines in said for line in lines]
    stored = [text for kind, text, *_ in told if kind == "stored"]
    done = subprocess.run([*program, "read"], check=True, capture_output=True, text=True, cwd=_ABOVE)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    places = {text: place for place, text in reversed([*enumerate(found)])}
    lost = [text for text in stored if text not in places]
    behind = 0
    for name in ("a", "b"):
        kept = [places[text] for text in stored if text.startswith(name) and text in places]
        behind += sum(later < earlier for earlier, later in itertools.pairwise(kept))
    for (kind, _, *more), times in Counter(tuple(line) for line in told).items():
        if kind == "refused":
            print(more, times, file=sys.stderr)
    twice = sum(times - 1 for times in Counter(found).values())
    return len(stored), len(told) - len(stored), len(lost), twice, behind


if __name__ == "__main__":
    main()
