"""docs/modules.md: every module and what it is for, from the first line of its docstring. ``python -m tests.module_list`` writes it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

TOP = Path(__file__).parent.parent
DOCUMENT = TOP / "docs/modules.md"
HEAD = """\
# Modules

Every module with the first line of its docstring, made by `python -m tests.module_list`. [architecture.md](architecture.md) says
what each folder decides and where a change begins.
"""


_DOCSTRING = re.compile(r'(?:\s|#.*\n)*r?""".*?(?<!\\)"""', re.DOTALL)


def module_list() -> str:
    """The document as it should be."""
    folders = defaultdict(list)
    for path in sorted((TOP / "transcript_store").rglob("*.py")):
        begin = _DOCSTRING.match(path.read_text(encoding="utf-8"))  # parsing the whole file would take 1.5 s for all
        said = ast.get_docstring(ast.parse(begin[0])) or "" if begin is not None else ""
        folders[path.parent.relative_to(TOP).as_posix()].append(f"- `{path.stem}`: {said.partition(chr(10))[0]}\n")
    return HEAD + "".join(f"\n## {folder}/\n\n{''.join(lines)}" for folder, lines in sorted(folders.items()))


if __name__ == "__main__":
    DOCUMENT.write_text(module_list(), encoding="utf-8")
