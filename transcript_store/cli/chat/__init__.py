"""The command ``chat`` and the modules that only it uses."""

HINT = "Enter sends, Alt-Enter begins a new line, Ctrl-C stops an answer, /help tells more, Ctrl-D leaves."
