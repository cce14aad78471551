"""What is run, and in what."""

import glob
import json
import os
import shutil
import subprocess

from measure import Failed, run
from scratch import remove

# Calls that change the filesystem, for strace; `?` takes names that an architecture or an older strace does not have.
MUTATING = ",".join(
    "?" + name
    for name in (
        "open openat openat2 creat mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink "
        "symlinkat mknod mknodat truncate chmod fchmodat chown lchown fchownat utime utimes utimensat setxattr "
        "lsetxattr removexattr lremovexattr"
    ).split()
)

OVERLAY = """mount -t overlay -o "$O,lowerdir=$PWD,upperdir=$L/upper,workdir=$L/work" overlay "$PWD"; cd "$PWD"; exec "$@" """


class Bench:
    """The programs and data of a comparison, in one scratch filesystem."""

    def __init__(self, scratch, effigy, work, cpu):
        self.scratch, self.cpu = scratch, cpu
        self.data = scratch.fresh("data")
        for name in ("bin", "home", "store"):
            scratch.fresh(name)
        self.effigy = shutil.copy(effigy, scratch.path("bin", "effigy"))
        self.work = shutil.copy(work, scratch.path("bin", "work"))
        self.output = scratch.path("output")
        self.env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": scratch.path("home"),
            "LC_ALL": "C",
            "EFFIGY_STORE": scratch.path("store"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "bench",
            "GIT_AUTHOR_EMAIL": "bench@localhost",
            "GIT_COMMITTER_NAME": "bench",
            "GIT_COMMITTER_EMAIL": "bench@localhost",
        }
        # Of each work, how many events its journal has, and how many bytes.
        self.journals = {}
        # The directories that effigy covers for a run in the scratch filesystem.
        self.covers = []

    def do(self, *argv, cwd=None, env=None):
        """Something that is not measured."""
        done = subprocess.run(argv, cwd=cwd, env=env or self.env, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise Failed(f"{' '.join(argv)}: exit status {done.returncode}\n{done.stderr}")
        return done.stdout

    def timed(self, *argv, cwd, env=None):
        os.chdir(cwd)
        return run(list(argv), env or self.env, self.output, self.cpu)

    def clear(self, variant):
        """Leaves nothing of a run behind."""
        os.chdir("/")
        if variant.startswith("effigy"):
            self.do(self.effigy, "discard", "--all", "-y")
        remove(self.scratch.path("run"))

    def covered(self, cwd):
        """The mount points of the overlays that effigy mounts, outer ones first."""
        if not self.covers:
            store = self.scratch.fresh("covers")
            self.do(self.effigy, "run", "-q", "-n", "--store", store, "--", "true", cwd=cwd)
            (record,) = glob.glob(os.path.join(store, "sessions", "*", "session.json"))
            with open(record, encoding="utf-8") as file:
                self.covers = sorted(cover["mount_point"] for cover in json.load(file)["covers"])
        return self.covers

    def journal_of(self, work):
        """Notes the figures of the journal of the session that has just been recorded."""
        if work in self.journals:
            return
        (journal,) = glob.glob(os.path.join(self.env["EFFIGY_STORE"], "sessions", "*", "journal"))
        size = os.stat(journal).st_size
        events = self.do(self.effigy, "log", "--failed", "--json").count("\n")
        self.journals[work] = (events, size)


class Work:
    """A command, and what must be there before each run of it. `prepare` makes data once."""

    def __init__(self, name, command, prepare=None, before=None):
        self.name, self.command = name, command
        self.prepare = prepare or (lambda bench: None)
        self.before = before or (lambda bench, cwd: None)


def tarball(bench):
    bench.do(bench.work, "tree", "source", "749", "5348", "3", cwd=bench.data)
    bench.do("tar", "-cf", "source.tar", "source", cwd=bench.data)
    remove(os.path.join(bench.data, "source"))


def repository(bench):
    bench.do(bench.work, "tree", "repository", "400", "3786", "5", cwd=bench.data)
    repository = os.path.join(bench.data, "repository")
    for line in ("init -q", "add .", "commit -q -m all", "gc -q"):
        bench.do("git", *line.split(), cwd=repository)


def lines(bench):
    with open(os.path.join(bench.data, "lines"), "wb") as file:
        subprocess.run([bench.work, "lines", "3000000"], stdout=file, check=True)


def works(bench):
    data, work = bench.data, bench.work
    # --no-hardlinks: hard links into an overlay fail the check that git makes of them, without effigy.
    clone = f"git clone -q --no-hardlinks '{data}/repository' clone; git -C clone status --short"
    loop = "i=0; while [ $i -lt 2000 ]; do /bin/true >>file; i=$((i+1)); done"
    find = ["find", ".", "-name", "*.txt", "-exec", "gzip", "{}", ";"]
    return [
        Work("true", ["true"]),
        Work("create 10 000, rename 5 000, unlink 2 500", [work, "churn", "10000"]),
        Work("untar 5 348 files", ["tar", "-xf", f"{data}/source.tar"], tarball),
        Work("git clone of 3 786 files, and status", ["sh", "-ec", clone], repository),
        Work("sort 3 million lines", ["sort", "-S", "64M", "-T", ".", "-o", "sorted", f"{data}/lines"], lines),
        Work(
            "gzip of 2 000 files with find -exec",
            find,
            before=lambda bench, cwd: bench.do(work, "texts", "2000", cwd=cwd),
        ),
        Work("shell loop of 2 000 forks, each `>>file`", ["sh", "-ec", loop]),
    ]


def bare(bench, command, cwd):
    return bench.timed(*command, cwd=cwd)


BWRAP = "bwrap --unshare-user --unshare-pid --bind / / --dev /dev --proc /proc --die-with-parent --chdir".split()


def bwrap(bench, command, cwd):
    return bench.timed(*BWRAP, cwd, *command, cwd=cwd)


def bwrap_overlays(bench, command, cwd):
    """bwrap with an overlay wherever effigy has one (bwrap 0.11)."""
    layers = bench.scratch.fresh("layers")
    mounts = []
    for number, path in enumerate(bench.covered(cwd)):
        upper, work = (os.path.join(layers, f"{kind}{number}") for kind in ("upper", "work"))
        os.mkdir(upper)
        os.mkdir(work)
        mounts += ["--overlay-src", path, "--overlay", upper, work, path]
    try:
        return bench.timed(*BWRAP, cwd, *mounts, *command, cwd=cwd)
    finally:
        os.chdir("/")
        remove(layers)


def overlay(bench, command, cwd):
    """What `unshare` and a hand-made overlay of the working directory cost."""
    layers = bench.scratch.fresh("layers")
    for name in ("upper", "work"):
        os.mkdir(os.path.join(layers, name))
    env = bench.env | {"L": layers, "O": "userxattr"}
    # Only real root may do without a user namespace; with one the comparison is the same for everybody.
    line = "unshare --user --map-current-user --keep-caps --mount sh -ec"
    try:
        return bench.timed(*line.split(), OVERLAY, "sh", *command, cwd=cwd, env=env)
    finally:
        os.chdir("/")
        remove(layers)


def strace(trace):
    def sample(bench, command, cwd):
        log = bench.scratch.path("strace.log")
        line = ["strace", "-f", "-y", "--seccomp-bpf", f"--trace={trace}", "-o", log]
        return overlay(bench, [*line, *command], cwd)

    return sample


def effigy(*options):
    def sample(bench, command, cwd):
        return bench.timed(bench.effigy, "run", "-q", "-n", *options, "--", *command, cwd=cwd)

    return sample


VARIANTS = {
    "bare": bare,
    "bwrap": bwrap,
    "bwrap + overlays": bwrap_overlays,
    "overlay": overlay,
    "overlay + strace": strace(MUTATING),
    "effigy --no-trace": effigy("--no-trace"),
    "effigy": effigy(),
    "effigy --reads": effigy("--reads"),
}

# What one call costs is compared with strace of the same class of calls, %file, which has the reads as well.
CALL_VARIANTS = {name: sample for name, sample in VARIANTS.items() if not name.startswith("bwrap") and name != "overlay + strace"}
CALL_VARIANTS["overlay + strace %file"] = strace("%file")


def sampler(bench, work, variant):
    """One run of `work` in a new directory."""

    def sample():
        cwd = bench.scratch.fresh("run")
        work.before(bench, cwd)
        try:
            seconds = VARIANTS[variant](bench, work.command, cwd)
            if variant == "effigy":
                bench.journal_of(work.name)
            return seconds
        finally:
            bench.clear(variant)

    return sample


def calls_sampler(bench, variant, number):
    """Microseconds a call, by call."""

    def sample():
        cwd = bench.scratch.fresh("run")
        try:
            CALL_VARIANTS[variant](bench, [bench.work, "calls", str(number)], cwd)
            with open(bench.output, encoding="utf-8") as file:
                return json.loads(file.read())
        finally:
            bench.clear(variant)

    return sample
