"""What does the configuration hold, and what may it become? Values only.

Objects, their rules, and the questions about them.
"""
