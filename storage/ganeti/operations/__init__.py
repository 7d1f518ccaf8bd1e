"""What do Ganeti's opcodes do to the configuration? Pure."""
