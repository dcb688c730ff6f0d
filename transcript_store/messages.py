"""Messages in any provider's form: what one may hold, its parts, a reply as messages, the tokens of a reply and its cost.

For clients, viewers and imports. ``encode_message`` refuses what a conversation would refuse. ``parse_message`` refuses
what reading JSON would change silently. ``parts_of`` never fails. An ``EncodedMessage`` is the result of
``encode_message``: ``ConversationStore.restore`` and ``append_messages`` accept it unchecked.
"""

from transcript_store._conversation.metadata import family as provider_family
from transcript_store._conversation.summary import UsageCount
from transcript_store._json.parts import PROMPT_ROLES, Part, as_text, document_in, left_of, parts_of, role_of, typed_of
from transcript_store._json.pydantic_ai import in_claude_form as pydantic_ai_in_claude_form
from transcript_store._json.replies import ReplyMessages, Tokens, cost_in, from_reply, tokens_in
from transcript_store._json.strict import EncodedMessage
from transcript_store._json.strict import decode as decode_message
from transcript_store._json.strict import encode as encode_message
from transcript_store._json.strict import parse as parse_message

__all__ = [
    "PROMPT_ROLES",
    "EncodedMessage",
    "Part",
    "ReplyMessages",
    "Tokens",
    "UsageCount",
    "as_text",
    "cost_in",
    "decode_message",
    "document_in",
    "encode_message",
    "from_reply",
    "left_of",
    "parse_message",
    "parts_of",
    "provider_family",
    "pydantic_ai_in_claude_form",
    "role_of",
    "tokens_in",
    "typed_of",
]
