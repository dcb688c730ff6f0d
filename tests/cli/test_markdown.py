"""``show`` on a terminal renders Markdown, and nothing in a transcript controls the terminal."""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from tests.cli import helpers
from tests.cli.helpers import COMMAND, ENVIRONMENT, conversation, obeyed, without_looks
from transcript_store.cli._shared.terminal import columns_of, wrapped

for needed in ("markdown_it", "pygments"):
    pytest.importorskip(needed, reason="needs the extra `view`")
from transcript_store.cli._shared.markdown import code_lines, markdown_lines  # noqa: E402

SAID = """\
# Moving the store

Why does the **socket** time out? See [the docs](https://example.com/a) and *wait* in `client.py`, ~~once~~ twice.

1. First:
   - one
   - two
2. Second

> quoted

| Name | Size |
|---|--:|
| a | 1,234 |
| bcd | 5 |

```python
def main(): return 42
```
"""
SHOWN = """\
Moving the store

Why does the socket time out? See the docs
(https://example.com/a) and wait in client.py, once
twice.

1. First:
   • one
   • two
2. Second

│ quoted

Name │  Size
─────┼──────
a    │ 1,234
bcd  │     5

  def main(): return 42"""


def shown(said: str, width: int = 52) -> str:
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in markdown_lines(said, width))


