"""One fuzzer on one target: ``python -m tests.fuzz.worker TARGET [libFuzzer's options and corpora]``."""

from __future__ import annotations

import logging
import sys

import atheris

with atheris.instrument_imports(include=["transcript_store"]):
    from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
