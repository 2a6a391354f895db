"""Tests that share one deployment with one instance. The files run in the order of their names."""
