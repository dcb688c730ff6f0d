"""The wire formats of the providers, and the SDK that sends them."""
