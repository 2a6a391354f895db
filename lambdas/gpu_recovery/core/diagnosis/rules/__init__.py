"""Diagnosis rules, one file for each family of mechanisms; each file ends with its `RULES`."""
