"""The command ``chat`` and what only it needs."""

HINT = "Enter sends, Alt-Enter begins a new line, Ctrl-C stops an answer, /help tells more, Ctrl-D leaves."
