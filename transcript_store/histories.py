"""A provider's native history, and what was said in it: what a chat client needs to save to and continue from a snapshot."""

from transcript_store._snapshots.converting import tool_members, tool_snapshots
from transcript_store._snapshots.history import begins_with_prompt, messages_in, native_history
from transcript_store._snapshots.snapshot import OURS

__all__ = [
    "OURS",
    "begins_with_prompt",
    "messages_in",
    "native_history",
    "tool_members",
    "tool_snapshots",
]
