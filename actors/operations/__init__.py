"""What opcodes do."""
