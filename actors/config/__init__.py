"""Which rules and limits are set?

The single writer of the configuration (`ConfigStore`).
"""
