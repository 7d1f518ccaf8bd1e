"""What is wrong in a data directory that no daemon uses, and how is it repaired?"""
