"""The wire formats of the providers, and the connections through their SDKs."""
