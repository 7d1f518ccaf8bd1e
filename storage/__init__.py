"""What is true, and what is on disk. Imports nothing else of Ganger."""
