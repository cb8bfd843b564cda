"""The permission hooks of clients: what they are told, and what they say."""
