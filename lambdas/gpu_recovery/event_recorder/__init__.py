"""Event recorder: writes the events of the bus into the event history, for the web console and the job API.

The recovery loop does not depend on it. While it is broken, jobs and instances are healed as before, and its events
wait in the queue of failed events.
"""
