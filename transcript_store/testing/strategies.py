"""Strategies for Hypothesis: what a conversation may hold, what may be wrong with it, and where its process may be stopped.

This needs Hypothesis, which the extra ``testing`` installs. Each function returns a strategy. What it draws shrinks: a failing
test ends with the shortest text, the fewest messages, and an exchange in which nothing is missing unless that is the failure.

.. code-block:: python

    from hypothesis import given, settings

    from transcript_store import ConversationStore
    from transcript_store.testing import SimulatedFileSystem, strategies

    @settings(max_examples=20, deadline=None)
    @given(strategies.conversations("claude"))
    def test_what_is_stored_comes_back(messages):
        with ConversationStore("/conversation", file_system=SimulatedFileSystem()) as conversation:
            conversation.initialize(provider="claude", messages=messages)
            assert conversation.get_messages() == messages

    test_what_is_stored_comes_back()
"""

from __future__ import annotations

from transcript_store.testing import _with_hypothesis  # isort: skip  # noqa: F401  (first: it says what to install)
import base64
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple, get_args

from hypothesis import strategies as st

from transcript_store import Snapshot, ToolSnapshot
from transcript_store.testing._crash_test import StopPoint, Way
from transcript_store.testing._exchanges import (
    FAULTS,
    PROVIDERS,
    Fault,
    Provider,
    native_reply,
    native_results,
    native_text,
)

__all__ = [
    "FAULTS",
    "PROVIDERS",
    "DamagedBytes",
    "conversations",
    "damaged_bytes",
    "json_objects",
    "json_values",
    "messages",
    "metadata",
    "schedules",
    "snapshots",
    "texts",
    "tool_exchanges",
]

DamageKind = Literal[
    "torn", "zeros", "stale page", "flipped bit", "lost line", "swapped lines", "repeated line", "glued", "foreign line"
]
_KINDS: tuple[DamageKind, ...] = get_args(DamageKind)
_PAGES = (16, 64, 512, 4096)
_FOREIGN = (
    b'{"role":"user","content":"appended by hand"}\n',
    b'{"seq":1,"time":"2026-01-01T00:00:00Z","message":{},"hash":"00000000000000000000000000000000"}\n',
    b"garbage\n",
    b"\n",
    b"\0\n",
)


class DamagedBytes(NamedTuple):
    """Bytes that were damaged, and how."""

    kind: DamageKind
    data: bytes


def damaged_bytes(data: bytes, *, kinds: Sequence[DamageKind] = _KINDS) -> st.SearchStrategy[DamagedBytes]:
    """Damaged variants of these bytes, never the original.

    Args:
        data: the content of a file.
        kinds: what may happen to it. ``"torn"``: its end is gone. ``"zeros"``: a stretch reads as NULs. ``"stale
            page"``: a page has what an earlier page of the file has. ``"flipped bit"``. ``"lost line"``, ``"swapped
            lines"``, ``"repeated line"``. ``"glued"``: a line feed is gone. ``"foreign line"``: another program's line
            is there.

    Raises:
        ValueError: ``data`` is empty, or a kind is not one of these.
    """
    if unknown := set(kinds) - set(_KINDS):
        raise ValueError(f"kinds must be of {', '.join(_KINDS)}; not {', '.join(sorted(unknown))}")
    if not data:
        raise ValueError("nothing can be damaged in an empty file")

    @st.composite
    def one(draw: st.DrawFn) -> DamagedBytes:
        kind = draw(st.sampled_from(list(kinds)))
        return DamagedBytes(kind, _WAYS[kind](data, lambda least, most: draw(st.integers(least, max(least, most)))))

    return one().filter(lambda damage: damage.data != data)


Choose = Callable[[int, int], int]


def _torn(data: bytes, choose: Choose) -> bytes:
    return data[: len(data) - choose(1, len(data))]  # shrinks to the last byte


def _zeros(data: bytes, choose: Choose) -> bytes:
    start = choose(0, len(data) - 1)
    count = min(choose(1, 600), len(data) - start)
    return data[:start] + bytes(count) + data[start + count :]


