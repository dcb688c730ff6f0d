"""The command ``chat`` and the modules that only it uses."""

HINT = "Enter sends, Alt-Enter starts a new line, Ctrl-C stops an answer, /help shows the commands, Ctrl-D leaves."
