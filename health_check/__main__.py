"""`python -m health_check`: the guard around `check`.

Python ends with 1 on any error of its own, and 1 asks for a reboot. So whatever goes wrong in here, a missing
package included, ends with 44: could not tell.
"""

from __future__ import annotations

import os
import sys
import traceback

COULD_NOT_TELL = 44


def main() -> int:
    """The exit code of the container. Errors leave as SystemExit(44), their traceback in the log."""
    try:
        from health_check.check import check  # noqa: PLC0415 - an import that fails must not end the process with 1

        return check(os.environ)
    except BaseException as error:
        traceback.print_exc()
        raise SystemExit(COULD_NOT_TELL) from error


if __name__ == "__main__":
    sys.exit(main())
