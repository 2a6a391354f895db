"""What the agent observes, one module for each source.

A source without data is a fact, not an error of the agent.
"""
