"""The instance state machine: an instance works, is checked, repaired or quarantined."""
