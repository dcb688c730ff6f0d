"""Mistakes as people make them: each is one replacement in the text of a module.

Made are those within functions that may change what the store does. Not made: in ``__del__`` and ``__repr__``, in
docstrings, annotations and asserts, in the text of messages, in what is raised, in what is logged. Nor is a sync left out:
tests/crash/test_sync_mutants.py leaves out each of them alone, and only power cuts notice that.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from hashlib import sha256

_SYNCS = ("sync", "_sync", "sync_data", "sync_to_copy")
_NOT_IN = ("__del__", "__repr__")
_COMPARISONS: dict[type[ast.cmpop], Callable[[], ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutant:
    """One replacement: bytes ``start`` to ``end`` of a module become ``text``."""

    name: str
    """The function, what stood there and what stands there now. Does not name the module, which may move."""
    operator: str
    start: int
    end: int
    text: str
    statement: int
    """Where the statement begins that it is in: who runs that statement may notice."""

    def applied_to(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def rank(self, seed: int) -> str:
        """Its place in a sample, which no change elsewhere moves."""
        return sha256(f"{seed} {self.name}".encode()).hexdigest()


def mutants_of(source: bytes) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    maker = _Maker(source)
    maker.visit(ast.parse(source))
    return sorted(maker.made, key=lambda mutant: (mutant.start, mutant.end, mutant.operator))


class _Maker(ast.NodeVisitor):
    """Walks a module; ``_function`` and ``_statement`` are where it is."""

    def __init__(self, source: bytes) -> None:
        self.made: list[Mutant] = []
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._names: list[str] = []
        self._is_in_function = False
        self._statement = 0
        self._known: Counter[str] = Counter()
        self._ends: set[ast.stmt] = set()
        """What a loop goes on after anyhow."""

    # ---- making --------------------------------------------------------------------------------------------------

    def _make(self, operator: str, node: ast.stmt | ast.expr, becomes: str) -> None:
        self._add(operator, self._start(node), self._end(node), becomes)

    def _add(self, operator: str, start: int, end: int, text: str) -> None:
        if not self._is_in_function:
            return
        line = self._source.rfind(b"\n", 0, start) + 1
        line_end = self._source.find(b"\n", end)
        head, tail = self._source[line:start].decode(), self._source[end:line_end].decode()
        before, after = (_on_one_line(head + part + tail) for part in (self._source[start:end].decode(), text))
        name = f"{'.'.join(self._names)}: {before} → {after}"
        self._known[name] += 1
        if self._known[name] > 1:
            name += f" ({self._known[name]})"
        self.made.append(Mutant(name, operator, start, end, text, self._statement))

    def _start(self, node: ast.stmt | ast.expr) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    # ---- where it is ---------------------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> None:
        """Visit a node; a statement is noted, except an ``elif``, which is run where its ``if`` is."""
        around = self._statement
        if isinstance(node, ast.stmt) and not self._source.startswith(b"elif", self._start(node)):
            self._statement = self._start(node)
        super().visit(node)
        self._statement = around

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within(node, is_function=False)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in _NOT_IN:
            self._within(node, is_function=True)

    def _within(self, node: ast.ClassDef | ast.FunctionDef, *, is_function: bool) -> None:
        before, self._is_in_function = self._is_in_function, is_function
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
            if isinstance(node, ast.FunctionDef) and statement is not node.body[0] and _may_return_there(node):
                self._return_early(statement)
        self._names.pop()
        self._is_in_function = before

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._drop_a_member(node, [node.target])

    def visit_Assert(self, node: ast.Assert) -> None:
        """Tells the type checker something, and nobody else."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """The text of a message."""

    # ---- the mistakes --------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Constant) or _is_logging(call) or _is_sync(call):
            return
        if isinstance(call, ast.Call):
            self._make("statement dropped", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if not _is_assertion(node):
            self._make("statement dropped", node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        if node not in self._ends:
            self._make("statement dropped", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._make("statement dropped", node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._make("statement dropped", node, "pass")

    def visit_Assign(self, node: ast.Assign) -> None:
        self._drop_a_member(node, node.targets)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._make("statement dropped", node, "pass")
        self.generic_visit(node)

    def _drop_a_member(self, node: ast.stmt, targets: list[ast.expr]) -> None:
        """A local name that is not assigned is an error at once: no mistake that anybody could make."""
        is_member = all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        if is_member and self._names[-1] != "__init__":  # nor is a member that is missing from the beginning
            self._make("statement dropped", node, "pass")

    def _return_early(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
            self._statement = self._start(statement)
            self._make("returns early", statement, "return")

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if not (_is_text(node.body) and _is_text(node.orelse)):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._ends |= _last_in(node.body)
        once = f"for _ in range(bool({ast.unparse(node.test)}))"
        self._add("tried once", self._start(node), self._end(node.test), once)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._ends |= _last_in(node.body)
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range":
            self._make("tried once", node.iter, "range(1)")
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.Compare):
            return  # its comparison is swapped
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._make("condition negated", test, self._text(test.operand))
        else:
            self._make("condition negated", test, f"not ({self._text(test)})")

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            other = copy(node)
            other.ops = [*node.ops]
            other.ops[index] = _COMPARISONS[type(operator)]()
            self._make("comparison swapped", node, f"({ast.unparse(other)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        self._make("and for or", node, f"({ast.unparse(other)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not any(map(_is_text, ast.walk(node))):
            other = ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
            self._make("plus for minus", node, f"({ast.unparse(other)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is bool:
            self._make("other truth", node, str(not node.value))
        elif type(node.value) is int:
            self._make("off by one", node, str(node.value + 1))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if not isinstance(node.op, ast.USub):  # -1 says "none": any other number below 0 says the same
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._text(node.slice) == "-1":
            self._make("off by one", node.slice, "-2")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "suppress":
            self._make("nothing suppressed", node, "suppress()")
        elif not _is_logging(node):
            self.generic_visit(node)


def _on_one_line(text: str) -> str:
    joined = " ".join(line.partition("  # ")[0].strip() for line in text.splitlines())
    return joined if len(joined) <= 120 else f"{joined[:117]}..."


def _is_logging(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    return getattr(owner, "id", getattr(owner, "attr", None)) in ("logger", "_logger")


def _is_sync(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SYNCS


def _is_assertion(node: ast.Raise) -> bool:
    """Whether it says what cannot be, as an assert does."""
    return isinstance(node.exc, ast.Call) and getattr(node.exc.func, "id", None) == "AssertionError"


def _last_in(body: list[ast.stmt]) -> set[ast.stmt]:
    """The statements behind which nothing of a body is run, those of its branches too."""
    last = body[-1]
    branches: list[list[ast.stmt]] = []
    if isinstance(last, ast.If):
        branches = [last.body, last.orelse]
    elif isinstance(last, ast.Try) and not last.orelse and not last.finalbody:
        branches = [last.body, *(handler.body for handler in last.handlers)]
    return {last}.union(*(_last_in(branch) for branch in branches if branch))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _may_return_there(function: ast.FunctionDef) -> bool:
    """Whether a bare ``return`` in it is no mistake of types."""
    return not any(
        isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(node, ast.Return) and node.value is not None)
        for node in _of_itself(function)
    )


def _of_itself(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What is in a function, without the functions in it."""
    nodes: list[ast.AST] = [*function.body]
    while nodes:
        node = nodes.pop()
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            yield node
            nodes += ast.iter_child_nodes(node)
