"""How programs come in over HTTP. Imports transport and storage, never actors."""
