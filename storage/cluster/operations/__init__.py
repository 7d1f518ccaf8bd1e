"""How does an opcode look at the configuration, and change it? Pure."""
