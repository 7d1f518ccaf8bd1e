"""Who lives: lock files, and the identities of processes?"""
