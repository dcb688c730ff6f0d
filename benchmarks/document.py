"""docs/benchmarks.md and its plots, from the figures of a run; nothing in it is typed by hand but the words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import plots
from benchmarks.contenders import CONTENDERS, UNSYNCED, Contender
from benchmarks.results import Comparison, Figure, Results, Row
from benchmarks.timing import Middle, in_unit

_FIGURES = "benchmarks/figures.json"
_EVERY_ROW = "benchmarks/every-row.md"
SHOWN = frozenset(
    {
        "append, power-loss, 1 KB",
        "append, process-crash, 1 KB",
        "64 durable appends, by 8 threads",
        "load(), 100,000 messages, 177 MB, as writer",
        'load(verify="tail"), the last 50 of 100,000',
        "get_messages(), 100,000 messages, beyond it",
        "memory of load(), as writer, beside the file",
        "verify(), 100,000 messages",
        "list(), 10,000 conversations",
        "replace_transcript(), 10,000 messages",
        "transcript-store --help, ms in all",
        "sealed append, power-loss, 1 KB",
        "sealed get_messages(), 5,000 messages",
        "append in a turn, power-loss, 1 KB",
        "PostgreSQL: append, 1 KB",
        "objects: append, 1 KB",
        "import, first, 10,000 sessions, jobs=2: ms a session",
        "search: build, 10,000 conversations",
        "search: size of the index",
        "search: a rare word",
        "search: a common word",
        "view, 10,000 messages: the page made",
        "openai-agents: add_items, 2 items, 1,000 items",
        "claude-agent-sdk: append, 4 entries, 1,000 there",
    }
)
"""The rows that a user would ask for. The others, and what each is held to, are in ``_EVERY_ROW``."""
_COLUMNS = {
    "syncs": "syncs",
    "append": "append 1 KB",
    "append-long": "… to a long one",
    "threads": "… from 8 threads",
    "load": "load all",
    "last": "last 50",
    "memory": "memory",
    "import": "import",
}


def write(folder: Path, results: Results) -> None:
    """Store the figures, draw the plots, write the document."""
    (folder / "benchmarks").mkdir(exist_ok=True)
    (folder / _FIGURES).write_text(results.to_json(), encoding="utf-8")
    stored = read(folder)
    for operation in plots.TITLES:
        if curves := [curve for curve in stored.curves if curve.operation == operation]:
            plots.draw(operation, curves, folder / "benchmarks" / f"{operation}.svg")
    (folder / "benchmarks.md").write_text(render(stored), encoding="utf-8")
    (folder / _EVERY_ROW).write_text(render_every_row(stored), encoding="utf-8")


def read(folder: Path) -> Results:
    """The figures of the last run that was written."""
    return Results.from_json((folder / _FIGURES).read_text(encoding="utf-8"))


def render(results: Results) -> str:
    """The document: what a user would ask for."""
    return "\n".join(_lines(results)) + "\n"


def render_every_row(results: Results) -> str:
    """Every row with its target, and every comparison with its middle half."""
    return "\n".join(_every_line(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    yield """# What it costs

Each operation beside two others in the same run: the plainest way to do the same work (the bare system calls, the bare
decoder), and the stores that agents use today, each through its own public API. On your disk:

```sh
pip install -e '.[bench]'
python -m benchmarks --quick     # 3 minutes, to 1,000 messages
python -m benchmarks --write     # 40 minutes, and this document again
```

