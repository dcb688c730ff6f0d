"""Imported first by modules that need Hypothesis: without it, the error names the extra."""

from __future__ import annotations

from transcript_store.errors import MissingExtraError

try:
    import hypothesis as _hypothesis  # noqa: F401
except ModuleNotFoundError as _error:
    if (_error.name or "") != "hypothesis":
        raise
    _module = "testing.strategies, .machines or .profiles"
    raise MissingExtraError(feature=f"transcript_store.{_module}", extra="testing") from _error
