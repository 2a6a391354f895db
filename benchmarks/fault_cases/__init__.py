"""Fault cases for the benchmark of the diagnosis, one module for each group of families.

The cases follow the mechanisms of the faults, not the rules of the diagnosis. A case with a wrong diagnosis stays in
the table.
"""
