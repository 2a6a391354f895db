"""Log classification: which lines of a log report an error, and which is the cause.

All modules are pure rules over text.
"""
