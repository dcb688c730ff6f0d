"""The options by which `list` and `search` are narrowed, the same for both, and what they are in a query."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from transcript_store.words import MOMENTS, period

_OPTIONS = {
    "since": ("WHEN", "after", f"from then on: {MOMENTS}"),
    "until": ("WHEN", "until", "up to the end of that day or month, or up to that moment"),
    "project": ("TEXT", "project", "held in a folder whose path contains it"),
    "source": ("PROGRAM", "source", "imported from this program"),
    "model": ("TEXT", "model", "with a model whose name contains it"),
    "label": ("NAME[=VALUE]", "label", "with this label"),
    "title": ("TEXT", "title", "whose title, or first prompt, contains it"),
}
"""Each option: what it takes, the filter of a query that it is, and what it leaves."""


def add_filters(parser: ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("only what is …")
    for name, (metavar, _, what) in _OPTIONS.items():
        of_time = {"type": _period} if metavar == "WHEN" else {}
        also = ["--program"] if name == "source" else ["--cwd"] if name == "project" else []
        group.add_argument(f"--{name}", *also, metavar=metavar, help=what, **of_time)  # type: ignore[arg-type]


def filters_of(arguments: Namespace) -> str:
    """The options that were given, as a query."""
    given = ((name, getattr(arguments, option)) for option, (_, name, _) in _OPTIONS.items())
    return " ".join(f'{name}:"{text.replace(chr(34), " ")}"' for name, text in given if text)


def _period(text: str) -> str:
    if period(text) is None:
        raise ArgumentTypeError(f"{text!r} is no time; give {MOMENTS}")
    return text
