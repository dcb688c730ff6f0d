"""How does a chat client save a provider's native history to a snapshot, and continue from one?"""

from transcript_store._snapshots.history import (
    begins_with_prompt,
    messages_in,
    native_history,
    tool_members,
    tool_snapshots,
)
from transcript_store._snapshots.snapshot import OURS

__all__ = [
    "OURS",
    "begins_with_prompt",
    "messages_in",
    "native_history",
    "tool_members",
    "tool_snapshots",
]
