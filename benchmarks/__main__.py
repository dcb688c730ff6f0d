"""Run the measurements and print them as tables. Nothing is asserted: the targets stand beside the numbers."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks import machine
from benchmarks.beyond import BEYOND
from benchmarks.comparisons import COMPARISONS, Field, growth
from benchmarks.environments import default_folder
from benchmarks.measurements import MEASUREMENTS, Workplace
from benchmarks.results import Comparison, MissingError, Results, Row
from benchmarks.timing import in_unit

_PARTS = (*MEASUREMENTS, *COMPARISONS, "growth", *BEYOND)
_DOCUMENTS = Path(__file__).resolve().parent.parent / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=sys.modules["benchmarks"].__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages and fewer rounds")
    parser.add_argument("--only", choices=_PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument(
        "--beyond", action="store_true", help="only what is built on the log; --write keeps the other figures"
    )
    parser.add_argument("--directory", type=Path, help="where the files go; on a real disk")
    parser.add_argument(
        "--environments", type=Path, default=default_folder(), help="where the peers are installed, and stay"
    )
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md and its plots (extra [bench])")
    parser.add_argument(
        "--again", action="store_true", help="measure nothing: write them from the figures of the last --write"
    )
    options = parser.parse_args()
    if options.beyond:
        options.only = [*BEYOND]
    if options.write or options.again:
        from benchmarks import document

        if options.again:
            document.write(_DOCUMENTS, document.read(_DOCUMENTS))
            return

    parent = options.directory or machine.default_directory(Path(tempfile.gettempdir()))
    ended: list[int] = []

    def end(number: int, _: object) -> None:
        ended.append(number)
        sys.exit(1)  # as Ctrl-C: no files, no processes are left

    signal.signal(signal.SIGTERM, end)
    try:
        with tempfile.TemporaryDirectory(prefix=".benchmarks-", dir=parent) as directory:
            results = _run(Path(directory), options)
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; nothing is left behind")
    if ended:
        sys.exit(1)  # Python ignores what is raised while an object is finalized
    if options.write:
        if options.beyond:
            known = document.read(_DOCUMENTS)
            results = replace(known, beyond=results.beyond, beyond_machine=results.beyond_machine)
        document.write(_DOCUMENTS, results)


def _run(directory: Path, options: argparse.Namespace) -> Results:
    described = machine.describe(directory)
    results = Results(described, beyond_machine=described)
    print("\n".join(f"{name}: {value}" for name, value in results.machine.items()))
    if results.machine["files on"] in machine.IN_MEMORY:
        print("THE DURABLE FIGURES MEAN NOTHING HERE: use --directory on a real disk")
    parts = options.only or _PARTS
    place = Workplace(directory, quick=options.quick)
    results.rows = _rows({name: part for name, part in MEASUREMENTS.items() if name in parts}, place)
    results.beyond = _rows({name: part for name, part in BEYOND.items() if name in parts}, place)
    if any(name not in MEASUREMENTS and name not in BEYOND for name in parts):
        field = Field(directory, options.environments, options.quick, _say)
        field.gather()
        for name in COMPARISONS:
            if name in parts:
                for comparison in COMPARISONS[name](field):
                    _print_comparison(comparison)
                    results.comparisons.append(comparison)
        if "growth" in parts:
            results.curves.extend(growth(field))
            _say("")
    return results


def _rows(parts: Mapping[str, Callable[[Workplace], Iterator[Row]]], place: Workplace) -> list[Row]:
    found: list[Row] = []
    if parts:
        print()
        _print_row("", "ours", "beside", "ratio", "middle half", "target", "")
    for name, part in parts.items():
        _say(name)
        try:
            for row in part(place):
                _print(row)
                found.append(row)
                _say(name)
        except MissingError as error:
            _say("")
            print(f"{name}: not measured. It needs {error}", flush=True)
    _say("")
    return found


def _print(row: Row) -> None:
    target = "" if row.limit is None else f"{row.target:<7} {'met' if row.is_met else 'MISSED'}"
    _print_row(row.what, row.ours, row.beside, row.shown, row.spread, target, row.note)


def _print_row(what: str, ours: str, beside: str, value: str, spread: str, target: str, note: str) -> None:
    _say("")
    print(f"{what:<58}{ours:>9}{beside:>10}{value:>8}  {spread:<14}{target:<15}{note}".rstrip(), flush=True)


def _print_comparison(comparison: Comparison) -> None:
    _say("")
    print(f"\n{comparison.title}" + (f" (× {comparison.beside})" if comparison.beside else ""))
    for figure in comparison.figures:
        value = "–" if figure.value is None else in_unit(figure.value.median, comparison.unit)
        ratio = "" if figure.ratio is None else f"× {figure.ratio.median:.3g}"
        print(f"{figure.contender:<58}{value:>12}{ratio:>12}  {figure.note}".rstrip(), flush=True)


def _say(what: str) -> None:
    """What is going on now, on a line that the next one takes the place of; what ends a line stays."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what[:100]}", end="", file=sys.stderr, flush=True)
    elif what.endswith("\n"):
        print(what, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
