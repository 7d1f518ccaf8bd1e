"""How do Ganeti's own tools speak: LUXI's documents, and LuxiD's words?"""
