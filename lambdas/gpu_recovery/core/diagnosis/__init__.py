"""Diagnosis of a failed run: pure rules over observations rank its possible causes.

The rules implement the rows of a fault catalogue and have the numbers of these rows (docs/diagnosis.md).
"""
