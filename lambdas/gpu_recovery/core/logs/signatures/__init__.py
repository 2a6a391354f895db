"""Signatures of log lines: one file for each family of causes."""
