"""Examples of job specifications for `gpu-recovery submit --example`."""

from __future__ import annotations

ECS = """\
# A job on ECS. Submit it with: gpu-recovery submit job.yaml
# Text after # is a comment; remove it in front of a field to set the field.

# What kind of work. The id of the job begins with this name.
workload: sft

# Name of the job. Commands take it in place of the id.
# name: night-run

# How many instances, and how many GPUs on each. A program that continues on another number of instances
# may have a range: nnodes: {min: 2, max: 4}
nnodes: 2
n_gpus_per_node: 8

# ECS family, or family:revision. Its network mode must be host.
task_definition: gpu-training

# Command of each rank; without it, that of the task definition.
command: [python, train.py]

# Variables of each rank. Values are texts: quote numbers.
env:
  LEARNING_RATE: "0.0001"

# Folder of the checkpoints, as the ranks see it.
# checkpoint_dir: /fsx/sft-17

# EXTREME_HIGH, VERY_HIGH, HIGH, ABOVE_NORMAL, NORMAL or LOW.
# priority: NORMAL

# Group of instances, if the deployment has groups.
# group: a100

# Largest number of counted attempts: 1 to 20.
# attempts_max: 3

# Seconds that an attempt may run. With a limit, the job may start before larger jobs.
# max_runtime_s: 14400

# Recovery contract: minutes at most that the job may be down after a failure, and minutes that it may lose with the
# work that is done again. Seconds between two checkpoints of your program. Whether your program reports progress.
# max_down_minutes: 15
# max_lost_minutes: 30
# checkpoint_every_s: 600
# reports_progress: true

# Seconds that rank 0 has to save its state when the job is suspended.
# suspend_grace_s: 60
"""
RAY = """\
# A job on Ray. Submit it with: gpu-recovery submit job.yaml
# Text after # is a comment; remove it in front of a field to set the field.

backend: ray

# What kind of work. The id of the job begins with this name.
workload: ppo

# Name of the job. Commands take it in place of the id.
# name: night-run

# How many instances, and how many GPUs on each.
nnodes: 1
n_gpus_per_node: 8

# Shell command of the driver.
entrypoint: python train.py

# Variables of the driver. Values are texts: quote numbers.
env:
  LEARNING_RATE: "0.0001"

# EXTREME_HIGH, VERY_HIGH, HIGH, ABOVE_NORMAL, NORMAL or LOW.
# priority: NORMAL
"""
EXAMPLES = {"ecs": ECS, "ray": RAY}
"""Examples by backend."""
