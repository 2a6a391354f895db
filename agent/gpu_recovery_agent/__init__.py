"""The node agent: what runs on one GPU instance, what it suffers from, and how its ranks end. README.md says more.

    __main__.py       the order of things: settings, lock, sensors, loop, exit status
    settings.py       what the environment tells
    loop.py           look, tell, obey, wait
    proof.py          by what the API knows this instance: a token, or a signature
    telling.py        one report on its way: sequence, repeats, and what each answer means for it
    untold.py         what the server does not know yet: exits, XIDs, health, inventory
    report.py         facts -> the body of a report                                  pure
    answers.py        status and body -> what the answer is                          pure
    pacing.py         when the next report is due                                    pure
    channel.py        one POST, within its time
    orders.py         suspend and stop, for a process that is certainly the one meant
    state.py          the folder that outlives the agent: lock, sequence, cursor
    files.py          a file that is there whole or not at all
    notify.py         words to systemd: ready, and still turning
    journal.py        lines for the system's journal, each said once
    clock.py          the two clocks that nobody sets
    record.py         gpu-recovery-record: what NVML answers once, and what each question costs

    metadata.py       the files of a rank: who runs, how it ended
    wrapper.py        gpu-recovery-run: the first process of a rank
    command.py        its command: started, waited for, ended with all that it began
    suspension.py     when the command is ended: notice, go_suspend, watchdog
    notice.py         the folder in which it is told, and tells
    limits.py         how long it may stay; what is typed

    sensors/boot.py         which boot
    sensors/processes.py    /proc: start ticks, groups, environments
    sensors/running.py      the files of the ranks, against the processes
    sensors/ecs.py          ranks without a file
    sensors/kernel_log.py   XIDs, from the boot on
    sensors/diagnosis.py    what trainings tell for a diagnosis, through a socket
    sensors/diagnosis_line.py  one line of it                                          pure
    sensors/process_reader.py  of /proc what may block, through a child and within a deadline
    sensors/process_child.py   that child
    sensors/asked_child.py  a child that is asked by lines, and never waited for
    sensors/answering.py    what every such child does
    sensors/nvml.py         keeps the child that asks NVML, and its deadline
    sensors/nvml_child.py   the child: one reading per line
    sensors/nvml_reading.py one GPU, field by field
    sensors/health.py       a reading -> healthy or not, and why                     pure

The parsers of the kernel's log are those of the health check, which the wheel carries.
"""

VERSION = "0.2.0"
