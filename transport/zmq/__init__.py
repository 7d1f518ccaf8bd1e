"""How do frames travel over sockets?"""
