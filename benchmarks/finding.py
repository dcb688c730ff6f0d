"""Search beside others that find messages: ripgrep, tantivy, ``llm logs -q`` and claude-code-log, over the same conversations.

``python -m benchmarks.finding [--write]`` makes libraries of 50 messages a conversation, each larger than the one before, and gives
each peer the same texts. A query is asked with the excerpts of its first twenty hits. What is told is the fastest of several calls, by
the clock: the others of a busy machine slow a call, and quicken none. ``--write`` puts the figures and plots into docs/benchmarks.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import environments, plots
from benchmarks.results import Curve
from benchmarks.searching import QUERIES, made, said_in
from transcript_store import __version__
from transcript_store.search import SearchIndex

MESSAGES = 50
OURS, COMMAND, GREP = "transcript_store, `search()`", "transcript_store, the command", "ripgrep, the command"
PEERS = {
    "tantivy": ("tantivy, `search()`", ("tantivy==0.27.0",)),
    "claude-code-log": ("claude-code-log, `search()`", ("claude-code-log==1.7.0",)),
    "llm": ("llm, the command `logs -q`", ("llm==0.36",)),
}
ASKED = {
    name: QUERIES[name]
    for name in ("a rare word", "a common word", "two common words", "a phrase", "Chinese, three characters")
}
"""What everybody can be asked."""
_COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""An installed command finds its modules compiled."""
Figures = dict[str, dict[str, Any]]
"""For each contender the seconds of ``built``, the bytes of ``size``, and for each query its seconds and how many it found."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--write", action="store_true", help="the figures and plots into docs/benchmarks")
    arguments = parser.parse_args()
    figures: dict[int, Figures] = {}
    for conversations in arguments.conversations:
        with tempfile.TemporaryDirectory() as folder:
            figures[conversations] = measured(conversations, Path(folder))
        print(table(conversations, figures[conversations]), flush=True)
    if arguments.write:
        write(figures, Path(__file__).parents[1] / "docs" / "benchmarks")


def fastest(work: Callable[[], Any], times: int) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def measured(conversations: int, folder: Path) -> Figures:
    library = folder / "library"
    made(library, conversations, MESSAGES)
    lines = folder / "texts"
    with lines.open("w", encoding="utf-8") as file:
        for number, texts in enumerate(said_in(conversations, MESSAGES)):
            file.writelines(json.dumps([number, text], ensure_ascii=False) + "\n" for text in texts)
    figures = {
        OURS: _ours(library, folder / "cache"),
        COMMAND: _command(library, folder / "cache"),
        GREP: _grep(library),
    }
    for name, (title, requirements) in PEERS.items():
        place = folder / name
        place.mkdir()
        python = environments.interpreter(environments.default_folder(), requirements)
        command = [str(python), str(Path(__file__).parent / "drivers" / "finders.py"), name, str(lines), str(place)]
        queries = json.dumps([query for query, _ in ASKED.values()])
        environment = {**_COMPILED, "HOME": str(place), "LLM_USER_PATH": str(place)}
        done = subprocess.run(command, input=queries, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
        told = json.loads(done.stdout.splitlines()[-1])
        figures[title] = {"built": told["built"], "size": told["size"]} | {
            what: [min(told["asked"][query]["took"]), told["asked"][query]["count"] if name != "llm" else None]
            for what, (query, _) in ASKED.items()
        }  # the command of llm does not say how many there are
    return figures


def _ours(library: Path, cache: Path) -> dict[str, Any]:
    with SearchIndex(library, cache=cache) as index:
        built = fastest(index.update, 1)
        (path,) = cache.glob("*.sqlite")
        asked = {
            name: [fastest(partial(index.search, query), 15), index.search(query).total]
            for name, (query, _) in ASKED.items()
        }
    return {"built": built, "size": path.stat().st_size, **asked}


def _command(library: Path, cache: Path) -> dict[str, Any]:
    def asking(query: str) -> Callable[[], Any]:
        command = [sys.executable, "-m", "transcript_store", "search", query, str(library)]
        environment = {**_COMPILED, "XDG_CACHE_HOME": str(cache)}
        return lambda: subprocess.run(command, capture_output=True, env=environment, check=True)

    asking("nothing")()  # it has an index of its own
    return {name: [fastest(asking(query), 9), None] for name, (query, _) in ASKED.items()}


def _grep(library: Path) -> dict[str, Any]:
    def asking(pattern: str) -> Callable[[], Any]:
        command = ["rg", "--count", "--glob", "transcript.jsonl", pattern, str(library)]
        return lambda: subprocess.run(command, capture_output=True, check=False)

    return {name: [fastest(asking(pattern), 9), None] for name, (_, pattern) in ASKED.items()}


def table(conversations: int, figures: Figures) -> str:
    """The figures as Markdown: time, and how many messages were found."""
    heads = [f"{conversations:,} × {MESSAGES}", "built", "size", *ASKED]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name, known in figures.items():
        built = f"{known['built']:.1f} s" if "built" in known else ""
        size = f"{known['size'] / 1e6:.1f} MB" if "size" in known else ""
        lines.append([name, built, size, *(_cell(*known[query]) for query in ASKED)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(seconds: float, count: int | None) -> str:
    return f"{1e3 * seconds:.2f} ms" + ("" if count is None else f", {count:,}")


def write(figures: dict[int, Figures], folder: Path) -> None:
    machine = f"Python {platform.python_version()}, transcript-store {__version__}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    (folder / "search.json").write_text(
        json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n", encoding="utf-8"
    )
    names = list(next(iter(figures.values())))
    for operation, query in (("search", "a common word"), ("search-rare", "a rare word")):
        curves = [
            Curve(operation, name, [(size * MESSAGES, figures[size][name][query][0]) for size in figures])
            for name in names
        ]
        plots.draw(operation, curves, folder / f"{operation}.svg", across="messages in the library")


if __name__ == "__main__":
    main()
