"""How are files written durably, where do they lie, and whose are they?"""
