"""Ctrl-C at every line of the package that a call executes."""

from __future__ import annotations

import ast
import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import transcript_store

PACKAGE = os.path.dirname(transcript_store.__file__) + os.sep


@cache
def with_statements(filename: str) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """For each line of a module: the ``with`` statements (by their line) in whose head it is, and in whose body."""
    heads: dict[int, list[int]] = {}
    bodies: dict[int, list[int]] = {}
    for node in ast.walk(ast.parse(Path(filename).read_text(encoding="utf-8"))):
        if isinstance(node, ast.With) and node.end_lineno is not None:
            first = node.body[0].lineno
            for line in range(node.lineno, first):
                heads.setdefault(line, []).append(node.lineno)
            for line in range(first, node.end_lineno + 1):
                bodies.setdefault(line, []).append(node.lineno)
    return heads, bodies


class Interruption:
    """Counts the lines that the package executes in a ``with`` block and raises KeyboardInterrupt at the nth."""

    def __init__(self, nth: int) -> None:
        self.nth = nth
        self.lines = 0
        self.where: str | None = None
        self._inside: set[tuple[int, int]] = set()  # frames, and the `with` statements whose body they are in
        self._tracing_before: Any = None  # a coverage measurement

    def __enter__(self) -> Interruption:
        gc.disable()  # a store of another test that is collected now would be interrupted instead
        self._tracing_before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracing_before)
        gc.enable()

    def _call(self, frame: Any, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: Any, event: str, arg: object) -> Any:
        if event == "line" and not self._leaves_with(frame):
            self.lines += 1
            if self.lines == self.nth:
                self.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
                sys.settrace(None)
                raise KeyboardInterrupt(self.where)
        return self._line

    def _leaves_with(self, frame: Any) -> bool:
        heads, bodies = with_statements(frame.f_code.co_filename)
        left = [(id(frame), with_line) for with_line in heads.get(frame.f_lineno, ())]
        leaves = not self._inside.isdisjoint(left)
        self._inside.difference_update(left)
        self._inside.update((id(frame), with_line) for with_line in bodies.get(frame.f_lineno, ()))
        return leaves


def every_line(
    scratch: Path, prepare: Callable[[Path], Any], operate: Callable[[Any], object], step: int = 1
) -> Iterator[tuple[Any, Path, str, bool]]:
    """Run ``operate`` again and again, interrupted at every ``step``-th line it executes.

    Yields what ``prepare`` made, its directory, where the interruption struck and whether the call returned all the
    same (an interruption in a place that swallows it would be a bug of its own). Ends after a run without interruption.
    """
    for nth in range(1, 1_000_000, step):
        directory = scratch / str(nth)
        subject = prepare(directory)
        interruption = Interruption(nth)
        returned = False
        try:
            with interruption:
                operate(subject)
                returned = True
        except KeyboardInterrupt:
            assert interruption.where, "somebody else pressed Ctrl-C"
        yield subject, directory, interruption.where or "not interrupted", returned
        if interruption.where is None:
            assert returned
            return
