"""Event history: what the events on the bus say about jobs, instances and incidents over time, for readers alone.

No decision reads the event history. Everything in it is a function of a set of events, so it does not matter in which
order events arrive, nor how often.
"""
