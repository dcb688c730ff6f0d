"""Fuzz for longer than CI does: ``python -m tests.fuzz [--seconds N] [--keep] [TARGET …]``."""

from __future__ import annotations

import argparse

from tests.fuzz.fuzzing import fuzz
from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[*TARGETS, []], help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=300, help="for each target (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="add what reaches new code to the corpus")
    given = parser.parse_args()
    for target in given.targets or TARGETS:
        count = fuzz(target, f"-max_total_time={given.seconds}", keep=given.keep)
        print(f"{target}: {count} inputs, none failed", flush=True)
