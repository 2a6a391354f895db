"""The health check: runs as the DCGM task's container on one GPU instance. `README.md` tells what it does and why.

    check.py            the order of things: settings, examine, judge, publish, exit
    settings.py         what the environment tells
    examine.py          the stages: kernel log, driver, diagnostic

    boot.py             which boot it is
    kernel_log.py       reads the kernel's log
    xid.py              its messages -> XIDs and SXids                           pure
    xid_table.py        the table of XIDs, in the presets `nvidia` and `aws`
    nvlink.py           what XIDs of NVLink say in their registers              pure
    recovery_action.py  what the driver wants done with a GPU: names and numbers     pure
    driver.py           asks `nvidia-smi`, and reads its answer
    kernel_evidence.py  XIDs in the light of each other -> findings             pure
    evidence.py         kernel log and driver -> findings, suspects, and which diagnostics to run   pure

    run.py              starts `dcgmi diag` (and a host engine where the image has one), with a deadline
    parse.py            text of the diagnostic -> Report                        pure
    judge.py            Report and exit code -> findings                        pure
    remedies.py         the tables: DCGM's errors and exit codes, what cures each, which outcome that is
    verdict.py          findings -> Verdict                                     pure
    document.py         Verdict and facts -> the verdict document, shape in verdict.schema.json     pure
    publish.py          writes the document to S3

The container exits with codes of our own (`EventOutcome.exit_code`); those of dcgmi never leave it.
"""
