r"""Safe output: nothing stored reaches a terminal as a control sequence (P18).

Everything that a command prints goes through the functions of this module: messages, metadata, paths, errors and
warnings, stored text and our own alike. Some characters make a terminal do something instead of being shown; others make
text look like other text. Both kinds are printed as escapes such as ``\x1b``.

Only four things send escape characters: the progress bar, the status line, the prompt of ``chat``, and the styles of a line
(:func:`say_line`), on a terminal where ``NO_COLOR`` is not set. None of them shows stored text unescaped.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TextIO

from transcript_store.display import UNSAFE
from transcript_store.display import many as many  # noqa: PLC0414 (the commands import them from here)
from transcript_store.display import safe as safe  # noqa: PLC0414
from transcript_store.display import without_credentials as without_credentials  # noqa: PLC0414

if TYPE_CHECKING:
    import subprocess


PROGRAM = "transcript-store"
_NO_TERMINAL_COLUMNS = 80

_UNSAFE_IN_A_LINE = re.compile(f"{UNSAFE.pattern}|[\n\t]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


class Misuse(Exception):  # noqa: N818 (the user's mistake)
    """The arguments contradict each other. Its one sentence says why, and the exit code is 2."""


def one_line(text: str) -> str:
    """Text that is safe on a terminal, on one line: for names, paths and errors, which must not begin a new line."""
    return safe(text).replace("\n", "\\n").replace("\t", "\\t")


def columns() -> int | None:
    """The columns of standard output's terminal; None without a terminal: then nothing is cut."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return terminal_columns() if is_terminal else None


def terminal_columns() -> int:
    """The terminal's width, like ``shutil.get_terminal_size()``, but without that module, which loads three compressors."""
    with suppress(KeyError, ValueError):
        if (named := int(os.environ["COLUMNS"])) > 0:
            return named
    with suppress(AttributeError, ValueError, OSError):  # standard output is closed, detached, or redirected
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _NO_TERMINAL_COLUMNS  # type: ignore[union-attr]
    return _NO_TERMINAL_COLUMNS


def fitting(text: str, room: int) -> str:
    """The start of a text within ``room`` columns of a terminal, with … at the end if it was cut."""
    if columns_of(text) <= room:
        return text
    used, kept = 1, ""  # the …
    for piece in _graphemes(text):
        used += columns_of(piece)
        if used > room:
            break
        kept += piece
    return f"{kept}…"


def padded(text: str, room: int) -> str:
    """A text padded with blanks to ``room`` columns of a terminal."""
    return text + " " * (room - columns_of(text))


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if _takes_a_column_each(text):  # true of most, and then nothing is imported
        return len(text)
    from wcwidth import wcswidth

    width: int = wcswidth(text)
    return len(text) if width < 0 else width  # a control character: it will be shown as an escape


def _takes_a_column_each(text: str) -> bool:
    return text.isascii() or text.replace("…", "").isascii()  # our own … needs no table of widths


def _graphemes(text: str) -> Iterable[str]:
    """The characters as a terminal shows them: a letter with its accents, a family of emoji."""
    if _takes_a_column_each(text):
        return text
    from wcwidth import iter_graphemes

    found: Iterable[str] = iter_graphemes(text)
    return found


def for_shell(text: str) -> str:
    r"""A text as one word of a shell's command line, with control characters as escapes in ``$'…'`` (bash and zsh)."""
    if not _UNSAFE_IN_A_LINE.search(text):
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSAFE_IN_A_LINE.sub(_escape_bytes, plain)}'"


def time(at: str | None) -> str:
    """A stored time, for a person."""
    at = str(at)  # always a text, except in a forged file
    return one_line(f"{at[:10]} {at[11:19]} UTC")


