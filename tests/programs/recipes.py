"""Sessions that the programs write today: ``python -m tests.programs.recipes INSTALL RESULT [RECIPE…]`` runs recipes, then the tests on RESULT.

A recipe (``recipes.d/*.sh``, else ``tools/programs/*.sh`` of the shared folder) installs a program, runs it without an account against
a model server on loopback, and collects what it stored: short, with tools, resumed, interrupted, killed, forked, undone, compacted. It
takes one to seven minutes, Linux, npm, tmux and root. Those of ``recipes.d`` end with 1 unless each prompt of their list was stored.
Without the shared folder, which has the model server, there is nothing to run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests import session_properties

HERE = Path(__file__).parent / "recipes.d"
RECIPES = {
    "llm": "logs.db",
    "kimi-code": "sessions/*/*/agents/main/wire.jsonl",
    "kimi-cli": "sessions/*/*/wire.jsonl",
    "grok": "sessions/*/*/updates.jsonl",
    "gptme": "logs/*/conversation.jsonl",
    "openclaw": "agents/*/agent/*.sqlite",
    "opencode": "opencode/*/opencode.db",
    "kilo": "kilo/*/kilo.db",
    "copilot": "copilot/*/session-state/*/events.jsonl",
}
"""What each leaves in its folder of results. tests/formats/test_made_sessions.py is about the last three."""
TESTS = "tests/formats/test_made_sessions.py"


MINUTES = 15
"""How long a recipe may take: twice what the longest one took on a busy machine."""


def make(recipe: str, install: Path, result: Path) -> str | None:
    """Run a recipe; why it made nothing, or None if it did. What it prints is in ``RESULT/RECIPE.log``."""
    shared = os.environ.get("TRANSCRIPT_STORE_SHARED")
    if shared is None:
        return "needs the recipes: TRANSCRIPT_STORE_SHARED is not set"
    command, folder = ["bash", f"{shared}/tools/programs/{recipe}.sh", str(install), str(result)], result
    if is_ours := (HERE / f"{recipe}.sh").is_file():
        folder = result / recipe
        command = ["bash", str(HERE / f"{recipe}.sh"), str(install / recipe), str(folder)]
    with open(result / f"{recipe}.log", "wb") as log:
        environ = os.environ | {"SKIP_IMPORT": "1"}
        done = subprocess.Popen(command, stdout=log, stderr=log, env=environ, start_new_session=True)
        try:
            done.wait(MINUTES * 60)
        except (
            subprocess.TimeoutExpired
        ):  # OpenCode's server sometimes does not end at SIGTERM, and its recipe waits for it
            os.killpg(done.pid, signal.SIGKILL)
            done.wait()
            return f"took more than {MINUTES} minutes; see {result / f'{recipe}.log'}"
    if not any(folder.glob(RECIPES[recipe])) or (is_ours and done.returncode):
        return f"made no {RECIPES[recipe]}, or not all (exit code {done.returncode}); see {result / f'{recipe}.log'}"
    return None


def main(install: Path, result: Path, recipes: list[str]) -> int:
    """Exit code 1 if a recipe made nothing, or a test fails on what it made."""
    result.mkdir(parents=True, exist_ok=True)
    failed = 0
    for recipe in recipes or RECIPES:
        why_not = make(recipe, install, result) and make(recipe, install, result)  # programs can be slow: once more
        print(f"{recipe}: {why_not or 'made'}", flush=True)
        failed |= why_not is not None
        if why_not is None and (result / recipe).is_dir():
            failed |= session_properties.check([result / recipe]) != 0
    tests = [sys.executable, "-m", "pytest", "-q", TESTS]
    return failed | (
        subprocess.run(tests, env=os.environ | {"TRANSCRIPT_STORE_MADE": str(result)}, check=False).returncode != 0
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
