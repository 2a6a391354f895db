"""The core decides; everything else carries messages to it and its decisions away.

Standard library only: no clock, no I/O, no logging, no randomness. Time is an argument and a timeout is an event.
"""
