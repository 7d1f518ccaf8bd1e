"""What is said, and how it travels. Imports storage only."""
