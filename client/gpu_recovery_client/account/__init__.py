"""The AWS account of a deployment, read with the caller's own credentials: for `gpu-recovery init` and `doctor`.

Nothing here changes anything in the account. The calls need botocore, which the extra `iam` installs.
"""
