"""Timings, kept out of the tests: whole commands, compared within one run and given as ratios."""
