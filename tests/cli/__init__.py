"""The command line: what it prints, what it refuses, and that nothing stored reaches a terminal unescaped."""
