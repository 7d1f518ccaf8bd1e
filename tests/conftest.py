"""What all tests share: how hypothesis runs."""

from __future__ import annotations

from hypothesis import settings

# No deadline for one example: how long it takes says more about the machine than about the code.
# A failure prints the line that repeats it.
settings.register_profile("ganger", deadline=None, print_blob=True)
settings.load_profile("ganger")
