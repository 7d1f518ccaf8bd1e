"""The commands. They import transport and storage; only ``daemon`` imports actors."""
