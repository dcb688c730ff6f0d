"""The printed examples of docs/integrations.md, each to be run where its framework is."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


def examples(heading: str) -> list[str]:
    """The blocks of Python under this heading of the second level."""
    section = PAGE.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
