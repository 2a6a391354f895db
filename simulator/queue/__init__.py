"""Traces of real clusters through the queue: how long jobs wait under its rules and under simpler ones."""