Times depend on the disk and on what else runs; trust the ratios.
"""
    yield _machine(results)
    yield ""
    yield from _overview(results)
    yield from _growth(results)
    yield "## Beside the plainest way"
    yield ""
    yield "This library, and a loop that does only the work itself on the same bytes, alternating in one process. All rows:"
    yield f"[{_EVERY_ROW}]({_EVERY_ROW})."
    yield ""
    yield from _table([row for row in results.rows if row.what in SHOWN])
    if beyond := [row for row in results.beyond if row.what in SHOWN]:
        yield "## What is built on the log"
        yield ""
        if results.beyond_machine != results.machine:
            run = results.beyond_machine
            yield f"From another run ({run.get('date')}, {run.get('transcript-store')}; `python -m benchmarks --beyond`)."
            yield ""
        yield from _table(beyond)
    yield from _method()


def _table(rows: list[Row]) -> Iterator[str]:
    yield _line("", "ours", "the plain way", "ratio, or as named", "")
    yield _line("---", "---:", "---:", "---:", "---")
    for row in rows:
        yield _line(row.what, row.ours, row.beside, row.shown, row.note)
    yield ""


def _every_line(results: Results) -> Iterator[str]:
    yield "# Every row"
    yield ""
    yield "Details of [benchmarks.md](../benchmarks.md): each row with its target, and each comparison with its middle half."
    yield ""
    yield _machine(results)
    yield ""
    yield from _rows(results)
    yield from _beyond(results)
    yield from _comparisons(results)


def _machine(results: Results) -> str:
    return "This run: " + ", ".join(f"{name} {value}" for name, value in results.machine.items()) + "."


def _overview(results: Results) -> Iterator[str]:
    by_name = {comparison.name: comparison for comparison in results.comparisons}
    columns = [name for name in _COLUMNS if name in by_name]
    if not columns:
        return
    yield "## In a minute"
    yield ""
    yield "Medians, grouped by what an acknowledged append survives. The syncs of one append were counted with strace."
    yield ""
    for name in columns:
        yield f"- {_COLUMNS[name]}: {by_name[name].title[0].lower()}{by_name[name].title[1:]}"
    yield ""
    yield _line("", *(_COLUMNS[name] for name in columns))
    yield _line("---", *("---:" for _ in columns))
    group = ""
    for contender in sorted(CONTENDERS, key=lambda contender: _GROUPS.index(contender.survives)):
        if contender.survives != group:
            group = contender.survives
            yield _line(f"**survives {group}**", *("" for _ in columns))
        yield _line(_bold(contender), *(_cell(by_name[name], contender) for name in columns))
    yield ""


_READING = ("load", "last", "memory")  # which durability does not matter for
_GROUPS = ("a power cut", "the end of the process", "neither")


def _bold(contender: Contender) -> str:
    return f"**{contender.name}**" if contender.driver.startswith("ours:") else contender.name


def _cell(comparison: Comparison, contender: Contender) -> str:
    figure = next((figure for figure in comparison.figures if figure.contender == contender.name), None)
    if figure is None:
        return "as synced" if contender in UNSYNCED and comparison.name in _READING else ""
    return "failed" if figure.value is None else in_unit(figure.value.median, comparison.unit)


def _growth(results: Results) -> Iterator[str]:
    operations = [name for name in plots.TITLES if any(curve.operation == name for curve in results.curves)]
    if not operations:
        return
    yield "## As a conversation grows"
    yield ""
    yield "Messages of 200 bytes. A contender that takes seconds for one append, or to write the conversation, is not measured further."
    yield ""
    for name in operations:
        yield f"![{plots.TITLES[name]}](benchmarks/{name}.svg)"
        yield ""


def _rows(results: Results) -> Iterator[str]:
    if not results.rows:
        return
    yield "## Beside the plainest way"
    yield ""
    yield "This library, and a loop that does only the work itself on the same bytes, alternating in one process."
    yield ""
    yield from _targets(results.rows)
    yield _FLOORS


def _targets(rows: list[Row]) -> Iterator[str]:
    yield _line("", "ours", "the plain way", "ratio, or as named", "middle half", "target", "")
    yield _line("---", "---:", "---:", "---:", "---", "---", "---")
    for row in rows:
        target = f"{row.target}{'' if row.is_met else ', **missed**'}"
        yield _line(row.what, row.ours, row.beside, row.shown, row.spread, target, row.note)
    yield ""


def _beyond(results: Results) -> Iterator[str]:
    if not results.beyond:
        return
    yield "## What is built on the log"
    yield ""
    described = ", ".join(f"{name} {value}" for name, value in results.beyond_machine.items())
    yield "`python -m benchmarks --beyond` measures these alone. Their run: " + described + "."
    yield ""
    yield from _targets(results.beyond)
    yield _BEYOND_FLOORS


_BEYOND_FLOORS = """\
Why targets are missed:

- Sealed `get_messages()`: even a bare loop of base64, AES-GCM and decoding over the same records takes more than twice as long as plain
  reading ([encryption.md](../encryption.md) has the loop).
- Sealed append, synced: the middle half lies around the target. It takes 5 µs of processor time more than a plain append.
- PostgreSQL: client and server share two cores and one disk. An append is one statement and one commit, like the bare INSERT. The
  additional 0.15 ms are two hashes, the slot, its verification, and psycopg's binding of five values instead of three. With 32
  processes, this processor time is the limit on two cores. Where a commit takes milliseconds the ratio was 1.07 to 1.12
  ([backends.md](../backends.md)).
