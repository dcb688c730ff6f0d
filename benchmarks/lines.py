"""What the package consists of: ``python benchmarks/lines.py [CHECKOUT]``: lines by kind, room by room, and the longest modules.

A line is code, a docstring, a comment or blank; a string that stands below a name counts as a docstring, as a line with code
and a comment counts as code. The core is what is left without what ``.ci/alone`` takes away, the contracts of users' tests and the
command line.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

CHECKOUT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
PACKAGE = CHECKOUT / "transcript_store"
KINDS = ("code", "docstring", "comment", "blank")
OUTER = {
    *("chat", "cli", "exporting", "formats", "importing", "integrations", "keeping", "mcp"),
    *("backends", "search", "serving", "sources", "testing", "usage", "view"),
}
LONGEST = 15


def kinds_in(text: str) -> Counter[str]:
    """How many lines of each kind a module has."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found = dict.fromkeys(range(1, text.count("\n") + 1), "blank")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            continue
        for number in range(token.start[0], token.end[0] + 1):
            if token.type != tokenize.COMMENT:
                found[number] = "code"
            elif found[number] == "blank":
                found[number] = "comment"
    found.update(dict.fromkeys(documented, "docstring"))
    return Counter(found.values())


def row(name: str, counts: Counter[str]) -> None:
    print(f"{name:<44}{counts.total():>8}" + "".join(f"{counts[kind]:>11}" for kind in KINDS))


def main() -> None:
    modules = {path.relative_to(PACKAGE): kinds_in(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    rooms: dict[str, Counter[str]] = {}
    for path, counts in modules.items():
        rooms.setdefault(path.parts[0], Counter()).update(counts)
    print(f"{'':<44}{'lines':>8}" + "".join(f"{kind:>11}" for kind in KINDS))
    for name in sorted(rooms, key=lambda name: (name in OUTER, name)):
        row(name, rooms[name])
    for name, chosen in (("the core", False), ("around it", True)):
        row(name, sum((counts for room, counts in rooms.items() if (room in OUTER) is chosen), Counter()))
    print(f"\nthe {LONGEST} longest of {len(modules)} modules")
    for path in sorted(modules, key=lambda path: -modules[path].total())[:LONGEST]:
        row(str(path), modules[path])


if __name__ == "__main__":
    main()
