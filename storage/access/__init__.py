"""Who may come in: keys, users and certificates?"""
