"""``--redact`` and ``--redact-pattern`` of several commands."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from transcript_store.redaction import Redacted, SecretRedactor


def add_redact(parser: ArgumentParser) -> None:
    """Add the two options. The command finds its redactor by :func:`redactor_of`."""
    parser.add_argument(
        "--redact", action="store_true", help="remove secrets with a recognizable form: keys, tokens, …"
    )
    add_redact_pattern(parser, "the same, and text that matches this")


def add_redact_pattern(parser: ArgumentParser, what: str) -> None:
    """Add ``--redact-pattern``, with ``what`` as its help."""
    parser.add_argument(
        "--redact-pattern", metavar="REGEX", action="append", type=_pattern, help=f"{what} (may be repeated)"
    )


class CountingRedactor(SecretRedactor):
    """A redactor that counts what it has removed."""

    def __init__(self, *, patterns: Sequence[str] = ()) -> None:
        super().__init__(patterns=patterns)
        self.counts: Counter[str] = Counter()

    def redact(self, value: Any) -> Redacted:
        """As ``SecretRedactor.redact``, and counted."""
        found = super().redact(value)
        self.counts.update(found.counts)
        return found


def redactor_of(arguments: Namespace) -> CountingRedactor | None:
    """The redactor; None without these options."""
    if not arguments.redact and arguments.redact_pattern is None:
        return None
    return CountingRedactor(patterns=arguments.redact_pattern or ())


def redaction_counts(counts: Mapping[str, int]) -> str:
    """The number of secrets of each kind, never the secrets."""
    found = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())) or "nothing"
    return f"redacted: {found}"


def _pattern(text: str) -> str:
    try:
        SecretRedactor(patterns=[text])
    except ValueError as error:
        raise ArgumentTypeError(str(error).removeprefix("pattern 1 ")) from None
    return text
