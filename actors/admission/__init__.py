"""Which submissions are taken in, and what is stored of them?"""
