"""Plots as SVG: what each operation costs as a conversation grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS, LIMIT, LIMIT_UNSYNCED, OURS, OURS_UNSYNCED
from benchmarks.results import Curve
from benchmarks.timing import in_unit

TITLES = {
    "append": "one more message",
    "load": "open it, and hand out all messages",
    "last": "open it, and hand out the last 50",
    "list": "list it",
    "memory": "memory to hand out all messages",
    "search": "find a common word, with the excerpts of twenty hits",
    "search-rare": "find a rare word, with its excerpts",
    "search-size": "one search, and what it begins with",
}
_OURS = {
    OURS.name: "-",
    OURS_UNSYNCED.name: "--",
    "transcript_store, `search()`": "-",
    "transcript_store, the command": "--",
}
_COLOURS = ("C0", "C1", "C2", "C4", "C5", "C6", "C7", "C8", "C9")  # C3 is ours
_LIMITS = {LIMIT.name: "-", LIMIT_UNSYNCED.name: "--"}


def draw(operation: str, curves: list[Curve], path: Path, *, across: str = "messages in the conversation") -> None:
    """One plot: both axes logarithmic, ours thick, the limit black, the same colour for the same contender in each."""
    import matplotlib

    matplotlib.use("svg")
    settings = {"svg.fonttype": "none", "svg.hashsalt": "transcript_store", "font.family": "sans-serif", "font.size": 9}
    with matplotlib.rc_context(settings):
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(9, 4.6), layout="constrained")
        for curve in curves:
            lengths, values = zip(*curve.points, strict=True)
            axes.plot(lengths, values, label=curve.contender.replace("`", ""), **_style(curve.contender))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(across)
        unit = "bytes" if operation == "memory" else "s"
        axes.yaxis.set_major_formatter(lambda value, _: in_unit(value, unit))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.minorticks_off()
        axes.set_title(f"{TITLES[operation]} (lower is better)", loc="left")
        axes.grid(visible=True, which="major", alpha=0.3)
        figure.legend(loc="outside right upper", frameon=False)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    path.write_text(
        "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()) + "\n", encoding="utf-8"
    )


def _style(name: str) -> dict[str, Any]:
    if name in _OURS:
        return {"color": "#d62728", "linestyle": _OURS[name], "linewidth": 3, "marker": "o", "zorder": 3}
    if name in _LIMITS:
        return {"color": "black", "linestyle": _LIMITS[name], "linewidth": 1.5, "marker": ".", "zorder": 2}
    others = [contender.name for contender in CONTENDERS if contender.name not in _OURS | _LIMITS]
    number = others.index(name) if name in others else sum(name.encode())  # of another benchmark, or of older figures
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": ("-", ":")[number % 2],
        "linewidth": 1,
        "marker": "osv^D"[number % 5],
        "markersize": 3,
    }
