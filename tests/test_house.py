"""The rules of the house that no tool checks, read from the source. (``lint-imports`` checks which folder may import which.)

The incident: ``chat`` and the snapshots' adapter used four private members of ``ConversationStore``, and the command line 17
private modules, under a docstring that said "each command is a call on the library and a print".
"""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

import transcript_store
from tests.module_list import DOCUMENT, module_list

pytestmark = pytest.mark.long  # `.ci/run` runs them first, with the linters: users of the package do not need them
PACKAGE = Path(transcript_store.__file__).parent
TESTS = Path(__file__).parent
SOURCES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


@cache  # one worker has all of these tests: a part of a second, where each alone takes three
def texts(top: Path) -> dict[str, str]:
    """The source of each module below a folder, by its path."""
    return {str(path.relative_to(top)): path.read_text(encoding="utf-8") for path in sorted(top.rglob("*.py"))}


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(texts(PACKAGE)[module])


@pytest.fixture(autouse=True, scope="module")
def _trees_are_let_go() -> Iterator[None]:
    """Trees are 600,000 objects: kept to the end of the run, each collection of garbage would be removed through them, a third of a second."""
    gc.disable()
    yield
    for kept in (texts, parsed, private_names_of, ours):
        kept.cache_clear()
    gc.enable()


def imports_of(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """An import is a statement: expressions, nine nodes of ten, are left out."""
    ahead: list[ast.AST] = [tree]
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.ImportFrom):
            yield node
        for part in ("cases", "finalbody", "orelse", "handlers", "body"):
            ahead += reversed(getattr(node, part, ()))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.Module) -> tuple[set[str], list[tuple[ast.Attribute, set[str], set[str]]]]:
    """In one walk, for the package is a million nodes: the private names that a module defines (functions, classes, variables, and
    members that it sets), and each private member that it uses, with those that the module defines and those of the class around it.
    """
    of_module: set[str] = set()
    used: list[tuple[ast.Attribute, set[str], set[str]]] = []
    ahead: list[tuple[ast.AST, tuple[set[str], ...]]] = [(tree, (of_module,))]
    while ahead:
        node, around = ahead.pop()
        name = None
        if isinstance(node, ast.Attribute):
            name = node.attr if isinstance(node.ctx, ast.Store) else None
            if is_private(node.attr):
                used.append((node, of_module, around[-1]))
        elif isinstance(node, ast.Name):
            name = node.id if isinstance(node.ctx, ast.Store) else None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
            if isinstance(node, ast.ClassDef):
                around = (*around, set())
        if name is not None and is_private(name):
            for names in around:
                names.add(name)
        below = [each for value in vars(node).values() for each in (value if isinstance(value, list) else (value,))]
        ahead += [(each, around) for each in reversed(below) if isinstance(each, ast.AST) and each._fields]
    return of_module, used


def uses_of_others(tree: ast.Module, members: Set[str]) -> Iterator[str]:
    """Where a module uses a private member, one of ``members``, that is not its own.

    Its own are those that it defines; within a class, on anything but ``self`` and ``cls``, those that the class defines.
    """
    return others_of(private_names(tree)[1], members)


def others_of(used: list[tuple[ast.Attribute, set[str], set[str]]], members: Set[str]) -> Iterator[str]:
    for node, of_module, of_class in used:
        on_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if node.attr in members and node.attr not in (of_module if on_itself else of_class):
            yield f"line {node.lineno}: {ast.unparse(node)}"


@cache
def private_names_of(module: str) -> tuple[set[str], list[tuple[ast.Attribute, set[str], set[str]]]]:
    return private_names(parsed(module))


@cache
def ours() -> frozenset[str]:
    return frozenset().union(*(private_names_of(module)[0] for module in SOURCES))


def test_a_private_member_is_used_where_it_is_defined():
    """What another module needs has a public name. Members that are nobody's of ours (``os._exit``) are another matter."""
    used = {module: list(others_of(private_names_of(module)[1], ours())) for module in SOURCES}
    assert {module: uses for module, uses in used.items() if uses} == {}


