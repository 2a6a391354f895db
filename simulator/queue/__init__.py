"""Replay of job traces of real clusters: waiting times under the production rules and under simpler disciplines."""
