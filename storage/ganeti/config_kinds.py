"""What Ganeti says of the kinds of objects in the configuration: schemas, and rules for all."""

from __future__ import annotations

from .object_rules import note
from .schemas import SCHEMAS

__all__ = ["SCHEMAS", "note"]