def size(number: float) -> str:
    """A number of bytes, for a person."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def as_json(value: Any, *, ascii_only: bool = False) -> str:
    r"""A value as JSON on one line. Unsafe characters are ``\u`` escapes: the value is the same, the text is harmless."""
    return UNSAFE.sub(_escape_json, json.dumps(value, ensure_ascii=ascii_only))


def count_lines(numbers: Mapping[str, int]) -> Iterator[str]:
    """A line for each counted item, the most frequent first: ``127 × an event stays here``."""
    width = max((len(f"{number:,}") for number in numbers.values()), default=0)
    for what, number in sorted(numbers.items(), key=lambda one: -one[1]):
        yield f"{number:>{width},} × {what}"


def say(text: str = "", *, now: bool = False) -> None:
    """Print one or more lines on standard output. ``now`` flushes them."""
    encoding = _encoding()
    _print(safe(text).encode(encoding, "backslashreplace").decode(encoding), flush=now)


Span = tuple[int, int]


Look = Literal["strong", "quiet", "italic", "under", "struck", "red", "green", "yellow", "blue", "magenta", "cyan"]
_LOOKS: Mapping[Look, str] = {
    "strong": "1",
    "quiet": "2",
    "italic": "3",
    "under": "4",
    "struck": "9",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
"""As ECMA-48 has them."""


class TerminalSpan(NamedTuple):
    """A piece of a line, and its style."""

    text: str
    looks: tuple[Look, ...] = ()


Line = Sequence[TerminalSpan]


def has_looks() -> bool:
    """True if standard output shows styles: a terminal, without ``NO_COLOR`` or ``TERM=dumb``."""
    return columns() is not None and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say_line(line: Line) -> None:
    """Print one line with the styles of its spans. Control characters in a span are escaped."""
    encoding, is_seen = _encoding(), has_looks()
    out: list[str] = []
    for text, looks in line:
        plain = safe(text).replace("\n", "\\n").encode(encoding, "backslashreplace").decode(encoding)
        codes = ";".join(_LOOKS[look] for look in looks) if is_seen and plain else ""
        out.append(f"\x1b[{codes}m{plain}\x1b[0m" if codes else plain)
    _print("".join(out))


def say_marked(text: str, marks: Iterable[Span] = (), *, looks: tuple[Look, ...] = ()) -> None:
    """Print one line with highlights (``text[start:end]``), if the terminal can show them."""
    line: list[TerminalSpan] = []
    at = 0
    for start, end in marks:
        line += (TerminalSpan(text[at:start], looks), TerminalSpan(text[start:end], ("strong", "yellow")))
        at = end
    say_line([TerminalSpan(one_line(piece.text), piece.looks) for piece in (*line, TerminalSpan(text[at:], looks))])


def wrapped(text: str, marks: Iterable[Span], width: int | None) -> Iterator[tuple[str, list[Span]]]:
    """The lines of a text, broken at spaces to fit the columns, each with its highlights; one line for None.

    Control characters in it are escaped already.
    """
    cells: list[tuple[str, bool]] = []
    at = 0
    for grapheme in _graphemes(text):
        is_marked = any(start <= at < end for start, end in marks)
        cells += ((piece, is_marked) for piece in _graphemes(one_line(grapheme)))
        at += len(grapheme)
    if width is None:
        yield _with_marks(cells)
        return
    while cells:
        fits, room = 0, width
        while fits < len(cells) and (room := room - columns_of(cells[fits][0])) >= 0:
            fits += 1
        if fits < len(cells):
            fits = next((at for at in range(fits, 0, -1) if cells[at][0] == " "), None) or _within(cells, fits)
        yield _with_marks(cells[:fits])
        cells = cells[fits + (fits < len(cells) and cells[fits][0] == " ") :]


def _within(cells: Sequence[tuple[str, bool]], fits: int) -> int:
    """Where to break a word that does not fit: after its last punctuation in the second half, as in an address or a path."""
    return next((at for at in range(fits, fits // 2, -1) if cells[at - 1][0] in "/,;?&"), fits or 1)


def _with_marks(cells: Sequence[tuple[str, bool]]) -> tuple[str, list[Span]]:
    marks: list[Span] = []
    end = 0
    for cell, is_marked in cells:
        at, end = end, end + len(cell)
        if is_marked and marks and marks[-1][1] == at:
            marks[-1] = (marks[-1][0], end)
        elif is_marked:
            marks.append((at, end))
    return "".join(cell for cell, _ in cells), marks


def sentence_lines(text: str, width: int | None) -> list[str]:
    """A sentence on one line, or on as many as the width needs. Words and paths are never broken."""
    if width is None or columns_of(text) <= width:
        return [text]
    from wcwidth import wrap

    lines: list[str] = wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines


def say_wrapped(text: str) -> None:
    """Print a sentence, on a terminal with breaks between words."""
    for line in sentence_lines(one_line(text), columns()):
        say(line, now=True)


def say_on(text: str) -> None:
    """Print a piece of a line without ending the line, and flush it."""
    encoding = _encoding()
    _print(safe(text).encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)


def say_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    _print(as_json(value, ascii_only=_encoding() != "utf-8"))


def say_json_text(text: str) -> None:
    """Print JSON text with its unsafe characters escaped: the value is the same."""
    text = UNSAFE.sub(_escape_json, text)
    _print(text if _encoding() == "utf-8" else _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text))


class RawOutput:
    """Standard output for raw bytes. ``what`` names them in the error.

    Raises:
        Misuse: it is a terminal, or closed.
    """

    def __init__(self, what: str) -> None:
        if sys.stdout is None or sys.stdout.isatty():
            raise Misuse(f"the {what} is not for a terminal: give --output PATH")

    def writelines(self, pieces: Iterable[bytes], /) -> None:
        for piece in pieces:
            with _named_output():
                sys.stdout.buffer.write(piece)


def _print(text: str, *, end: str = "\n", flush: bool = False) -> None:
    with _named_output():
        print(text, end=end, flush=flush)


@contextmanager
def _named_output() -> Iterator[None]:
    """An error of standard output, with that name. A closed pipe is not an error, and stays unchanged."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def _encoding() -> str:
    return codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name


