"""Measures Ganger beside this machine's own floors and, where it is installed, beside RQ."""
