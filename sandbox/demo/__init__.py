"""The demo: the recovery from a GPU fault, in a sandbox on one host."""
