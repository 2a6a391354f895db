"""The command of `make deploy`: one deployment by `cdk deploy`, and the next steps after it."""
