"""The invariants I1 to I13, which must always hold, and their checks during a run."""
