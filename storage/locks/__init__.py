"""What are the names, levels and modes of locks, and what is in their file?"""
