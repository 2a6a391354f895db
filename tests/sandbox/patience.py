"""How long a test waits for something that must happen.

The wait ends when the condition is true. So a long limit costs nothing in a good run, and a slow machine fails no test.
"""

from __future__ import annotations

PATIENCE_S = 300.0
"""Limit of one wait, in seconds: minutes more than any wait takes on two cores beside four busy processes."""
