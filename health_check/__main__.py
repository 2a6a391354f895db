"""`python -m health_check`: runs `check` and turns every error into exit code 44.

Python exits with 1 after an uncaught error, and exit code 1 asks for a reboot. So any error here, a missing package
included, ends with 44: inconclusive.
"""

from __future__ import annotations

import os
import sys
import traceback

COULD_NOT_TELL = 44
"""Exit code of an inconclusive check."""


def main() -> int:
    """Return the exit code of the container. Errors become SystemExit(44), with their traceback in the log."""
    try:
        from health_check.check import check  # noqa: PLC0415 - an import that fails must not end the process with 1

        return check(os.environ)
    except BaseException as error:
        traceback.print_exc()
        raise SystemExit(COULD_NOT_TELL) from error


if __name__ == "__main__":
    sys.exit(main())
