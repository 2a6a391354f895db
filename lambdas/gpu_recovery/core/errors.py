"""Errors of the core. Each error says what is wrong. No caller catches an error in order to ignore it."""


class RecoveryError(Exception):
    """Base class of the errors that this package defines."""


class IllegalTransition(RecoveryError):
    """A (status, event) pair that neither table of a state machine has. This is a defect of the tables."""


class PolicyInvalid(RecoveryError):
    """A policy setting that does not exist or has a value that is not allowed."""


class SpecInvalid(RecoveryError):
    """A job specification that is rejected. `field` is the wrong field, `detail` says what the field must be."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


class RayUnreachable(RecoveryError):
    """The Ray cluster, or the function that calls the cluster, does not answer."""
