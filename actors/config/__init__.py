"""The single writer of the configuration."""
