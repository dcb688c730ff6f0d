"""Backends: slots, sessions on them, and the proof."""
