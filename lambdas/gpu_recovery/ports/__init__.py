"""Interfaces that the loop needs: store, actions, decision log, and their errors."""
