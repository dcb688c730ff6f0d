"""The pictures of README and docs/view.md are current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[2]
PICTURES = TOP / "docs" / "view"
KILOBYTE = 1024


def test_every_picture_is_there_small_and_used():
    """No picture is missing, too large for a repository, or left over from earlier."""
    documents = "".join((TOP / name).read_text(encoding="utf-8") for name in ("README.md", "docs/view.md"))
    pictures = {path.name: path.stat().st_size for path in PICTURES.glob("*.png")}
    notes = json.loads(Path(__file__).with_name("screenshots.json").read_text(encoding="utf-8"))
    assert {f"{name}.png" for name in notes} <= pictures.keys()
    assert [name for name in pictures if f"view/{name}" not in documents] == []
    assert {name: size for name, size in pictures.items() if size > 150 * KILOBYTE} == {}


@pytest.mark.long
@pytest.mark.needs("chromium")
def test_the_pictures_show_what_pages_and_lists_are_today(browser: Any):
    """Words and styles are those of the day on which they were taken; else: ``python -m tests.view.screenshots``."""
    from tests.view.screenshots import SHOWN, pictured, shown

    noted = json.loads(SHOWN.read_text(encoding="utf-8"))
    for name, page in pictured(browser):
        if name in noted:
            assert shown(page) == noted[name], name
