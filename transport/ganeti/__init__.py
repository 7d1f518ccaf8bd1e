"""How do Ganeti's own tools speak: LUXI's documents, and LuxiD's words?

- `luxi`: documents as bytes, both ways. No sockets.
- `luxi_words`: the texts of LuxiD's answers.
"""
