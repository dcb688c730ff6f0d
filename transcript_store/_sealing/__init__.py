"""Keys, and what is sealed with them: the data key of a conversation, the file that holds it wrapped, and who wraps it."""
