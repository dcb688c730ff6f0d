"""Fuzz for longer than CI does: ``python -m tests.fuzz [--seconds N] [--keep] [--share K/N] [TARGET …]``."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.fuzzing import fuzz
from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[*TARGETS, []], help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=300, help="for each target (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="add what reaches new code to the corpus")
    parser.add_argument("--share", default="0/1", metavar="K/N", help="each Nth target, from the Kth (default: all)")
    given = parser.parse_args()
    first, every = map(int, given.share.split("/"))
    failed = False
    for target in [*(given.targets or TARGETS)][first::every]:
        try:
            count = fuzz(target, f"-max_total_time={given.seconds}", keep=given.keep)
        except AssertionError as error:  # the other targets still run
            failed = True
            print(error, flush=True)
        else:
            print(f"{target}: {count} inputs, none failed", flush=True)
    sys.exit(failed)
