"""The command ``demo`` and what only it needs."""
