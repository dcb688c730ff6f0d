"""Try a sample of the mutants by hand: ``python -m tests.mutants [--count N] [--seed N] [--seconds N] [--workers N] [MODULE …]``."""

from __future__ import annotations

import argparse
import os
from difflib import unified_diff

from tests.mutants.judged import JUDGED
from tests.mutants.running import PACKAGE, SEED, WHERE, Outcome, Place, places, run, sample


def difference(place: Place) -> str:
    """A mutant as a patch."""
    source = (PACKAGE / place.module).read_bytes()
    before, after = (text.decode().splitlines() for text in (source, place.mutant.applied_to(source)))
    name = f"transcript_store/{place.module}"
    return "\n".join(unified_diff(before, after, name, name, n=2, lineterm=""))


def table(outcomes: list[Outcome], judged: list[Place]) -> str:
    """What came of them, module by module."""
    rows = [f"{'module':<32}{'made':>6}{'killed':>8}{'survived':>10}{'judged':>8}"]
    modules = sorted({str(place.module) for place in [*judged, *(outcome.place for outcome in outcomes)]})
    for module in [*modules, ""]:
        tried = [outcome for outcome in outcomes if module in ("", str(outcome.place.module))]
        killed = sum(outcome.is_killed for outcome in tried)
        known = sum(module in ("", str(place.module)) for place in judged)
        rows.append(
            f"{module or 'all':<32}{len(tried) + known:>6}{killed:>8}{len(tried) - killed:>10}{known:>8}"
            + (f"{killed / len(tried):>8.1%}" if tried else "")
        )
    return "\n".join(rows)


def _told(outcome: Outcome) -> None:
    if not outcome.is_killed:
        came_near = f"{outcome.tests} tests run it" if outcome.tests else "no test runs it"
        print(f"\nsurvived, {came_near}: {outcome.place.mutant.operator} in {outcome.place.mutant.name}")
        print(difference(outcome.place), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="within the package, as *.py patterns (default: all)"
    )
    parser.add_argument("--count", type=int, default=400, help="how many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="which ones (default: %(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="of tests that may run against one, the quickest (default: %(default)s)",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="at a time (default: %(default)s)")
    given = parser.parse_args()
    found = places(given.modules or WHERE)
    chosen = sample(found, given.count, given.seed)
    judged = [place for place in chosen if place.mutant.name in JUDGED]
    wanted = [place for place in chosen if place.mutant.name not in JUDGED]
    print(f"{len(chosen)} of {len(found)} mutants, seed {given.seed}", flush=True)
    outcomes, near = run(wanted, workers=given.workers, seconds=given.seconds, told=_told)
    if near.failed:
        print("\nnot held against any mutant, for they did not pass without one:", *near.failed, sep="\n  ")
    print(f"\n{table(outcomes, judged)}")


if __name__ == "__main__":
    main()
