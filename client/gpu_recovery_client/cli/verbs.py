"""Table of the verbs of `gpu-recovery`, in the order of the help."""

from __future__ import annotations

from gpu_recovery_client.cli.command import Verb

JOB, INSTANCE = "sft-20261121-101318-6eea", "i-0123456789abcdef0"
"""Ids in examples."""
SECTIONS: dict[str, tuple[Verb, ...]] = {
    "Jobs": (
        Verb(
            "submit",
            "submit",
            "submit",
            "Submit a training job.",
            (
                "gpu-recovery submit --example > job.yaml",
                "gpu-recovery submit job.yaml --follow",
                "gpu-recovery submit job.yaml --priority LOW --dry-run",
                "gpu-recovery submit --workload sft --nnodes 2 --gpus-per-node 8 \\",
                "    --task-definition gpu-training --wait -- python train.py",
            ),
            command="Submit",
        ),
        Verb(
            "status",
            "jobs",
            "status",
            "Show one job: its status, the reason, and its attempts.",
            (f"gpu-recovery status {JOB}", f"gpu-recovery status {JOB} -o yaml"),
        ),
        Verb(
            "list",
            "job_list",
            "list_jobs",
            "List jobs, the newest first.",
            (
                "gpu-recovery list --state running --user ana",
                "gpu-recovery list --since 12h --all --json",
                "gpu-recovery list --filter workload=sft --filter reason~GPU --sort oldest",
            ),
        ),
        Verb(
            "logs",
            "logs",
            "logs",
            "Print the log of a rank.",
            (f"gpu-recovery logs {JOB} --follow", f"gpu-recovery logs {JOB} --attempt 1 --rank 3 --tail 50"),
        ),
        Verb(
            "explain",
            "jobs",
            "explain_one",
            "Explain the status of a job or an instance.",
            (f"gpu-recovery explain {JOB}", f"gpu-recovery explain {INSTANCE}"),
        ),
        Verb(
            "diagnose",
            "diagnose",
            "diagnose",
            "Find the cause of a failure from reports, a log or dumps.",
            (
                f"gpu-recovery diagnose {JOB}",
                "gpu-recovery diagnose --file reports.jsonl",
                "gpu-recovery diagnose --log rank-3.log",
                "gpu-recovery diagnose --log - --json       # the log on standard input",
            ),
        ),
        Verb(
            "queue",
            "queue",
            "queue",
            "Show waiting jobs with their wait reasons, and running jobs.",
            ("gpu-recovery queue", "gpu-recovery queue --user ana --json"),
        ),
        Verb(
            "cancel",
            "job_orders",
            "cancel",
            "Cancel jobs: their ranks are stopped, and the jobs end.",
            (
                f"gpu-recovery cancel {JOB}",
                f"gpu-recovery cancel {JOB} --force",
                "gpu-recovery cancel --all --user ana --yes",
            ),
        ),
        Verb(
            "suspend",
            "job_orders",
            "suspend",
            "Have jobs save their state and release their instances.",
            (f'gpu-recovery suspend {JOB} --because "a demo needs the GPUs"',),
        ),
        Verb(
            "resume",
            "job_orders",
            "resume",
            "Queue suspended jobs again at their former positions.",
            (f"gpu-recovery resume {JOB}", "gpu-recovery resume --all --user ana"),
        ),
    ),
    "Machines": (
        Verb(
            "instances",
            "instances",
            "instances",
            "List the instances, or show one.",
            (
                "gpu-recovery instances",
                "gpu-recovery instances --status QUARANTINED --sort since",
                f"gpu-recovery instances {INSTANCE} --json",
            ),
        ),
        Verb(
            "quarantine",
            "instances",
            "quarantine",
            "Take instances out of use until they are released.",
            (f'gpu-recovery quarantine {INSTANCE} --because "its fan is loud"',),
        ),
        Verb(
            "release",
            "instances",
            "release",
            "Return instances to use: each must pass a health check.",
            (f"gpu-recovery release {INSTANCE}",),
        ),
        Verb("fleet", "fleet", "app", "Show the fleet limits: repair budget, circuit breaker, pause."),
        Verb(
            "redrive",
            "fleet",
            "redrive",
            "Send dead letters to their functions again.",
            ("gpu-recovery redrive --dry-run", "gpu-recovery redrive --queue failed"),
        ),
        Verb(
            "doctor",
            "doctor",
            "doctor",
            "Check metadata service and Auto Scaling of the instances.",
            ("gpu-recovery doctor", "gpu-recovery doctor --json"),
        ),
        Verb(
            "console",
            "console",
            "console",
            "Open the web console, and print a session to paste there.",
            ("gpu-recovery console", "gpu-recovery console --role viewer --no-browser"),
        ),
    ),
    "People and limits": (
        Verb("token", "token", "app", "Issue, list and revoke the tokens of instances and of users."),
        Verb("quota", "queue", "app", "Show and set how many instances each user may use at once."),
    ),
    "On this machine": (
        Verb(
            "login",
            "login",
            "login",
            "Save a deployment and its token under a name.",
            (
                "gpu-recovery login prod --api-url https://abc123.execute-api.eu-central-1.amazonaws.com",
                "gpu-recovery login lab --api-url https://lab.example.com --auth iam",
                "gpu-recovery login --list",
            ),
        ),
        Verb("logout", "login", "logout", "Remove a saved deployment and its token.", ("gpu-recovery logout prod",)),
        Verb("sandbox", "sandbox", "app", "Run a whole deployment on this machine."),
        Verb(
            "simulate",
            "simulate",
            "simulate",
            "Run the product under a virtual clock.",
            ("gpu-recovery simulate goodput --help",),
            settings="PASSED_ON",
        ),
    ),
}
"""Sections of the help with their verbs, in the order of use."""
VERBS: dict[str, Verb] = {verb.name: verb for verbs in SECTIONS.values() for verb in verbs}
EXAMPLES = (
    "gpu-recovery submit job.yaml --wait",
    f"gpu-recovery explain {JOB}",
    "gpu-recovery VERB --help                   # what a verb does, with examples",
)
"""Examples of the help of `gpu-recovery` itself."""
