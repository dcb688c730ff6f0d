"""One line of a message took minutes: its patterns, or what was done for each of its images, took the square of it or more.

The incident: ``view`` of a message with a line of 96,000 bars and a letter took 75 seconds, an export of one with 12,000 unfinished images
as long, and an import of an Antigravity request of 20,000 blanks never ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from transcript_store.formats._antigravity import _MODEL
from transcript_store.formats._cline import typed_in_cline
from transcript_store.formats._kiro import _typed_in
from transcript_store.view._as_markdown import prose
from transcript_store.view._rich_text import markdown

SHAPES: dict[str, tuple[Callable[[str], object], str, str, str]] = {
    "bars and a letter": (markdown, "", "|", "x"),
    "heads and a letter": (markdown, "a|b\n", "|-", "x"),
    "quoted heads": (markdown, "a|b\n", "> |-", "x"),
    "images in links": (prose, "", "[![a](b)", ""),
    "elements of Cline": (lambda said: typed_in_cline(["[a] Result:", said]), "", "<task>", ""),
    "a prompt of Kiro": (_typed_in, "--- CONTEXT ENTRY BEGIN ---\n--- USER MESSAGE BEGIN ---", " ", "x"),
    "models of Antigravity": (_MODEL.search, "", "setting Model Selection from ", ""),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_line_takes_time_by_its_length(name: str) -> None:
    function, before, piece, after = SHAPES[name]

    def seconds(size: int) -> float:
        text = before + piece * (size // len(piece)) + after
        began = time.process_time()
        function(text)
        return time.process_time() - began

    small, large = seconds(5_000), seconds(40_000)
    assert large < 24 * small + 0.5, f"{small:.3f} s, and {large:.3f} s for eight times the text"


def test_elements_of_cline_are_found_as_before() -> None:
    said = "[a] Result: <task>1<feedback> 2 </feedback></task> <answer>never <task x='y'> 3 </task> <task>open"
    assert typed_in_cline([said]) == {"scaffolding": {"typed": "1<feedback> 2 </feedback>\n\n3"}}
