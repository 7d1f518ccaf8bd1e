"""What is said, and how does it travel? Imports storage only.

- `frames`: messages as bytes, and back, strictly. `envelopes`: a message with the way of its reply,
  addresses, and the directory of a process.
- `remedy_words`: the words of what would help a job, for all who show them.
"""
