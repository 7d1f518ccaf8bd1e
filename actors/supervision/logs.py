"""The daemon's log: one JSON object a line. The home of structlog."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

# structlog imports rich where it finds it, for colors on a terminal that a log has not: an eighth
# of the daemon's start.
_modules: dict[str, Any] = sys.modules
_is_hidden = _modules.setdefault("rich", None) is None
import structlog  # noqa: E402

if _is_hidden:
    del _modules["rich"]

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_INFO = 20


def to_file(stream: TextIO) -> FilteringBoundLogger:
    """A logger that writes to ``stream``; each line has a UTC time, a level and an event."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.JSONRenderer(default=repr),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_INFO),
        context_class=dict,
    )
    return logger
