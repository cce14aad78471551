"""The micro-benchmarks of the journal (journal/benches, by criterion)."""

import json
import os
import subprocess

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def measure(quick):
    """{name: million events a second}."""
    argv = ["cargo", "bench", "--quiet", "--locked", "-p", "effigy-journal", "--bench", "journal", "--"]
    subprocess.run([*argv, "--noplot", *(["--quick"] if quick else [])], cwd=ROOT, check=True, stdout=2)
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")
    figures = {}
    for directory, _, files in os.walk(os.path.join(target, "criterion", "journal")):
        if os.path.basename(directory) == "new" and "estimates.json" in files:
            estimates, benchmark = (load(directory, name) for name in ("estimates.json", "benchmark.json"))
            # Nanoseconds for all the elements of one iteration.
            nanoseconds = (estimates.get("slope") or estimates["mean"])["point_estimate"]
            figures[benchmark["function_id"]] = benchmark["throughput"]["Elements"] / nanoseconds * 1000
    return figures


def load(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)
