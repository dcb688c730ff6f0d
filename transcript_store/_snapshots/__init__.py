"""Snapshots: immutable copies of a conversation, and the stores that keep them."""