- Objects: a server on the same machine answers a GET in 3 ms. In addition to the GETs, a load makes three lists and verifies each slot
  and each line of 1,000, which takes 20 ms of Python.
- [import.md](../import.md) has the cost of a session. [search.md](../search.md) has the minimum for a build, for one more message, and
  for a common word under a title. [integrations.md](../integrations.md) has the system calls of a call.
- **The machine of 2026-11-25 is slower than that of the day before**: a sealed and a plain read of the same 5,000 messages take twice as
  long (42.9 and 10.3 ms; 20.3 and 5.4 ms before). Compared with claude-code-log, the page took 1/5 of the time on the earlier machine.
"""
_FLOORS = """\
Missed targets, why, and the attempts to meet them. The numbers refer to [DECISIONS.md](../../DECISIONS.md):

- `process-crash` append (100): 3.3 to 4.1 × from run to run. One function without layers and without error handling takes 3.35 × when
  ours takes 3.5.
- Eight threads (19): 0.36 to 0.44 × from run to run. The rest is the interpreter's lock, passed from thread to thread.
- 32 tasks: 17 µs of processor time for each append (a bare call through an executor: 23), 1.1 ms for 64 of them, and the syncs that
  they share.
- List snapshots (96), load one (97): every byte is checked to be UTF-8 and JSON first. That alone takes 6 to 10 × as long as reading the
  file, and twice as long as decoding it. Saving (96) checks the same.
- `list()` of conversations (141): one reader finds the end of a transcript for a list, a load and a verification.
- `verify()` (98): a bare loop in Python that finds each line and hashes it takes 1.9 ×.
"""


def _comparisons(results: Results) -> Iterator[str]:
    for comparison in results.comparisons:
        yield f"## {comparison.title}"
        yield ""
        if comparison.beside:
            yield f"The ratio is to {comparison.beside}."
            yield ""
        ratios = any(figure.ratio for figure in comparison.figures)
        yield _line("", "median", "middle half", *(("ratio", "middle half") if ratios else ()), "")
        yield _line("---", "---:", "---", *(("---:", "---") if ratios else ()), "---")
        for figure in comparison.figures:
            yield _line(figure.contender, *_figure(figure, comparison.unit, ratios=ratios), figure.note)
        yield ""


def _figure(figure: Figure, unit: str, *, ratios: bool) -> list[str]:
    cells = ["–", ""] if figure.value is None else [in_unit(figure.value.median, unit), _between(figure.value, unit)]
    if ratios:
        cells += ["", ""] if figure.ratio is None else [in_unit(figure.ratio.median, ""), _between(figure.ratio, "")]
    return cells


def _between(middle: Middle, unit: str) -> str:
    return f"{in_unit(middle.low, unit)} – {in_unit(middle.high, unit)}"


def _method() -> Iterator[str]:
    yield "## How it is measured, and who was"
    yield ""
    yield "- In each round every contender runs once, each round starts with another one, and ratios are taken within a round. The"
    yield "  result is the median of the rounds, with the range of their middle half. The garbage collector is on."
    yield "- Each contender runs in its own process, each peer in its own virtual environment, in the version below. The code is what its"
    yield "  users would write; converting the messages to its form is not timed. A contender that is not installed, or fails, is reported."
    yield "- The messages are the same in every run (fixed seed): sizes are log-normal, four in ten are tool calls, four in ten their"
    yield "  results, one in a thousand is large (every second of these an image), one in five is not plain ASCII. Appended messages are"
    yield "  text of one size; snapshots have no images."
    yield "- When a file grows, each sync also records its new size. SQLite overwrites its WAL after a checkpoint, and such a sync is"
    yield "  cheaper on most file systems: it can take less than the limit for appending to a file."
    yield "- Opening a conversation hashes all of it, which is slow without SHA instructions. On a processor that has them (AMD EPYC,"
    yield "  2026-11-27), to hand out 10,000 messages took 97.3 ms, beside 101 ms in SQLite; to verify 100,000 took 280 ms."
    yield "- “Memory” is the peak of a new process minus its memory after its imports."
    yield ""
    yield _line("", "version", "what it promises")
    yield _line("---", "---", "---")
    for contender in CONTENDERS:
        yield _line(contender.name, f"`{contender.package}`" if contender.package else "", contender.promise)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
