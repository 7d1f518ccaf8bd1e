"""What do opcodes do to the configuration? Pure."""
