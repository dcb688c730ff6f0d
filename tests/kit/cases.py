"""Many small cases as one test: an item of pytest's costs each worker its collection, and more than such a case takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from reprlib import Repr
from typing import Any


def few(most: int) -> int:
    """How many examples Hypothesis draws: at most these, and of a plain run as few as its profile has (conftest.py)."""
    from hypothesis import settings  # not every environment of the integrations has it

    now = settings.default
    return min(most, now.max_examples) if now is not None else most


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 200


def for_each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test with each case, as ``pytest.mark.parametrize`` does, within one item. It ends at the first case that fails.

    A note of the error names the case. The cases share the test's fixtures: for tests that need no new ones for each case.
    """
    keys = [name.strip() for name in names.split(",")]
    values = [dict(zip(keys, case if len(keys) > 1 else (case,), strict=True)) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def all_of_them(**fixtures: Any) -> None:
            __tracebackhide__ = True
            for case in values:
                try:
                    test(**fixtures, **case)
                except BaseException as error:
                    error.add_note(f"in the case {', '.join(f'{key}={_SHORT.repr(case[key])}' for key in keys)}")
                    raise

        asked = inspect.signature(test)
        left = [parameter for name, parameter in asked.parameters.items() if name not in keys]
        all_of_them.__signature__ = asked.replace(parameters=left)  # type: ignore[attr-defined]
        del all_of_them.__wrapped__
        return all_of_them

    return decorate
