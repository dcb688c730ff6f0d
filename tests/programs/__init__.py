"""The programs whose histories we read and write, as their makers ship them: pinned npm packages, run against ``lab``."""