def test_no_private_name_is_imported():
    """A module may be private to its folder, and then the folder's name or its own says so; what it gives others is public."""
    modules = {name.removesuffix(".py").replace("/", ".") for name in SOURCES}
    imported = [
        f"{module}, line {node.lineno}: {node.module} {alias.name}"
        for module in SOURCES
        for node in imports_of(parsed(module))
        if (node.module or "").startswith("transcript_store")
        for alias in node.names
        if is_private(alias.name) and f"{node.module}.{alias.name}".removeprefix("transcript_store.") not in modules
    ]
    assert imported == []


def test_the_core_does_not_import_the_package_that_opens_it():
    """The package's own file imports the doors when a name is asked for; a door that asked it for one would ask itself."""
    imports = [
        f"{module}, line {node.lineno}"
        for module in SOURCES
        if not module.startswith(("chat/", "cli/", "testing/", "pytest_plugin"))
        for node in imports_of(parsed(module))
        if node.module == "transcript_store"
    ]
    assert imports == []


def test_no_test_imports_from_a_test():
    """What two tests need stands in tests/kit, or in the helpers beside them."""
    imports = [
        f"{module}, line {node.lineno}: {node.module}"
        for module, text in texts(TESTS).items()
        if re.search(r"^\s*from [\w.]*\btest_", text, re.MULTILINE)
        for node in imports_of(ast.parse(text))
        if f".{node.module}".rpartition(".")[2].startswith("test_")
    ]
    assert imports == []


INSIDE = {
    "chat/test_contract.py": "a client is broken, to see whether its contract notices",
    "crash/seeded_bugs.py": "stores are broken, to see whether the crash tests notice",
    "crash/test_attacks.py": "a lock is broken, to see whether the attacks notice",
    "integrations/openai_agents/test_contract.py": "the SDK calls two hooks of a session that are private there",
    "backends/test_backup_file.py": "a rule of the file is left out, to see whether the kills notice",
    "backends/test_contract.py": "backends are broken, to see whether their contract notices",
    "backends/test_postgres.py": "the plans of its statements are looked at",
    "backends/test_snapshots.py": "another session is put between a look and a put",
    "backends/test_snapshot_bugs.py": "rules of snapshot stores are left out, to see whether the schedules notice",
    "backends/test_seeded_bugs.py": "rules are left out, to see whether the loss is noticed",
    "kit/scratch.py": "what an interrupted call left open has no public list",
    "test_group_commit.py": "who waits in a group is nowhere else to be seen",
    "sessions/test_power_cuts.py": "the journal is broken, to see whether the power cuts notice",
    "sealed/test_seeded_bugs.py": "sealing that is broken on purpose is broken inside",
    "test_mutations.py": "what is broken is the check of a hash, to see whether the mutations notice",
}
"""Tests that know private members of ours, and why."""


def private_members_used(module: str) -> list[str]:
    text = texts(TESTS)[module]
    lines = text.splitlines()
    code = [
        re.sub(r"^\s*(from|import) .*|[\"']transcript_store[\w.]*", "", line)
        for line in lines
        if "._" in line and "  # " not in line
    ]
    named = {found for line in code for found in re.findall(r"(\w*)\.(_\w+)", line)}
    own = set(re.findall(r"\b(?:def |self\.)(_\w+)(?=\(self|: [^=]* = | = )", text))
    if not any(name in ours() and not (of == "self" and name in own) for of, name in named):
        return []  # and need not be parsed
    uses = uses_of_others(ast.parse(text), ours())
    return [use for use in uses if "  # " not in lines[int(use.removeprefix("line ").partition(":")[0]) - 1]]


def test_no_test_uses_a_private_member():
    """What only a private member shows, nobody can rely on. A line that needs one all the same says why."""
    used = {module: private_members_used(module) for module in texts(TESTS) if not module.startswith("mutants/")}
    assert {module: uses for module, uses in used.items() if uses and module not in INSIDE} == {}
    assert [module for module in INSIDE if module in used and not used[module]] == []  # .ci/alone takes some away


def test_no_test_has_a_json_strategy_of_its_own():
    """What a message may hold is drawn by ``testing.strategies``, which everybody has: one place knows the edges."""
    own = [
        f"{module}, line {node.lineno}"
        for module, text in texts(TESTS).items()
        if ".recursive" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr == "recursive"
    ]
    assert own == []


NAMES = TESTS / "house_names.txt"
WORDS = TESTS / "house_words.txt"


