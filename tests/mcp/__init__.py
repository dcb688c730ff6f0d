"""What an agent is told of past conversations, and what it cannot get at."""
