"""The only code that meets the operating system."""
