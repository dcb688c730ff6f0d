"""The only code that calls the operating system."""
