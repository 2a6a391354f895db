"""What makes a release: the wheels, the quick start, and the digests of base images.

It runs on a developer's computer and in CI.

- wheels.py          builds the three wheels into dist/
- wheel_metadata.py  what an index would refuse or show badly in the metadata of a wheel
- try_wheels.py      installs the wheels into a fresh environment, uses them and removes each alone
"""
