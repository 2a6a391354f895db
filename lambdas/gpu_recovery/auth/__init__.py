"""Tokens of nodes and users, their roles, and the check of a token on a request."""
