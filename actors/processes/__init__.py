"""Operating system processes."""
