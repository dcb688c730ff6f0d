"""Are a contract's arguments valid? Its first rule would fail with a misleading message."""

from __future__ import annotations


def require_function(name: str, value: object) -> None:
    """Raise ``TypeError`` unless it can be called. A class can."""
    if not callable(value):
        kind = type(value).__name__
        raise TypeError(
            f"{name} must be a function that makes a new one each time, or a class, not a {kind}: lambda: {kind}(...)"
        )
