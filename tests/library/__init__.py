"""ConversationLibrary as it is documented, and what many conversations in one folder need: names, lists, forks, deletes."""
