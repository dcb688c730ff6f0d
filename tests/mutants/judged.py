"""Mutants that no test can notice, or none should, each with the reason; docs/durability.md has the same list."""

from __future__ import annotations

JUDGED: dict[str, str] = {
    "Lock._held_by_another: holder = orjson.loads(bytes(self._files.read(self._handle, 0, 4096))) → "
    "holder = orjson.loads(bytes(self._files.read(self._handle, 0, 4097)))": "how much is read of what is shorter",
    "Folder.take_over: self.path = other.path → pass": "today a folder is taken over only by one of the same path",
    "FileStore.opens: continue → pass": "it is the last statement of the loop",
}
"""From a mutant's name to the reason."""
