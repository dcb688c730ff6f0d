"""What several commands share: arguments, the terminal, keys, how a record is shown."""
