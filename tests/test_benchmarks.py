"""The benchmark measures what it claims: each driver does the work, failures are reported, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as main
from benchmarks import comparisons, document, formats, plots, searching
from benchmarks.comparisons import Field
from benchmarks.contenders import CONTENDERS, LIMIT, OURS
from benchmarks.environments import NotInstallableError, interpreter
from benchmarks.processes import TOP, DriverError, Process
from benchmarks.results import Comparison, Curve, Figure, Results, Row
from benchmarks.timing import Middle
from transcript_store.search import SearchIndex

DOCUMENTS = TOP / "docs"
OWN = [contender for contender in CONTENDERS if not contender.requirements]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("contender", OWN, ids=lambda contender: contender.driver)
def test_a_driver_does_what_it_is_asked(contender, tmp_path: Path) -> None:
    """It stores so many messages, hands them out again, and each answer is a time that it took."""
    with Process(Path(sys.executable), contender.driver, tmp_path / "folder") as process:
        process.ready()
        process.ask("open", length=60, encoded_bytes=None)
        assert process.ask("append", calls=3, encoded_bytes=1024) > 0
        assert process.ask("length") == 60 + 1 + 3  # one warmed it up
        assert process.ask("load") > 0
        assert process.ask("last", count=50) > 0
        assert process.ask("size") > 60 * 1024


def test_what_a_driver_cannot_do_is_an_error(tmp_path: Path) -> None:
    """No call for it, nothing open, a driver that is not there: each is told, none is a figure."""
    with Process(Path(sys.executable), "limit:Write", tmp_path / "folder") as process:
        process.ready()
        with pytest.raises(DriverError, match="nothing is open"):
            process.ask("load")
        process.ask("open", length=1, encoded_bytes=1024)
        with pytest.raises(DriverError, match="NotImplementedError"):
            process.ask("list")
    with Process(Path(sys.executable), "no_such:Driver", tmp_path / "other") as process:
        with pytest.raises(DriverError, match="ModuleNotFoundError"):
            process.ready()


def test_a_driver_over_its_time_is_ended(tmp_path: Path) -> None:
    """Its answer is not taken for that to the next question: there is none."""
    with Process(Path(sys.executable), "limit:Write", tmp_path / "folder") as process:
        process.ready()
        with pytest.raises(DriverError, match="took longer than 0 s"):
            process.ask("open", length=2_000, encoded_bytes=None, timeout_seconds=0)
        with pytest.raises(DriverError, match="has ended"):
            process.ask("length")


def test_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody has every round, unless a budget is spent; a ratio is taken with the limit of its own round."""
    clock: Any = SimpleNamespace(seconds=0.0, perf_counter=lambda: clock.seconds)
    monkeypatch.setattr(comparisons, "time", clock)

    class Fake:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds
            self.asked = 0

        def ask(self, command: str, **arguments: object) -> float:
            self.asked += 1
            clock.seconds += self.seconds
            if self.seconds < 0.001 and self.asked == 3:
                raise DriverError("broke")
            return self.seconds

    said: list[str] = []
    field = Field(tmp_path, tmp_path, quick=True, say=said.append)
    fakes = {"quick": Fake(0.002), "slow": Fake(0.5), "breaks": Fake(0.0001)}
    taken = field.in_turn(fakes, "load", rounds=5, budget_seconds=0.4)  # type: ignore[arg-type]
    assert [*taken["quick"]] == [0, 1, 2, 3, 4]
    assert [*taken["slow"].values()] == [0.5]  # its one round, which warmed up, is all it has
    assert field.absent == {"breaks": "failed: broke"}
    assert "breaks: broke\n" in said


def results() -> Results:
    figures = [
        Figure(OURS.name, Middle(1.0, 2.0, 3.0), Middle(0.5, 1.0, 1.5)),
        Figure("another", None, note="could not be installed"),
    ]
    return Results(
        {"date": "2026-11-22"},
        [Row("append", "1 ms", "1 ms", 1.25, "1.0–1.5", 1.1)],
        [Comparison("append", "Append 1 KB", "s", "the limit", figures)],
        [Curve("append", OURS.name, [(10, 0.001), (100, 0.001)]), Curve("append", LIMIT.name, [(10, 0.001)])],
        {"date": "2026-11-24"},
        [Row("sealed append", "2 ms", "1 ms", 2.0, "1.0–2.5", 1.08)],
    )