def exceptions(path: Path) -> dict[str, int]:
    """What a file of exceptions allows: on each line a word or words, and how often they may occur."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {words: int(count) for words, _, count in (line.rpartition(" ") for line in lines)}


def beyond(found: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """What occurs more often than it may, and the exceptions that nothing needs any more. One of 0 is a word that is forbidden."""
    more = [
        f"{what}: {count}, allowed {allowed.get(what, 0)}"
        for what, count in found.items()
        if count > allowed.get(what, 0)
    ]
    return more + [f"{what}: take it out of the list" for what, most in allowed.items() if most and not found.get(what)]


def defined_twice(kind: str, pattern: str) -> dict[str, int]:
    """Names that several modules of the package define at their top level, each with how many do."""
    found = Counter(
        f"{kind} {name}" for text in texts(PACKAGE).values() for name in set(re.findall(pattern, text, re.MULTILINE))
    )
    return {name: count for name, count in found.items() if count > 1}


def of_kind(kind: str) -> dict[str, int]:
    return {name: count for name, count in exceptions(NAMES).items() if name.startswith(f"{kind} ")}


def test_no_class_has_the_name_of_another():
    """tests/house_names.txt has those that have one today. It may only shrink."""
    assert beyond(defined_twice("class", r"^class (\w+)"), of_kind("class")) == []


def test_no_public_function_has_the_name_of_another():
    """The same for the functions of a module whose names do not begin with an underscore."""
    assert beyond(defined_twice("def", r"^(?:async )?def ([a-z]\w*)"), of_kind("def")) == []


def test_every_room_and_module_is_on_the_map() -> None:
    """docs/architecture.md has a row for each folder with its size, and names no module that is gone; docs/modules.md has a line for
    each module: ``python -m tests.module_list``.
    """
    page = (TESTS.parent / "docs/architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)/` \|.*\| ([\d,]+) \| ", page, re.MULTILINE))
    folders = {path.parent for path in PACKAGE.glob("*/__init__.py")}
    assert len(folders) > 5
    for folder in folders:
        lines = sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob("*.py"))
        assert 0.6 < lines / int(rows[folder.name].replace(",", "")) < 1.6, folder.name
    named = {path.partition(".")[0] for path in re.findall(r"`(_?[a-z]+/[\w/.]+?)/?`", page)}
    there = {folder.name for folder in folders}
    gone = [path for path in named if path.partition("/")[0] in there and not [*PACKAGE.glob(f"{path}*")]]
    assert gone == []
    assert DOCUMENT.read_text(encoding="utf-8") == module_list()


def test_no_word_that_was_replaced_comes_back():
    """In code, help, errors and documents tests/house_words.txt has how often each still occurs. It may only shrink."""
    documents = [TESTS.parent / "README.md", TESTS.parent / "CONTRIBUTING.md", *(TESTS.parent / "docs").glob("*.md")]
    documents.remove(TESTS.parent / "docs/modules.md")  # says again what stands in the package
    written = [*texts(PACKAGE).values(), *(path.read_text(encoding="utf-8") for path in documents)]
    text = "\n".join(written).lower().replace("_", " ")
    allowed = exceptions(WORDS)
    assert beyond(Counter(re.findall(rf"\b(?:{'|'.join(allowed)})\b", text)), allowed) == []


def test_the_lists_of_exceptions_only_shrink():
    """One more is told, and so is an exception that nothing needs."""
    assert beyond({"class A": 3, "class B": 2}, {"class B": 2, "class C": 2}) == [
        "class A: 3, allowed 0",
        "class C: take it out of the list",
    ]
    assert beyond({"told": 4}, {"told": 5, "spool": 0}) == []
    assert beyond({"spool": 1}, {"spool": 0}) == ["spool: 1, allowed 0"]


def test_the_readers_of_this_house_notice():
    """Each kind of what is refused, in a module of a friend, is found; what a class does with another of its kind is not."""
    module = ast.parse(
        "class Client:\n"
        "    def __init__(self, conversation):\n"
        "        self._storage = conversation\n"
        "    def __eq__(self, other):\n"
        "        return self._storage == other._storage and os._exit(0)\n"
        "    def head(self):\n"
        "        return self._storage._log.head + self._mark\n"
        "def size(conversation):\n"
        "    return conversation._log\n"
    )
    assert list(uses_of_others(module, {"_storage", "_log", "_mark"})) == [
        "line 7: self._storage._log",
        "line 7: self._mark",
        "line 9: conversation._log",
    ]
