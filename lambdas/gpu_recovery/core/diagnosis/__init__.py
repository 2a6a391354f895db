"""Which part of a distributed run failed, and how sure that is: pure rules over reports (seed 002)."""
