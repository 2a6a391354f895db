"""The instance machine: an instance works, is checked, is repaired, or waits for a person."""
