"""What an agent can read of past conversations, and what it cannot."""
