"""Keys: the data key of a conversation, the file that holds it wrapped, and the providers that wrap it."""
