"""The rules of the house that no tool checks, read from the source. (``lint-imports`` checks which folder may import which.)

The incident: ``chat`` and the snapshots' adapter used four private members of ``ConversationStore``, and the command line 17
private modules, under a docstring that said "each command is a call on the library and a print".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

import transcript_store

PACKAGE = Path(transcript_store.__file__).parent
TESTS = Path(__file__).parent
SOURCES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


@cache  # read by the worker that asks, not by each that collects the tests
def parsed(module: str) -> ast.Module:
    return ast.parse((PACKAGE / module).read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_in(tree: ast.AST) -> set[str]:
    """The private names that a module or a class defines: functions, classes, variables, and members that it sets."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in found if is_private(name)}


def uses_of_others(tree: ast.Module, members: Set[str]) -> Iterator[str]:
    """Where a module uses a private member, one of ``members``, that is not its own.

    Its own are those that it defines; within a class, on anything but ``self`` and ``cls``, those that the class defines.
    """

    def walk(node: ast.AST, of_class: set[str]) -> Iterator[str]:
        if isinstance(node, ast.ClassDef):
            of_class = defined_in(node)
        if isinstance(node, ast.Attribute) and node.attr in members:
            on_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr not in (of_module if on_itself else of_class):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        for child in ast.iter_child_nodes(node):
            yield from walk(child, of_class)

    of_module = defined_in(tree)
    return walk(tree, of_module)


@cache
def ours() -> frozenset[str]:
    return frozenset().union(*(defined_in(parsed(module)) for module in SOURCES))


@pytest.mark.parametrize("module", SOURCES)
def test_a_private_member_is_used_where_it_is_defined(module):
    """What another module needs has a public name. Members that are nobody's of ours (``os._exit``) are another matter."""
    assert list(uses_of_others(parsed(module), ours())) == []


@pytest.mark.parametrize("module", SOURCES)
def test_no_private_name_is_imported(module):
    """A module may be private to its folder, and then the folder's name or its own says so; what it gives others is public."""
    modules = {name.removesuffix(".py").replace("/", ".") for name in SOURCES}
    imported = [
        f"line {node.lineno}: {node.module} {alias.name}"
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transcript_store")
        for alias in node.names
        if is_private(alias.name) and f"{node.module}.{alias.name}".removeprefix("transcript_store.") not in modules
    ]
    assert imported == []


@pytest.mark.parametrize("module", [name for name in SOURCES if not name.startswith(("chat/", "cli/", "testing/"))])
def test_the_core_does_not_import_the_package_that_opens_it(module):
    """The package's own file imports the doors when a name is asked for; a door that asked it for one would ask itself."""
    imports = [
        node.lineno
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.ImportFrom) and node.module == "transcript_store"
    ]
    assert imports == []


def test_no_test_imports_from_a_test():
    """What two tests need stands in tests/kit, or in the helpers beside them."""
    imports = [
        f"{path.relative_to(TESTS)}, line {node.lineno}: {node.module}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and f".{node.module}".rpartition(".")[2].startswith("test_")
    ]
    assert imports == []


INSIDE = {
    "chat/test_contract.py": "a client is broken, to see whether its contract notices",
    "crash/seeded_bugs.py": "stores are broken, to see whether the crash tests notice",
    "crash/test_attacks.py": "a lock is broken, to see whether the attacks notice",
    "integrations/openai_agents/test_contract.py": "the SDK calls two hooks of a session that are private there",
    "places/test_contract.py": "places are broken, to see whether their contract notices",
    "places/test_postgres.py": "the plans of its statements are looked at",
    "places/test_snapshots.py": "another session is put between a look and a put",
    "places/test_snapshot_bugs.py": "rules of stores of snapshots are left out, to see whether the schedules notice",
    "places/test_seeded_bugs.py": "rules are left out, to see whether the loss is noticed",
    "kit/scratch.py": "what an interrupted call left open has no public list",
    "test_group_commit.py": "who waits in a group is nowhere else to be seen",
    "sealed/test_seeded_bugs.py": "sealing that is broken on purpose is broken inside",
    "test_mutations.py": "what is broken is the check of a hash, to see whether the mutations notice",
}
"""Tests that know private members of ours, and why."""


def private_members_used(module: str) -> list[str]:
    text = (TESTS / module).read_text()
    lines = text.splitlines()
    uses = uses_of_others(ast.parse(text), ours())
    return [use for use in uses if "  # " not in lines[int(use.removeprefix("line ").partition(":")[0]) - 1]]


def test_no_test_uses_a_private_member():
    """What only a private member shows, nobody can rely on. A line that needs one all the same says why."""
    modules = [str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py")]
    used = {module: private_members_used(module) for module in modules if not module.startswith("mutants/")}
    assert {module: uses for module, uses in used.items() if uses and module not in INSIDE} == {}
    assert [module for module in INSIDE if module in used and not used[module]] == []  # .ci/alone takes some away


def test_no_test_has_a_json_strategy_of_its_own():
    """What a message may hold is drawn by ``testing.strategies``, which everybody has: one place knows the edges."""
    own = [
        f"{path.relative_to(TESTS)}, line {node.lineno}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "recursive"
    ]
    assert own == []


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
