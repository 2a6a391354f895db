"""What runs in the image of a training job: the wrapper of a rank, and the library for training programs.

    from gpu_recovery_run import diagnosis, training

It needs Python 3.9 and nothing else. `memory_checkpoint` is here. All other modules are links: `training` and
`diagnosis` to the same modules of `gpu_recovery_client`, and `rank` with what it needs to `gpu_recovery_agent`. The
wheel has files in their place, so it shares no package with the wheels of the agent and of the client. Linked modules
import each other relatively.
"""

VERSION = "0.2.0"