def complain(text: str, details: Iterable[str] = ()) -> None:
    """Print one line on standard error, after the program's name, and its details below, indented."""
    text = without_credentials(text)
    if sys.stderr is not None:  # print(file=None) would print on standard output
        width = terminal_columns() if has_status() else None
        lines = sentence_lines(f"{PROGRAM}: {one_line(text)}", width)
        printed = "\n".join([*lines, *(f"    {one_line(detail)}" for detail in details)])
        with suppress(OSError):  # standard error is closed too: nothing can be reported
            print(printed, file=sys.stderr, flush=True)


def is_at_a_terminal() -> bool:
    """True if standard input and standard output are terminals."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def confirmed(question: str) -> bool:
    """True if a person at a terminal answers yes; False without a terminal."""
    if not is_at_a_terminal():
        return False
    say_on(f"{question} [y/N] ")
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False


def status(text: str) -> None:
    """Replace the status line on standard error. An empty text removes it.

    It is cut to one line of the terminal: a second line could not be replaced.
    """
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(f"\r\x1b[K{fitting(one_line(text), status_columns())}", end="", file=sys.stderr, flush=True)


def status_columns() -> int:
    """The columns of a status. The last one stays free for the cursor."""
    return terminal_columns() - 1


def has_status() -> bool:
    """True if standard error is a terminal that can show a status."""
    return sys.stderr is not None and sys.stderr.isatty()


def flush() -> None:
    """Flush standard output. Called before exit, while a full disk can still be reported like any other error."""
    if sys.stdout is not None:
        with _named_output():
            sys.stdout.flush()


def give_up_output() -> None:
    """Point standard output to /dev/null. Else Python would flush it again at exit, and fail again."""
    _to_null(sys.stdout)


def give_up_closed_errors() -> None:
    """Point standard error to /dev/null if it takes nothing (`2>&1 | head -1`). Else Python would flush it again at exit, and
    replace the exit code by 120.
    """
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            _to_null(sys.stderr)


def _to_null(stream: TextIO | None) -> None:
    with suppress(OSError, AttributeError, ValueError):
        output = stream.fileno()  # type: ignore[union-attr]  # None, or a stream without a number: nothing is flushed
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, output)
        os.close(null)


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Print the library's warnings (a torn tail was cut) with :func:`complain`.

    They name paths, and a path may hold control characters.
    """
    logger = logging.getLogger("transcript_store")
    handler = _Complainer(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def warnings_hidden() -> Iterator[None]:
    """Hide the library's warnings: the command expects them, and reports them in its own words."""
    logger = logging.getLogger("transcript_store")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Complainer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def _escape_bytes(match: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in match[0].encode("utf-8", "surrogateescape"))


def _escape_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(match[0])[1:-1]


# ---- progress ----
#
# Progress on standard error, for work longer than a second: a line that counts the seconds, or a bar.
#
# On a terminal the line is rewritten, and removed when the work is done. Elsewhere a line is printed every ten seconds.

PATIENCE_SECONDS = 1.0
SECONDS_BETWEEN_LINES = 10
"""Without a terminal."""
_BAR_CHARACTERS = 30


class Working:
    """Shows the work in progress, from one second after construction until ``done()``: in the status line, or every ten seconds.

    As a context it calls ``done()`` at its end. ``what`` may be changed in between.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._done = threading.Event()
        self._says = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def done(self) -> None:
        """Stop. On return the line is removed, and nothing more is printed. A second call does nothing."""
        if not self._done.is_set():
            self._done.set()
            self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the line while the block runs, so that other text can be printed."""
        with self._says:
            if has_status():
                status("")
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

    def _run(self) -> None:
        seconds = 0
        while not self._done.wait(PATIENCE_SECONDS):
            seconds += 1
            with self._says:
                if has_status():
                    status(f"{self.what} … {seconds} s")
                elif seconds == 1:
                    complain(f"{self.what} …")
                elif seconds % SECONDS_BETWEEN_LINES == 0:
                    complain(f"{self.what} … {seconds} s")
        if seconds and has_status():
            status("")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], object]]:
    """A bar for a download. Call what it yields with the number of bytes received and the number expected."""
    if not has_status():
        complain(f"{what} …")
        yield lambda _done, _total: None
        return

    def show(done: int, total: int) -> None:
        show_bar(done, total, before=f"{what} ", after=f" {done / 1e6:.1f}/{total / 1e6:.1f} MB")

    try:
        yield show
    finally:
        status("")


