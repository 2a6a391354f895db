"""Diagnosis of a failed run: pure rules over observations rank its possible causes (seed 002)."""
