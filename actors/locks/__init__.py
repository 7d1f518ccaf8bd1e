"""Which job holds which lock."""
