"""Replay of recorded incidents: the production loop runs again on the failures that an account has recorded."""
