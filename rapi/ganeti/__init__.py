"""Which resources do only Ganeti's clients need?"""
