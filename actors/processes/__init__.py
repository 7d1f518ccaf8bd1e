"""How are processes of the system reached, followed and ended?"""
