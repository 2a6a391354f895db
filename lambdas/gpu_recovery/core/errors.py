"""The errors of the core. Each says what is wrong; none is caught to be ignored."""


class RecoveryError(Exception):
    """Base of everything this package raises on purpose."""


class IllegalTransition(RecoveryError):
    """A (status, event) pair that no table mentions: a defect in the tables, never a fact of the world."""


class PolicyInvalid(RecoveryError):
    """A policy setting that does not exist or has a value it cannot have."""


class SpecInvalid(RecoveryError):
    """A job specification that cannot be accepted. `field` names the culprit, `detail` says what it must be."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


class RayUnreachable(RecoveryError):
    """The function that reaches the Ray cluster, or the cluster itself, does not answer."""
