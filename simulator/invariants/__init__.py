"""The invariants I1 to I12, which must always hold, and their checks during a run."""
