"""The command ``chat`` and what only it needs."""
