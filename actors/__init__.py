"""Who decides, and who does it? Imports transport and storage."""
