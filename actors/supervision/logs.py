"""The daemon's log: one JSON object a line. The home of structlog."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

# structlog imports rich where it finds it, for colors on a terminal that a log has not, and asyncio
# for methods that no code here calls. Each would be an eighth of the daemon's start.
_modules: dict[str, Any] = sys.modules
_hidden = [
    name
    for name, instead in (("rich", None), ("asyncio", ModuleType("asyncio")))
    if _modules.setdefault(name, instead) is instead
]
import structlog  # noqa: E402

for _name in _hidden:
    del _modules[_name]

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
