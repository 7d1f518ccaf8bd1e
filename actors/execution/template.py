"""The start of a fork server, before it imports its own modules.

Its program is named by its template in the list of processes. All that lies in the template's
memory, and each library that is mapped there, costs a little at every fork and at every end of a
child. So the lean template blocks the modules below, which other modules import only because they
are installed. A later import finds them.
"""

from __future__ import annotations

import sys

NOT_FOR_LEAN = ("typing_extensions", "_uuid")
"""Modules that others import if they can, and do as well without."""


def main() -> None:
    """Run a fork server: TEMPLATE DESCRIPTOR LOCK_FILE_DIRECTORY DRY_RUN_DIRECTORY MODULE..."""
    template, descriptor, lock_files, dry_runs = sys.argv[1:5]
    kept_out = NOT_FOR_LEAN if template == "lean" else ()
    # With None in its place, the import of a module fails as if there were none.
    blocked = dict.fromkeys(name for name in kept_out if name not in sys.modules)
    sys.modules.update(blocked)  # type: ignore[arg-type]
    from . import fork_server  # noqa: PLC0415 - that it comes now is the point

    for name in blocked:
        del sys.modules[name]
    fork_server.run(template, int(descriptor), lock_files, dry_runs, sys.argv[5:])


if __name__ == "__main__":
    main()