def show_bar(done: int, total: int, *, before: str = "", after: str) -> None:
    """Show a bar such as ``[#####     ]`` for ``done`` of ``total`` in the status line, between two texts."""
    length = max(0, min(_BAR_CHARACTERS, status_columns() - len(f"{before}[]{after}")))
    status(f"{before}[{'#' * (done * length // max(total, 1)):<{length}}]{after}")


# ---- pager ----
#
# Output longer than the screen goes through a pager. It is escaped before: the pager gets no escape sequence of a transcript, only
# our styles, for which ``less`` needs ``-R``.

_DEFAULT = "less -R"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_NONE = ("", "cat")


@contextmanager
def paged(*, is_wanted: bool) -> Iterator[None]:
    """Send the output of the block through a pager if it is longer than the terminal.

    ``PAGER`` names the program, by default ``less``. Without one, with ``TRANSCRIPT_STORE_NO_PAGER``, or if standard input or output
    is not a terminal, everything is printed directly. Leaving the pager ends the block.
    """
    output = sys.stdout
    try:
        command = shlex.split(os.environ.get("PAGER", _DEFAULT))
    except ValueError:  # an unmatched quotation mark
        command = []
    if not is_wanted or not _is_possible(output, command):
        yield
        return
    pages = _Pages(output, command)
    sys.stdout = pages
    try:
        yield
    except BrokenPipeError:
        if not pages.has_pager:
            raise
    finally:
        sys.stdout = output
        pages.end()


def _is_possible(output: TextIO | None, command: list[str]) -> bool:
    if output is None or not is_at_a_terminal() or os.environ.get("TERM") == "dumb":
        return False  # without a keyboard the user could not leave the pager
    if os.environ.get("TRANSCRIPT_STORE_NO_PAGER") or " ".join(command) in _NONE:
        return False
    from shutil import which  # not needed for a pipe

    return which(command[0]) is not None


class _Pages(io.TextIOBase):
    """Buffers output until it exceeds the screen; from then on a pager gets it."""

    def __init__(self, output: TextIO, command: list[str]) -> None:
        from shutil import get_terminal_size

        self._output = output
        self._command = command
        self._kept: list[str] = []
        self._columns, lines = get_terminal_size()
        self._rows_left = lines - 1  # the last line is for the prompt
        self._pager: subprocess.Popen[str] | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a text stream has one
        return self._output.encoding

    @property
    def has_pager(self) -> bool:
        return self._pager is not None

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self._pager is not None:
            self._to_pager(text)
        else:
            self._kept.append(text)
            lines = _ESCAPES.sub("", text).split("\n")
            self._rows_left -= len(lines) - 1 + sum(max(0, len(line) - 1) // self._columns for line in lines)
            if self._rows_left < 0:
                self._start()
        return len(text)

    def end(self) -> None:
        """Print output that needed no pager, or wait until the user leaves the pager."""
        if self._pager is None:
            self._output.write("".join(self._kept))
            return
        assert self._pager.stdin is not None
        with suppress(BrokenPipeError):
            self._pager.stdin.close()
        while True:
            try:
                self._pager.wait()
                return
            except KeyboardInterrupt:  # Ctrl-C belongs to the pager: there it ends a search, not the pager
                continue

    def _start(self) -> None:
        # LESSSECURE: the pager starts no shell, editor or preprocessor, and opens no other file.
        environment = {"LESS": "-R", **os.environ, "LESSSECURE": "1"}
        encoding = self._output.encoding
        import subprocess  # most output needs no pager

        self._pager = subprocess.Popen(  # noqa: S603 (PAGER is set by the user who runs this)
            self._command, stdin=subprocess.PIPE, env=environment, encoding=encoding, errors="backslashreplace"
        )
        self._to_pager("".join(self._kept))
        self._kept.clear()

    def _to_pager(self, text: str) -> None:
        assert self._pager is not None
        assert self._pager.stdin is not None
        self._pager.stdin.write(text)
