"""The health check: the container of the DCGM task on one GPU instance. See `README.md`.

- check.py            the sequence: settings, examination, verdict, publication, exit status
- settings.py         settings from the environment
- examine.py          the stages: kernel log, driver, diagnostic

- boot.py             the id and the time of the current boot
- kernel_log.py       reads the kernel log
- xid.py              kernel messages -> XIDs and SXids                          pure
- xid_table.py        the table of XIDs, in the presets `nvidia` and `aws`
- nvlink.py           decodes the registers in XIDs of NVLink                    pure
- recovery_action.py  the driver's recovery action: names and numbers            pure
- driver.py           calls `nvidia-smi` and parses its output
- kernel_evidence.py  XIDs in relation to each other -> findings                 pure
- evidence.py         kernel log and driver -> findings, suspects, and which diagnostics to run   pure

- run.py              runs `dcgmi diag` (and a host engine if the image has one) with a deadline
- parse.py            output of the diagnostic -> DiagnosticReport               pure
- judge.py            report and exit code -> findings                           pure
- remedies.py         tables: errors and exit codes of DCGM, their remedies, and the outcomes
- verdict.py          findings -> verdict                                        pure
- document.py         verdict and facts -> verdict document (verdict.schema.json)                 pure
- publish.py          writes the document to S3

The container exits with codes of its own (`HealthOutcome.exit_code`), never with a code of dcgmi.
"""
