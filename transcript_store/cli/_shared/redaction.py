"""``--redact`` and ``--redact-pattern``, which several commands have."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from transcript_store.redaction import Redacted, SecretRedactor


def add_redact(parser: ArgumentParser) -> None:
    """Add the two options. The command finds its redactor by :func:`redactor_of`."""
    parser.add_argument(
        "--redact", action="store_true", help="take out secrets that show what they are by their form: keys, tokens, …"
    )
    add_redact_pattern(parser, "the same, and what matches this")


def add_redact_pattern(parser: ArgumentParser, what: str) -> None:
    """Add the second one; ``what`` it does, for the help."""
    parser.add_argument(
        "--redact-pattern", metavar="REGEX", action="append", type=_pattern, help=f"{what} (may be repeated)"
    )


class CountingRedactor(SecretRedactor):
    """A redactor that knows what it has taken out so far."""

    def __init__(self, *, patterns: Sequence[str] = ()) -> None:
        super().__init__(patterns=patterns)
        self.counts: Counter[str] = Counter()

    def redact(self, value: Any) -> Redacted:
        """As ``SecretRedactor.redact``, and counted."""
        found = super().redact(value)
        self.counts.update(found.counts)
        return found


def redactor_of(arguments: Namespace) -> CountingRedactor | None:
    """What takes the secrets out; None if that was not asked for."""
    if not arguments.redact and arguments.redact_pattern is None:
        return None
    return CountingRedactor(patterns=arguments.redact_pattern or ())


def redaction_counts(counts: Mapping[str, int]) -> str:
    """How many there were of each kind. Never what they were."""
    found = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())) or "nothing was found"
    return f"redacted: {found}"


def _pattern(text: str) -> str:
    try:
        SecretRedactor(patterns=[text])
    except ValueError as error:
        raise ArgumentTypeError(str(error).removeprefix("pattern 1 ")) from None
    return text
