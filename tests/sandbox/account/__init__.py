"""`gpu-recovery init` and `gpu-recovery doctor` against the account of a sandbox that no other test changes."""
