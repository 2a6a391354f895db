"""The core computes every decision about jobs and instances. All other packages do the I/O around it.

The core imports only the standard library. It has no clock, no I/O, no logging and no randomness.
Time is an argument, and a timeout is an event.
"""
