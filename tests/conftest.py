"""What holds for every test: no example of a property has a clock running against it."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
