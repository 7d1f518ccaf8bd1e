"""How people come in. Imports transport and storage; only ``daemon`` imports actors."""
