"""Which components live, where, and what happens when one dies."""
