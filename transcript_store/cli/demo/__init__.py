"""The command ``demo`` and the modules that only it uses."""
