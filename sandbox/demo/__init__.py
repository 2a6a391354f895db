"""The demo: a GPU fault heals itself on this machine."""
