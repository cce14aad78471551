"""effigy beside the bare command, bwrap, an overlay alone, and strace: `make bench`, or python3 benches/compare.

Runs are interleaved, with a sync before each, so that what the machine does meanwhile meets all of them alike.
"""

import argparse
import os
import subprocess
import sys

import commits
import journal
import measure
import scratch
import tables
import works

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(HERE, "..", "..", "target")
    parser = argparse.ArgumentParser(prog="compare", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see that it works, not for figures")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds that count [default: 7; 2 with --quick]")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORK",
        help="only works whose name contains WORK; also `calls`, `commit` and `journal` (repeatable)",
    )
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME", choices=[*works.VARIANTS, "overlay + strace %file"],
        help="only this way of running (repeatable)",
    )
    parser.add_argument(
        "--cpu", action="store_true",
        help="CPU time of the process tree (by perf stat), not elapsed time: steady on a busy machine, but without waiting",
    )
    parser.add_argument("--out", metavar="FILE", help="write the tables there, not to standard output")
    parser.add_argument(
        "--fs", choices=["ext4", "tmpfs", "none"], default="ext4",
        help="as root, what to measure on; none: the filesystem of --dir [default: ext4]",
    )
    parser.add_argument("--dir", default="/tmp", help="where to measure as an ordinary user [default: /tmp]")
    parser.add_argument(
        "--user", type=int, metavar="UID", default=int(os.environ.get("SUDO_UID") or scratch.ORDINARY),
        help="as root, whose runs to measure; 0 for root's own [default: the one who called sudo, else %(default)s]",
    )
    parser.add_argument("--effigy", default=os.path.join(target, "release", "effigy"), help="the program to measure")
    parser.add_argument("--work", default=os.path.join(target, "bench-work"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = arguments()
    if not os.access(args.effigy, os.X_OK):
        raise SystemExit(f"there is no {args.effigy}: run make build first")
    os.makedirs(os.path.dirname(args.work), exist_ok=True)
    subprocess.run(["rustc", "--edition", "2024", "-O", "-o", args.work, os.path.join(HERE, "work.rs")], check=True)
    rounds = args.rounds or (2 if args.quick else 7)
    wanted = lambda name: not args.only or any(part in name for part in args.only)
    # Opened by whoever called: later on this is another user.
    out = open(args.out, "r+" if os.path.exists(args.out) else "w+", encoding="utf-8") if args.out else None
    load = os.getloadavg()[0]
    figures = journal.measure(args.quick) if wanted("journal") else {}
    place = scratch.make(args.fs, args.dir)
    try:
        scratch.become(place, args.user)
        bench = works.Bench(place, args.effigy, args.work, args.cpu)
        variants = [name for name in works.VARIANTS if not args.variant or name in args.variant]
        work = measure_works(bench, wanted, variants, rounds)
        call = measure_calls(bench, args, rounds) if wanted("calls") else {}
        commit = measure_commits(bench, rounds) if wanted("commit") else {}
    finally:
        os.chdir("/")
        # What is mounted goes with the mount namespace.
        if not os.path.ismount(place.root):
            scratch.remove(place.root)

    text = tables.machine(place.kind, os.geteuid(), rounds, args.quick, args.cpu, load)
    # What is told by elapsed time is not judged on a busy machine.
    elapsed = not tables.busy(load)
    judged = (work, call if elapsed else {}, commit, figures if elapsed else {})
    parts = [tables.goals(*judged) if elapsed or args.cpu else ""]
    parts.append(tables.works(work, variants, bench.journals) if work else "")
    parts.append(tables.calls(call))
    parts.append(tables.commits(commit) if commit else "")
    parts.append(tables.journal(figures) if figures else "")
    text = "\n".join([text, *filter(None, parts)])
    if out:
        tables.write(out, text)
    else:
        print(text)


def measure_works(bench, wanted, variants, rounds):
    results = {}
    for work in works.works(bench):
        if wanted(work.name):
            work.prepare(bench)
            samplers = {name: works.sampler(bench, work, name) for name in variants}
            # A start takes milliseconds, so there can be more of them.
            results[work.name] = measure.in_turns(samplers, rounds * 3 if work.name == "true" else rounds, work.name)
    return results


def measure_calls(bench, args, rounds):
    number = 2000 if args.quick else 20000
    names = [name for name in works.CALL_VARIANTS if not args.variant or name in args.variant]
    return measure.in_turns({name: works.calls_sampler(bench, name, number) for name in names}, rounds, "calls")


def measure_commits(bench, rounds):
    results = {}
    for row in commits.rows(bench):
        samplers = {name: commits.sampler(bench, way) for name, way in row.ways.items()}
        results[row.name] = measure.in_turns(samplers, rounds, row.name)
    return results


if __name__ == "__main__":
    try:
        main()
    except measure.Failed as failure:
        sys.exit(f"compare: {failure}")
