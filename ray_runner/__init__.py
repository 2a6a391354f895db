"""Ray runner: the only function that reaches the Ray cluster.

The function is deployed as a container image, because Ray is larger than a Lambda package may be.
"""
