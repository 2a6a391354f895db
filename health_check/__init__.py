"""The health check: runs as the DCGM task's container on one GPU instance.

    check.py     the order of things: settings, diagnose, judge, publish, exit
    run.py       starts `dcgmi diag` (and a host engine where the image has one), with a deadline
    parse.py     text of the diagnostic -> Report          pure
    judge.py     Report, exit code, GPUs -> Verdict        pure
    remedies.py  the tables: DCGM's errors and exit codes, what cures each, which outcome that is
    document.py  Verdict and facts -> the verdict document pure, shape in verdict.schema.json
    publish.py   writes the document to S3

The container exits with codes of our own (`Outcome.exit_code`); those of dcgmi never leave it.
"""
