"""Run the fuzzer on a target for a while, with its corpus to begin with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def fuzz(target: str, bound: str, *, keep: bool = False) -> int:
    """Fuzz up to libFuzzer's bound, ``-runs=N`` or ``-max_total_time=SECONDS``; returns how many inputs were tried.

    Raises ``AssertionError`` with the input that failed.

    With ``keep``, inputs that reach code that none in the corpus reached are added to it.
    """
    corpus = CORPUS / target
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found")
        found.mkdir()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.fuzz.worker",
                target,
                bound,
                "-timeout=60",
                "-rss_limit_mb=1024",
                "-max_len=4096",
                "-print_final_stats=1",
                f"-artifact_prefix={folder}/",
                str(corpus if keep else found),
                str(corpus),
            ],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TMPDIR": folder},  # libFuzzer ends the process without its exit handlers
        )
        failed = [(path.name, path.read_bytes()) for path in Path(folder).iterdir() if path.is_file()]
    assert done.returncode == 0, f"{target}: {failed}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    assert counted is not None, f"{target}: it does not say how much it tried\n{done.stderr[-2000:]}"
    return int(counted[1])
