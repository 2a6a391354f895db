"""Tests that share one deployment with one instance. The files run in the order of their names.

The tests of the folder `account` run first: they need a deployment in which nothing has failed yet.
"""