def test_results_are_kept() -> None:
    """What is stored of a run is what it found."""
    assert Results.from_json(results().to_json()) == results()


def test_the_document_says_what_was_found() -> None:
    """A target that was missed, somebody who could not be measured: both are there to read."""
    text = document.render_every_row(results())
    assert "| append | 1 ms | 1 ms | 1.25 | 1.0–1.5 | ≤ 1.1, **missed** |  |" in text
    assert "Their run: date 2026-11-24." in text
    assert "| sealed append | 2 ms | 1 ms | 2.00 | 1.0–2.5 | ≤ 1.08, **missed** |  |" in text
    assert "| another | – |  |  |  | could not be installed |" in text
    assert all(contender.package in document.render(results()) for contender in CONTENDERS)


def test_what_a_user_would_ask_for_was_measured() -> None:
    """Each row that the document shows is in the figures."""
    figures = document.read(DOCUMENTS)
    assert {row.what for row in (*figures.rows, *figures.beyond)} >= document.SHOWN


def test_no_figure_in_the_document_is_typed_by_hand() -> None:
    """docs/benchmarks.md is what is written of the figures beside it."""
    assert (DOCUMENTS / "benchmarks.md").read_text(encoding="utf-8") == document.render(document.read(DOCUMENTS))
    every_row = (DOCUMENTS / "benchmarks/every-row.md").read_text(encoding="utf-8")
    assert every_row == document.render_every_row(document.read(DOCUMENTS))


@pytest.mark.long
def test_a_plot_is_the_same_each_time(tmp_path: Path) -> None:
    """The same figures give the same bytes, which have the contenders' names in them."""
    for name in ("one.svg", "two.svg"):
        plots.draw("append", results().curves, tmp_path / name)
    one, two = ((tmp_path / name).read_text(encoding="utf-8") for name in ("one.svg", "two.svg"))
    assert one == two
    assert LIMIT.name in one


@pytest.mark.long
def test_a_failed_environment_is_an_error_and_is_removed(tmp_path: Path) -> None:
    """An environment that could not be made is an error with a reason, and not there the next time."""
    with pytest.raises(NotInstallableError, match="no-such-folder"):
        interpreter(tmp_path, ("./no-such-folder",))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(signal_number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, or an end that was asked for: no files, and no traceback."""
    command = [sys.executable, "-m", "benchmarks", "--only", "length", "--directory", str(tmp_path)]
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        until = time.monotonic() + 60
        while not list(tmp_path.glob(".benchmarks-*/length-*")) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(run.pid, signal_number)
        _, errors = run.communicate()
    assert run.returncode != 0
    assert [*tmp_path.iterdir()] == []
    assert "Traceback" not in errors


def test_an_end_that_is_swallowed_is_an_end_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ignores an exception that is raised while an object is finalized; the run does not pass for a whole one."""

    def swallowing(_directory: Path, _options: object) -> None:
        with suppress(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(main, "_run", swallowing)
    monkeypatch.setattr(document, "write", lambda *_: pytest.fail("it wrote what it did not measure"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "length", "--write", "--directory", str(tmp_path)])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            main.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 1


def test_a_query_is_measured_without_the_look_at_the_library(tmp_path: Path) -> None:
    """The part that is left out is in the module where the benchmark replaces it."""
    searching.made(tmp_path / "library", 2, 2)
    with SearchIndex(tmp_path / "library", cache=tmp_path / "cache") as index:
        index.update()
        before = searching.LOOK.seconds
        searching.besides_the_look(lambda: index.search("anything"), times=1)
    assert searching.LOOK.seconds > before


def test_the_table_of_formats_counts_what_an_import_counts(tmp_path: Path) -> None:
    """Lines, messages, events and findings of each format, and what no writer holds; a file of no format is passed over."""
    said = {"role": "user", "content": "hi"}
    (tmp_path / "a.jsonl").write_text(json.dumps(said) + "\n" + json.dumps({"n": 1}) + "\ntorn\n")
    (tmp_path / "b.json").write_text("7")
    figures = formats.figures_of([str(tmp_path)])
    assert list(figures) == ["jsonl"]
    found = figures["jsonl"]
    assert (found.sessions, dict(found.counts)) == (1, {"lines": 3, "messages": 1, "events": 2})
    assert dict(found.findings) == {"not-json": 1}
    first = formats.tables(figures)[2]
    assert first.startswith("| `jsonl` | 1 | 3 | 1 | 2 | 1 not-json | ")
