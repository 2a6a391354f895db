"""The process of a rank with what belongs to it: its suspension folder, its guard and its output.

The processes of a rank and of its standby process are made in the same way. So a standby process needs nothing new when
it becomes the command of an attempt.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from .guard import Guard
from .output_tail import OutputTail
from .process import Command
from .suspension_folder import VARIABLE, SuspensionFolder, suspension_folder

NOT_PASSED = (VARIABLE, "GPU_RECOVERY_SIMULATE")
"""Variables of the wrapper that its command does not inherit."""


class RankProcess:
    """A process that waits at its gate. The signals that the wrapper forwards stay blocked from here on.

    Args:
        arguments: the command line.
        environment: the environment of the rank.
        say: writes one line to the log of the rank.
        on_line: is called when the process writes a line.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        say: Callable[[str], None],
        on_line: Callable[[], None] = lambda: None,
    ) -> None:
        self._kept, self._is_prepared = ExitStack(), False
        self.folder = self._new_folder(environment, say)
        self.environment = _passed(environment, self.folder)
        try:
            self.guard = Guard(self.path)  # before the pipes of the output, which it must not hold open
            self._kept.callback(self.guard.dismiss)
            self.output = OutputTail(environment, on_line)
            self.command = Command(arguments, self.environment, self.output.ends)
        except BaseException:
            self.close()
            raise
        self.guard.watch(self.command.pid)
        self.output.begin()

    @property
    def path(self) -> Path | None:
        """Return the path of the suspension folder."""
        return self.folder.path if self.folder else None

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Prepare this standby process for the start of an attempt with this environment.

        Raises OSError if the folder has no room; nothing has changed then.
        """
        if self.folder is None:
            raise OSError(errno.ENOENT, "there is no folder")
        passed = _passed(environment, self.folder)
        # A standby process has no variable that an attempt lacks, so none is removed.
        self.folder.prepare_start({name: passed[name] for name in passed if self.environment.get(name) != passed[name]})
        self._is_prepared = True

    def go(self) -> None:
        """Let the process execute the command, or let the prepared standby process go on. Raises OSError."""
        if self._is_prepared and self.folder is not None:
            self.command.to_the_foreground()
            self.folder.start()
        else:
            self.command.go()

    def close(self) -> None:
        """Remove the suspension folder, and end the guard."""
        self._kept.close()

    def _new_folder(self, environment: Mapping[str, str], say: Callable[[str], None]) -> SuspensionFolder | None:
        """Return the suspension folder. Without it a command gets no notice of a suspension, and runs nevertheless."""
        try:
            return self._kept.enter_context(suspension_folder(environment))
        except OSError as error:
            say(f"warning: no folder for the notice of a suspension can be made: {error}")
            return None


def _passed(environment: Mapping[str, str], folder: SuspensionFolder | None) -> dict[str, str]:
    """Return the environment of the command of a rank."""
    passed = {name: value for name, value in environment.items() if name not in NOT_PASSED}
    return {**passed, VARIABLE: str(folder.path)} if folder else passed
