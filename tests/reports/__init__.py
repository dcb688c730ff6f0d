"""Faults that others reported of stores and readers of conversations, each with the right value."""