def _stale_page(data: bytes, choose: Choose) -> bytes:
    """A page of one write is lost, and the block keeps its earlier content: here, another page of the file."""
    size = _PAGES[choose(0, len(_PAGES) - 1)]
    pages = [data[at : at + size] for at in range(0, len(data), size)]
    page = choose(0, len(pages) - 1)
    stale = pages[choose(0, page)]
    pages[page] = (stale + bytes(size))[: len(pages[page])]
    return b"".join(pages)


def _flipped_bit(data: bytes, choose: Choose) -> bytes:
    at = choose(0, len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1 << choose(0, 7)]) + data[at + 1 :]


def _lost_line(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    first = choose(0, len(lines) - 1)
    return b"".join(lines[:first] + lines[first + choose(1, 3) :])


def _swapped_lines(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    one, other = choose(0, len(lines) - 1), choose(0, len(lines) - 1)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _repeated_line(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    lines.insert(choose(0, len(lines)), lines[choose(0, len(lines) - 1)])
    return b"".join(lines)


def _glued(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    at = choose(0, len(lines) - 1)
    lines[at] = lines[at].removesuffix(b"\n")
    return b"".join(lines)


def _foreign_line(data: bytes, choose: Choose) -> bytes:
    lines = _lines(data)
    lines.insert(choose(0, len(lines)), _FOREIGN[choose(0, len(_FOREIGN) - 1)])
    return b"".join(lines)


def _lines(data: bytes) -> list[bytes]:
    """With their line feeds. Only a line feed ends a line, so ``splitlines`` would find too many."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + ([rest] if (rest := data.rpartition(b"\n")[2]) else [])


_WAYS: dict[DamageKind, Callable[[bytes, Choose], bytes]] = {
    "torn": _torn,
    "zeros": _zeros,
    "stale page": _stale_page,
    "flipped bit": _flipped_bit,
    "lost line": _lost_line,
    "swapped lines": _swapped_lines,
    "repeated line": _repeated_line,
    "glued": _glued,
    "foreign line": _foreign_line,
}


Message = dict[str, Any]

_MARKS = st.none() | st.binary(min_size=1, max_size=6).map(lambda raw: base64.b64encode(raw).decode())
_ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_TEXTS = (
    "",
    "e\u0301",  # a letter and its accent: not the same as é, which normalizing would make of it
    "é",
    "\U0001f9d1\u200d\U0001f680",  # an astral character, a joiner, another
    "\U0010ffff\ufffe\uffff\ufeff",
    "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r\n",  # whatever some reader takes for the end of a line
    "\0",
    "\x7f\x1b[0m",
    "\"\\'/{}[],:",
    "null",
    '{"a":1,"a":2}',
    '","hash":"00000000000000000000000000000000"}\n{"seq":2,',
    "</script><&>",
)
_INTEGERS = (0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1)
_FLOATS = (0.0, -0.0, 1.0, 0.1, 1e16, 1e22, -1e-7, 5e-324, 1.7976931348623157e308)
_SIZES = st.integers(0, 90)


def texts(*, max_size: int = 20) -> st.SearchStrategy[str]:
    """Texts that a message may hold: no lone surrogates. Those that programs get wrong come often."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size) | st.sampled_from(
        [text for text in _TEXTS if len(text) <= max_size]
    )


def json_values(
    *,
    integers: st.SearchStrategy[int] | None = None,
    floats: st.SearchStrategy[float] | None = None,
    strings: st.SearchStrategy[str] | None = None,
    max_leaves: int = 20,
) -> st.SearchStrategy[Any]:
    """All that a message may hold, nested. The edges come often: extreme numbers, odd texts, deep lists, wide ones.

    Args:
        integers: instead of those from -(2**63) to 2**64 - 1. (A snapshot takes others too.)
        floats: instead of all that are finite.
        strings: instead of ``texts()``: texts of your own that matter. Names of members are drawn from it too.
        max_leaves: about how many values that are neither lists nor objects one value has at most.
    """
    if integers is None:
        integers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from(_INTEGERS)
    if floats is None:
        floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(_FLOATS)
    strings = texts() if strings is None else strings
    scalars = st.none() | st.booleans() | integers | strings | floats
    edges = st.builds(lambda is_wide, size: list(range(size)) if is_wide else _nested(size), st.booleans(), _SIZES)
    return st.recursive(
        scalars | edges,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
        max_leaves=max_leaves,
    )


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def json_objects(
    *,
    integers: st.SearchStrategy[int] | None = None,
    floats: st.SearchStrategy[float] | None = None,
    strings: st.SearchStrategy[str] | None = None,
    max_size: int = 5,
) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects: whatever a conversation takes as a message or as an ``extra``. The arguments are those of ``json_values``."""
    strings = texts() if strings is None else strings
    values = json_values(integers=integers, floats=floats, strings=strings)
    return st.dictionaries(strings, values, max_size=max_size)


# ---- messages ----------------------------------------------------------------------------------------------------------


def messages(provider: Provider | None = None) -> st.SearchStrategy[Message]:
    """One message of a user or a model in the provider's form, without tool calls. None draws the provider too."""
    return _of(provider, _message)


def tool_exchanges(
    provider: Provider | None = None, *, faults: Sequence[Fault] = (), max_calls: int = 3
) -> st.SearchStrategy[list[Message]]:
    """A reply with one or more tool calls, perhaps parallel ones, and the messages with their results.

    Args:
        provider: whose form the messages have; None draws it too.
        faults: what may be wrong with the results. Without it every exchange is whole: each call has its result right
            after it. ``"missing"``: some have none. ``"out of order"``: they come in another order than the calls.
            ``"late"``: something else is said first. ``"twice"``: one comes again. ``"foreign"``: one is of a call that
            was never made.
        max_calls: how many calls a reply has at most.

    Raises:
        TypeError: ``faults`` is one text, and no list.
        ValueError: there is no such provider, or no such fault.
    """
    _require_faults(faults)
    return _of(provider, lambda name: _exchange(name, ("none", *faults), max_calls))


def conversations(
    provider: Provider | None = None, *, faults: Sequence[Fault] = (), max_turns: int = 4
) -> st.SearchStrategy[list[Message]]:
    """Whole conversations: questions and answers in turn, with tool exchanges between. Perhaps one that is empty.

    Args:
        provider: whose form the messages have; None draws it too.
        faults: what may be wrong with the exchanges, as of :func:`tool_exchanges`.
        max_turns: how many questions there are at most.

    Raises:
        TypeError: ``faults`` is one text, and no list.
        ValueError: there is no such provider, or no such fault.
    """
    _require_faults(faults)

    def of(name: Provider) -> st.SearchStrategy[list[Message]]:
        question = _text_message(name, "user").map(lambda message: [message])
        answer = _text_message(name, "assistant").map(lambda message: [message])
        exchanges = st.lists(_exchange(name, ("none", *faults), 2), max_size=2).map(_joined)
        turn = st.tuples(question, exchanges, answer).map(_joined)
        return st.lists(turn, max_size=max_turns).map(_joined)

    return _of(provider, of)


def _of(provider: Provider | None, make: Callable[[Provider], st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    if provider is not None and provider not in PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}, or None; not {provider!r}")
    return make(provider) if provider is not None else st.one_of(*map(make, PROVIDERS))


def _require_faults(faults: Sequence[Fault]) -> None:
    if isinstance(faults, str):
        raise TypeError(f"faults must be a list of faults, not one of them: give [{faults!r}]")
    if wrong := [fault for fault in faults if fault not in FAULTS]:
        raise ValueError(f"a fault must be one of {', '.join(FAULTS)}; not {wrong[0]!r}")


def _joined(parts: Sequence[list[Message]]) -> list[Message]:
    return [message for part in parts for message in part]


def _message(provider: Provider) -> st.SearchStrategy[Message]:
    return _text_message(provider, "user") | _text_message(provider, "assistant")


def _text_message(provider: Provider, role: str) -> st.SearchStrategy[Message]:
    """A text, or several with what a provider puts beside them."""
    said = st.lists(texts(), min_size=1, max_size=2)
    return st.builds(lambda parts, mark: native_text(provider, role, parts, mark), said, _MARKS)


def _exchange(provider: Provider, faults: Sequence[Any], max_calls: int) -> st.SearchStrategy[list[Message]]:
    # A strategy costs more to make than to draw from, so all are made here, once.
    said, counts, kinds = texts(), st.integers(1, max_calls), st.sampled_from(list(faults))
    turns, names = st.integers(0, 2**31), st.sampled_from("abc")
    arguments = st.dictionaries(st.sampled_from(["path", "n"]), json_values(max_leaves=3), max_size=2)
    remarks = _text_message(provider, "user")

    @st.composite
    def one(draw: st.DrawFn) -> list[Message]:
        count = draw(counts)
        turn = draw(turns)  # ids have to differ within a conversation, and yet shrink
        calls = [(f"call_{turn}_{place}", draw(names), draw(arguments)) for place in range(count)]
        results = [(*call[:2], draw(said)) for call in calls]
        between: list[Message] = []
        fault = draw(kinds)
        if fault == "missing":
            del results[draw(st.integers(0, count - 1))]
        elif fault == "out of order":
            results = results[::-1]
        elif fault == "twice":
            results.append(draw(st.sampled_from(results)))
        elif fault == "foreign":
            results.insert(draw(st.integers(0, count)), (f"call_{turn}_unknown", "d", draw(said)))
        elif fault == "late":
            between = [draw(remarks)]
        return [native_reply(provider, draw(said), calls), *between, *native_results(provider, results)]

    return one()


# ---- beside messages ---------------------------------------------------------------------------------------------------


def metadata() -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of ``initialize()`` and ``update_metadata()``: any of ``model``, ``system_prompt`` and ``labels``."""
    labels = st.dictionaries(texts(), texts(), max_size=3)
    return st.fixed_dictionaries(
        {}, optional={"model": st.none() | texts(), "system_prompt": st.none() | texts(), "labels": labels}
    )


def snapshots(provider: Provider | None = None) -> st.SearchStrategy[Snapshot]:
    """Snapshots of conversations, with tools and metadata. Their ids and times are drawn too."""
    tools = st.builds(ToolSnapshot, texts(), texts(), st.just({"type": "object", "properties": {}}))

    def of(name: Provider) -> st.SearchStrategy[Snapshot]:
        return st.builds(
            Snapshot.create,
            provider=st.just(name),
            model=texts(),
            messages=conversations(name, max_turns=2) | st.lists(json_values(integers=st.integers()), max_size=3),
            system_prompt=texts(),
            tools=st.lists(tools, max_size=2, unique_by=lambda tool: tool.name),
            metadata=st.dictionaries(texts(), texts(), max_size=3),
            created_at=st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=_ZONES),
            id=st.uuids(version=4).map(str),
        )

    return _of(provider, of)


# ---- where a process is stopped ----------------------------------------------------------------------------------------


def schedules(
    *,
    moments: int = 25,
    ways: Sequence[Way] = ("kill", "power cut", "disk refuses", "answer lost"),
    max_cuts: int = 2,
) -> st.SearchStrategy[list[StopPoint]]:
    """Where and how processes are stopped, one cut for each process: what ``crash_test`` takes as ``replay=``.

    Args:
        moments: how many places a process has, as ``crash_test`` returns it; the cuts are within these.
        ways: how processes may be stopped.
        max_cuts: how many are stopped at most, from 1.
    """
    cut: st.SearchStrategy[StopPoint] = st.builds(
        StopPoint, st.integers(1, moments), st.sampled_from(list(ways)), st.integers(0, 2**16)
    )
    return st.lists(cut, min_size=1, max_size=max_cuts)
