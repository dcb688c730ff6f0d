"""What several commands share: arguments, the terminal, keys, and how a record is shown."""