def on_a_terminal(*arguments: str, **environment: str) -> str:
    plain = {name: value for name, value in ENVIRONMENT.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    code, said = helpers.on_a_terminal(
        "show", "--no-pager", *arguments, rows=50, environment={**plain, "TERM": "xterm", **environment}
    )
    assert code == 0
    return said


def test_markdown_is_shown_with_what_it_means():
    """Headings, lists, quotations, tables, code, emphasis and links; the signs are gone, and no line is too wide."""
    assert shown(SAID) == SHOWN
    looks = {piece.text: piece.looks for line in markdown_lines(SAID, 52) for piece in line}
    assert looks["Moving the store"] == ("strong", "under", "magenta")
    assert looks["socket"] == ("strong",)
    assert looks["wait"] == ("italic",)
    assert looks["once"] == ("struck",)
    assert looks["client.py"] == looks["42"] == ("cyan",)
    assert looks["the docs"] == ("under",)
    assert looks["def"] == ("magenta",)


def test_an_item_of_a_task_list_begins_with_a_box():
    """``[ ]`` and ``[x]`` are boxes where a list's item begins, and what they are elsewhere."""
    said = (
        "- [ ] wash `up` [ ]\n- [x] **dry**\n- [X] shelve\n  1. [ ] cups\n- [x]: no\n- [x](https://a.example)\n\n[ ] no"
    )
    assert shown(said) == (
        "• ☐ wash up [ ]\n• ☑ dry\n• ☑ shelve\n  1. ☐ cups\n• [x]: no\n• x (https://a.example)\n\n[ ] no"
    )


def test_on_a_terminal_and_nowhere_else(tmp_path):
    """Into a pipe, with --plain, NO_COLOR or TERM=dumb the text is as it was written, to the byte."""
    path = conversation(tmp_path / "one", [{"role": "assistant", "content": SAID}])
    seen = on_a_terminal(path)
    assert "\x1b[1;4;35mMoving the store\x1b[0m\n" in seen
    assert "**" not in seen
    piped = subprocess.run((*COMMAND, "show", path), env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    assert "    # Moving the store\n" in piped
    for arguments, environment in ((("--plain",), {}), ((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"})):
        shown = without_looks(on_a_terminal(path, *arguments, **environment))
        assert shown.partition("\n")[2] == piped.partition("\n")[2]  # the line above fits the terminal


def test_what_a_call_was_given_is_read_by_a_person(tmp_path):
    """An edit as its diff, a command as it is typed, a text of several lines as lines, all else as JSON; in a pipe only commands are."""
    edit = {"file_path": "a.py", "old_string": "x = 1\ny = 2\n", "new_string": "x = 1\ny = 3\x1b[7m\n"}
    given = [edit, {"content": "one\n\n  two\n", "mode": 6}, {"command": "ls"}, {"command": "ls\n"}, {"n": [1]}]
    calls = [{"type": "tool_use", "id": f"t{at}", "name": "do", "input": each} for at, each in enumerate(given)]
    path = conversation(tmp_path / "one", [{"role": "assistant", "content": calls}])
    seen = on_a_terminal(path, "--full", COLUMNS="100")
    assert (
        '      {"file_path": "a.py"}\n       x = 1\n      \x1b[31m-y = 2\x1b[0m\n      \x1b[32m+y = 3\\x1b[7m' in seen
    )
    assert '      {"mode": 6}\n      content:\n        one\n\n          two\n' in re.sub(r" +\n", "\n", seen)
    assert without_looks(seen).count("      $ ls\n") == 2
    assert '"n":[1]' in without_looks(seen).replace(": ", ":")
    piped = subprocess.run((*COMMAND, "show", path), env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    assert piped.count("old_string") == 1


@pytest.mark.parametrize("width", [1, 2, 9, 24, 80])
def test_a_word_that_has_no_room_is_broken_behind_a_sign(width):
    """And nothing of it is lost, whatever it is made of; no line is wider."""
    for said in (
        "see (rw,relatime,discard,resv_strict,resuid=65534,resgid=65534) there",
        "x" * 200,
        "/a" * 99,
        ",",
        "",
    ):
        lines = [line for line, _ in wrapped(said, (), width)]
        assert "".join(lines).replace(" ", "") == said.replace(" ", "")
        assert all(len(line) <= width for line in lines)
    lines = [line for line, _ in wrapped("see (rw,relatime,discard,resuid=65534,resgid=65534)", (), 24)]
    assert lines == ["see", "(rw,relatime,discard,", "resuid=65534,", "resgid=65534)"]


def test_thinking_is_broken_between_words(tmp_path):
    """A model thinks in sentences: they were cut wherever the terminal ended, as code is."""
    thought = " ".join(f"word{number}" for number in range(100))
    thinking = {"type": "thinking", "thinking": thought, "signature": "s"}
    path = conversation(tmp_path / "one", [{"role": "assistant", "content": [thinking]}])
    assert thought in " ".join(without_looks(on_a_terminal(path, COLUMNS="60")).split())


def test_without_the_extra_the_text_is_as_it_was_written(tmp_path):
    path = conversation(tmp_path / "one", [{"role": "assistant", "content": SAID}])
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "markdown_it.py").write_text("raise ModuleNotFoundError(name='markdown_it')")
    seen = without_looks(on_a_terminal(path, PYTHONPATH=str(tmp_path / "fake")))
    assert "    # Moving the store\n" in seen


HOSTILE = (
    "# \x1b[7m title\n\n**\x1b]0;x\x07** `\x9b7m` [\x1b[7m](https://a/%1b[7m) <https://b/\x1b[7m> &#x1b;[7m &#x202e;gnp\n\n"
    "| \x1b[7m |\n|--|\n| \u202e |\n\n```\x1b[7m\n\x1b[7m\n```\n\n![\x1b[7m](https://c/&#x1b;[7m)\n\n    \x1b[7m\n\n- \x1b[7m\n> \x1b]8;;http://x\x1b\\\n"
)


def test_no_escape_of_a_transcript_reaches_the_terminal(tmp_path):
    """Wherever it stands in the Markdown, and also as the name of a character."""
    path = conversation(tmp_path / "one", [{"role": "assistant", "content": HOSTILE}])
    seen = on_a_terminal(path, COLUMNS="200")
    assert obeyed(without_looks(seen)) == set()
    assert seen.count("\\x1b[7m") >= 6
    assert "\\u202egnp" in seen


@pytest.mark.parametrize("width", [12, 30, 100])
def test_no_line_is_wider_than_it_may_be(width):
    """What a terminal breaks would begin in the first column, and could look like the heading of a record."""
    deep = "".join(f"{'  ' * level}- {'x' * 30} 漢字漢字 #12  user\n" for level in range(3))
    for said in (SAID, HOSTILE, deep, "#12  user " * 50, "x" * 500, "|" + "a|" * 40 + "\n|" + "-|" * 40 + "\n|b|\n"):
        for line in markdown_lines(said, width):
            assert sum(columns_of(piece.text) for piece in line) <= max(width, 12 + 8), (said[:40], line)
    assert all(
        sum(columns_of(piece.text) for piece in line) <= width
        for line in code_lines("y = 1 " * 99, width, language="python")
    )


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "said",
    [
        "[a](b" * 16_000,
        "* " * 40_000,
        "> " * 40_000,
        "**a" * 30_000,
        "`" * 90_000,
        "|a" * 200 + "|\n" + "|-" * 200 + "|\n" + "b\n" * 327,
        "[a]: https://a/" + "b" * 40_000 + "\n\n" + "[a] " * 10_000,
        "x" * 1_000_000,
        "*a* a" + "\u0301" * 1_900_000,  # a line that never gets wider: it was put together a character at a time
        "&#x1b;" * 15_000,
    ],
)
def test_no_text_takes_long(said):
    """Of the processor, for what a message may be at worst; and what is shown stays within a bound."""
    start = time.process_time()
    size = sum(len(piece.text) for line in markdown_lines(said, 80) for piece in line)
    assert time.process_time() - start < 60
    assert size < 2_000_000
