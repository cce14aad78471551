"""Runs one thing and takes the time; runs many in turns; medians."""

import os
import statistics
import sys
import time


def run(argv, env, output, cpu=False):
    """Seconds the program takes, started directly and after a sync; it must succeed.

    Its standard output and error go to the file `output`. With `cpu` it is the CPU time of its whole process tree: what
    wait4(2) tells lacks those whose parent did not wait for them.
    """
    if cpu:
        argv = ["perf", "stat", "-x,", "-e", "task-clock", "-o", f"{output}.cpu", "--", *argv]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    os.sync()
    start = time.perf_counter()
    pid = os.posix_spawnp(argv[0], argv, env, file_actions=actions)
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        with open(output, encoding="utf-8", errors="replace") as file:
            words = file.read()[-2000:]
        raise Failed(f"{' '.join(argv)}: exit status {os.waitstatus_to_exitcode(status)}\n{words}")
    return cpu_seconds(f"{output}.cpu") if cpu else seconds


def cpu_seconds(path):
    with open(path, encoding="utf-8") as file:
        (line,) = (line for line in file if "task-clock" in line)
    return float(line.split(",")[0]) / 1000


class Failed(Exception):
    """A measured program failed, so there is no figure."""


def in_turns(samplers, rounds, label):
    """Calls each sampler once a round, beginning with another one in each round; {name: [sample...]}.

    A round that is not counted goes first when there are more than two. A sampler that fails is left out and named.
    """
    samples = {name: [] for name in samplers}
    warm_up = 1 if rounds > 2 else 0
    for number in range(rounds + warm_up):
        names = list(samples)
        start = number % max(len(names), 1)
        for name in names[start:] + names[:start]:
            progress(f"{label}: round {number + 1} of {rounds + warm_up}: {name}")
            try:
                sample = samplers[name]()
            except Failed as failure:
                progress("")
                print(f"{label}: {name} left out: {failure}", file=sys.stderr)
                del samples[name]
                continue
            if number >= warm_up:
                samples[name].append(sample)
    progress("")
    return samples


def progress(words):
    """One line that is overwritten, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)


def median(samples):
    return statistics.median(samples) if samples else None


def spread(samples):
    """Half the distance between the quartiles, as a part of the median."""
    if len(samples) < 3:
        return None
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / 2 / statistics.median(samples)
