"""`gpu-recovery init` and `gpu-recovery doctor` against the account of the sandbox.

Each test restores what it changes.
"""
