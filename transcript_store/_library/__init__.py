"""A directory with many conversations: its folders, groups, forks and pruning."""
