"""The error about wrong settings of a deployment, and the names of settings in the CDK context."""

from collections.abc import Callable, Sequence

NAMESPACE = "gpu-recovery:"
"""Prefix of the context keys."""
Problem = tuple[str, str]
"""A setting without its prefix, and the sentence that says what is wrong with it."""


def context_key(setting: str) -> str:
    """Return the key of a setting in the CDK context."""
    return f"{NAMESPACE}{setting}"


class DeploymentSettingsError(ValueError):
    """One or more settings are wrong. Each line of the message names the setting to change.

    Args:
        problems: each wrong setting, without prefix, and a sentence; "" if the sentence is about no setting.
        named: returns the name of a setting under which its user knows it.
    """

    def __init__(self, problems: Sequence[Problem], named: Callable[[str], str] = context_key) -> None:
        lines = (f"{named(setting)}: {sentence}" if setting else sentence for setting, sentence in problems)
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)
