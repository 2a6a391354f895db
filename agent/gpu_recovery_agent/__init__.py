"""The node agent of one GPU instance.

It reports the ranks of the instance, their exits and the health of the GPUs. See README.md.

- __main__.py         entry point: settings, lock, sensors, loop, exit status
- settings.py         settings from the environment
- loop.py             the main loop: poll the sensors, send reports, run the server's commands
- credentials.py      how the agent authenticates: a token, or a SigV4 signature
- reporter.py         sends one report: its sequence number, its retries, the responses that end the agent
- outbox.py           what the server has not acknowledged yet: exits, XIDs, health, inventory
- report.py           report content -> JSON body                                              pure
- responses.py        HTTP status and body -> response                                         pure
- report_schedule.py  when the next report is due                                              pure
- http_client.py      one POST within a deadline
- commands.py         suspend and stop commands, for processes with a verified identity
- state.py            state that outlives the agent process: lock, sequence number, cursor
- files.py            files that are written whole or not at all
- systemd.py          sd_notify messages: ready, watchdog, stopping
- log.py              log lines for the journal of the system; repeated lines are written once
- clock.py            the clocks that cannot be set
- nvml_recorder.py    gpu-recovery-record: one NVML reading, and the cost of each NVML call

- rank/files.py              the files of a rank: which process runs, and how it ended
- rank/wrapper.py            gpu-recovery-run: the first process of a rank
- rank/process.py            the user's process: started, waited for, ended with all its children
- rank/suspension.py         when the user's process is ended: notice, go_suspend, watchdog
- rank/suspension_folder.py  the folder through which wrapper and training program exchange marks
- rank/settings.py           the time limits of a suspension, and the command line
- rank/output_tail.py        the last lines that the user's process wrote

- sensors/boot.py             the id of the current boot
- sensors/processes.py        /proc: start ticks, groups, environments
- sensors/ranks.py            the files of the ranks, compared with the processes
- sensors/ecs.py              ranks without a file
- sensors/kernel_log.py       XIDs since the boot
- sensors/training_socket.py  observations of training processes for a diagnosis, through a socket
- sensors/training_message.py one line of such a datagram                                      pure
- sensors/process_reader.py   the reads of /proc that may block, by a child process with a deadline
- sensors/nvml.py             the child process that reads NVML, and its deadline
- sensors/nvml_reading.py     one GPU, field by field
- sensors/gpu_health.py       a reading -> health status and sentence                          pure
- sensors/child/client.py     a child process that answers line by line; the agent never waits for it
- sensors/child/serve.py      the main loop of every such child process
- sensors/child/nvml.py       the child process of sensors/nvml.py: one reading per line
- sensors/child/processes.py  the child process of sensors/process_reader.py

The parsers of the kernel log belong to the health check; the wheel of the agent contains them.
"""

VERSION = "0.2.0"
