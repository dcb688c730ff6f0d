"""What a run found, as values that can be stored and printed again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from benchmarks.timing import Middle, in_ratio, median_of, ratio


class MissingError(Exception):
    """What a part needs and this machine has not; its text says how to get it."""


@dataclass(frozen=True, slots=True)
class Row:
    """Ours beside the plainest way to do the same work; ``limit`` is the target for ``value``, a ratio where ``what`` names no unit."""

    what: str
    ours: str
    beside: str
    value: float
    spread: str
    limit: float | None = None
    note: str = ""

    @classmethod
    def of(
        cls, what: str, ours: Sequence[float], beside: Sequence[float], limit: float | None = None, note: str = ""
    ) -> Row:
        """Of seconds, ours and the plain way's, round by round."""
        low, median, high = ratio(ours, beside)
        return cls(what, median_of(ours), median_of(beside), median, f"{in_ratio(low)}–{in_ratio(high)}", limit, note)

    @property
    def shown(self) -> str:
        """The value as it is printed."""
        return in_ratio(self.value)

    @property
    def target(self) -> str:
        """The limit as it is printed. A row without a limit has an empty one."""
        return "" if self.limit is None else f"≤ {in_ratio(self.limit) if self.limit < 0.1 else f'{self.limit:.3g}'}"

    @property
    def is_met(self) -> bool:
        """Whether the target is reached, or there is none."""
        return self.limit is None or self.value <= self.limit


class Figure(NamedTuple):
    """What one contender took, and how often that is what the limit took in the same round."""

    contender: str
    value: Middle | None
    ratio: Middle | None = None
    note: str = ""


class Comparison(NamedTuple):
    """One operation, and everybody's figures for it, in ``unit`` (``"s"``, ``"bytes"``, ``"syncs"``)."""

    name: str
    title: str
    unit: str
    beside: str
    figures: list[Figure]


class Curve(NamedTuple):
    """What one operation costs one contender as the conversation grows: lengths and medians, in seconds or bytes."""

    operation: str
    contender: str
    points: list[tuple[int, float]]


@dataclass
class Results:
    """All of a run."""

    machine: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    beyond_machine: dict[str, str] = field(default_factory=dict)
    """That of ``beyond``, which may be of another run."""
    beyond: list[Row] = field(default_factory=list)
    """What is built on the log."""

    def to_json(self) -> str:
        values = {
            "machine": self.machine,
            "rows": [asdict(row) for row in self.rows],
            "beyond_machine": self.beyond_machine,
            "beyond": [asdict(row) for row in self.beyond],
            "comparisons": [
                {**comparison._asdict(), "figures": [figure._asdict() for figure in comparison.figures]}
                for comparison in self.comparisons
            ],
            "curves": [curve._asdict() for curve in self.curves],
        }
        return json.dumps(_rounded(values), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        values = json.loads(text)
        return cls(
            values["machine"],
            [Row(**row) for row in values["rows"]],
            [Comparison(**{**c, "figures": [_figure(f) for f in c["figures"]]}) for c in values["comparisons"]],
            [Curve(**{**c, "points": [(length, value) for length, value in c["points"]]}) for c in values["curves"]],
            values["beyond_machine"],
            [Row(**row) for row in values["beyond"]],
        )


def _figure(values: dict[str, Any]) -> Figure:
    ranges = {name: None if values[name] is None else Middle(*values[name]) for name in ("value", "ratio")}
    return Figure(**{**values, **ranges})


def _rounded(value: Any) -> Any:
    """Four digits are more than was measured."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value
