"""JSON: what a message may hold, JSON kept as text, the parts of a message, times. Nothing here does I/O."""
