"""A program in a real terminal: send keys, read the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from typing import Self

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")
_PROMPT = b"\x1b[?2004h"
"""The beginning of a prompt: from here on a pasted text comes as one."""
_SENT = b"\x1b[?2004l"
"""The end of a prompt."""
_STATUS = re.compile(r"[a-z ]*… \d+ s|\(the model gets [^)]*\)")
"""What the program says of itself while an answer is waited for."""
_WORD = re.compile(r"[A-Za-z]{3}")
_POSITION_REQUEST = b"\x1b[6n"


class Terminal:
    """Runs a command in a pseudo-terminal, in a session of its own, so that Ctrl-C is a signal to it as everywhere."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (nothing else happens in it)
        )
        os.close(slave)
        self._raw = b""
        self._read = 0
        self._prompts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """Everything that was written so far, without what moves the cursor."""
        return _CONTROL.sub("", self._raw.decode(errors="replace"))

    def is_as_it_was(self) -> bool:
        """Whether the terminal echoes what is typed, line by line, as before the program."""
        local_modes: int = termios.tcgetattr(self._master)[3]
        return bool(local_modes & termios.ECHO and local_modes & termios.ICANON)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str, *, seconds: float = 120) -> str:
        """Wait until this was written, after what was waited for before; returns what came up to its end."""
        until = time.monotonic() + seconds
        while (found := self.text.find(text, self._read)) < 0:
            assert time.monotonic() < until, f"not seen: {text!r}\n{self.text}"
            assert self._more(0.2) or self.process.poll() is None, f"ended before {text!r}\n{self.text}"
        before, self._read = self._read, found + len(text)
        return self.text[before : self._read]

    def wait_for_prompt(self) -> None:
        """Wait until the program asks for the next message."""
        self._prompts += 1
        until = time.monotonic() + 120
        while self._raw.count(_PROMPT) < self._prompts:
            assert time.monotonic() < until, f"no prompt\n{self.text}"
            assert self._more(0.2) or self.process.poll() is None, f"ended\n{self.text}"
        self._read = len(self.text)

    def wait_for_answer(self) -> None:
        """Wait until an answer has begun, behind the message that was sent and whatever says that it is waited for."""
        until = time.monotonic() + 120
        while not _WORD.search(_STATUS.sub("", _CONTROL.sub("", self._after_the_prompt()))):
            assert time.monotonic() < until, f"no answer\n{self.text}"
            assert self._more(0.02) or self.process.poll() is None, f"ended\n{self.text}"

    def _after_the_prompt(self) -> str:
        sent = self._raw.split(_SENT)
        return sent[self._prompts].decode(errors="replace") if len(sent) > self._prompts else ""

    def end(self, *, seconds: float = 120) -> int:
        """Wait until the program ended; returns its exit code."""
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, f"still running\n{self.text}"
            self._more(0.05)
        while self._more(0):
            pass
        return self.process.returncode

    def _more(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # Linux says so when nobody has the other end any more
            return False
        self._raw += chunk
        for _ in range(chunk.count(_POSITION_REQUEST)):
            os.write(self._master, b"\x1b[40;1R")
        return bool(chunk)
