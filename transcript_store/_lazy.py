"""Lazy imports (PEP 562): a public name is imported on first use, so ``import transcript_store`` is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_names(package: str, *doors: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose public names are those of its public modules.

    A name is looked up in one module after the other; modules after the one that has it are not imported. Afterwards
    the package itself has the name. ``__all__`` has the names of all these modules.
    """

    def modules() -> list[ModuleType]:
        return [import_module(f"{package}.{door}") for door in doors]

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(name for module in modules() for name in _names(module))
        if not name.startswith("_"):
            for door in doors:
                module = import_module(f"{package}.{door}")
                if name in _names(module):
                    value = getattr(module, name)
                    setattr(sys.modules[package], name, value)
                    return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *find("__all__")})

    return find, names


def _names(door: ModuleType) -> list[str]:
    """The names that a module lists; without a list, the names that it defines itself."""
    defined = (name for name, value in vars(door).items() if getattr(value, "__module__", None) == door.__name__)
    return getattr(door, "__all__", None) or [name for name in defined if not name.startswith("_")]
