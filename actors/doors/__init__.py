"""The listeners: bytes in, messages out."""
