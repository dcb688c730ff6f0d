"""The room of the engines: slots, sessions on them, and the proof."""
