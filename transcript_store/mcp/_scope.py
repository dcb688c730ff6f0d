"""Which conversations of a library may be read: those with certain labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Scope:
    """The conversations that have each of these labels; without any, all of them.

    Args:
        labels: ``NAME=VALUE``, or ``NAME`` for a label with any value.

    Raises:
        TypeError: this is one label, and no list.
        ValueError: a label has no name, or a quotation mark: a query cannot ask for one.
    """

    def __init__(self, labels: Iterable[str] = ()) -> None:
        if isinstance(labels, str):
            raise TypeError("labels must be a list, not one label, whose letters would be labels: give [label]")
        self._labels = tuple(labels)
        for label in self._labels:
            if not label.partition("=")[0] or '"' in label:
                raise ValueError(f"{label!r:.80} is not NAME=VALUE or NAME, without a quotation mark")

    def narrowed(self, query: str) -> str:
        """The query, asked of no other conversations. All filters of a query hold, so nothing in it can widen this."""
        return " ".join([*(f'label:"{label}"' for label in self._labels), query])

    def has(self, labels: Mapping[str, str] | None) -> bool:
        """Whether a conversation with these labels may be read.

        The index was asked already. It may be behind, and to it a letter's case does not count.
        """
        own = labels or {}
        asked = (label.partition("=") for label in self._labels)
        return all(name in own and (not has_value or own[name] == value) for name, has_value, value in asked)
