"""A directory with many conversations: its folders, what is created together, copied, and due to go."""
