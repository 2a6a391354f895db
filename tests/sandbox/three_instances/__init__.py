"""Tests that share one deployment with three instances and their agents. The files run in the order of their names."""
