"""Our page beside those of three others, of the same messages in one run: ``python -m tests.view.peers [--messages N] [--screenshots FOLDER]``.

Each gets them in the form of a program that it reads, as ``export --to`` writes it. What is told is the processor time of the whole
command, the bytes of HTML, and how long Chromium takes from the request to the second frame after ``load``, the fastest of three.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser

from benchmarks import environments
from tests.view import conversations
from tests.view.browser import chromium

_TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Page(NamedTuple):
    """What a program made of a conversation."""

    seconds: float
    """Of the processor."""
    size_bytes: int
    files: int
    first: Path


def transcript_store(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "transcript_store", *arguments]


def made(command: list[str], folder: Path, first: str) -> Page:
    """Run a command that writes into a folder; ``first`` is the page that one opens."""
    before = _used()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = _used() - before
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
    pages = [file for file in folder.rglob("*") if file.suffix in (".html", ".css", ".js")]
    return Page(seconds, sum(file.stat().st_size for file in pages), len(pages), folder / first)


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def exported(conversation: str, form: str, folder: Path) -> Path:
    """The conversation as a session of another program."""
    subprocess.run(
        transcript_store("export", conversation, "--to", form, "--output", str(folder)), check=True, capture_output=True
    )
    (file,) = folder.rglob("*.jsonl")
    return file


def installed(name: str, version: str) -> str:
    """A program of the Python package of its name, in an environment of its own."""
    python = environments.interpreter(environments.default_folder(), (f"{name}=={version}",))
    return str(python.with_name(name))


def rendered(conversation: str, folder: Path, pi: str | None) -> dict[str, Page]:
    """The pages of a conversation."""
    folders = {name: folder / name for name in ("ours", "log", "transcripts", "pi")}
    for one in folders.values():
        one.mkdir(parents=True)
    session, of_pi = (exported(conversation, form, folder / form) for form in ("claude-code", "pi"))
    log, transcripts = installed("claude-code-log", "1.7.0"), installed("claude-code-transcripts", "0.6")
    pages = {
        "transcript_store 0.1.0": made(
            transcript_store("view", conversation, "--output", str(folders["ours"] / "page.html")),
            folders["ours"],
            "page.html",
        ),
        "claude-code-log 1.7.0": made(
            [log, str(session), "--output", str(folders["log"] / "page.html")], folders["log"], "page.html"
        ),
        "claude-code-transcripts 0.6": made(
            [transcripts, "json", str(session), "--output", str(folders["transcripts"])],
            folders["transcripts"],
            "page-001.html",
        ),
    }
    if pi is not None:
        command = [pi, "--offline", "--export", str(of_pi), str(folders["pi"] / "page.html")]
        pages["pi's export 0.73.1"] = made(command, folders["pi"], "page.html")
    return pages


def loaded(browser: Browser, page: Path) -> str:
    """The seconds from the request to the second frame after ``load``, and what went wrong; nothing is fetched from anywhere."""
    took: list[float] = []
    errors: dict[str, None] = {}
    for _ in range(3):
        context = browser.new_context(viewport={"width": 1180, "height": 820})
        context.route("http*://**/*", lambda route: route.abort())
        view = context.new_page()
        view.set_default_timeout(300_000)
        view.on("pageerror", lambda error: errors.update({str(error): None}))
        began = time.perf_counter()
        view.goto(page.as_uri())
        view.evaluate(_TWO_FRAMES)
        took.append(time.perf_counter() - began)
        context.close()
    return f"{min(took):.2f} s" if not errors else f"fails: {'; '.join(errors)}"


def pictured(browser: Browser, page: Path, file: Path, *, down: int = 0) -> None:
    context = browser.new_context(viewport={"width": 1180, "height": 820}, color_scheme="light")
    context.route("http*://**/*", lambda route: route.abort())
    view = context.new_page()
    view.goto(page.as_uri())
    view.evaluate(_TWO_FRAMES)
    view.mouse.move(700, 500)
    view.mouse.wheel(0, down)
    view.wait_for_timeout(500)
    view.screenshot(path=file)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--screenshots", type=Path, help="put pictures of each page of a short conversation here")
    parser.add_argument("--pi", default=shutil.which("pi"), help="the program of @mariozechner/pi-coding-agent@0.73.1")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        if arguments.screenshots:
            arguments.screenshots.mkdir(parents=True, exist_ok=True)
            for name, page in rendered(
                conversations.showcase(Path(scratch, "c")), Path(scratch, "pages"), arguments.pi
            ).items():
                for down in (0, 800):
                    pictured(browser, page.first, arguments.screenshots / f"{name.split()[0]}-{down}.png", down=down)
            return
        path = conversations.store(Path(scratch, "c"), conversations.long(arguments.messages))
        print(
            f"| {arguments.messages:,} messages | written, processor time | HTML | loaded in Chromium |\n|---|---:|---:|---:|"
        )
        for name, page in rendered(path, Path(scratch, "pages"), arguments.pi).items():
            files = "" if page.files == 1 else f" in {page.files:,} files"
            print(
                f"| {name} | {page.seconds:.1f} s | {page.size_bytes / 1e6:.1f} MB{files} | {loaded(browser, page.first)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
