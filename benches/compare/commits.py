"""What it costs to make a session real, beside what else brings the same files there."""

import os
import subprocess

from scratch import remove


class Row:
    """One piece of work, in several ways. Each way prepares (not measured) and gives the measured command.

    `ways` is {column: function of the bench returning (argv, cwd, env)}.
    """

    def __init__(self, name, ways):
        self.name, self.ways = name, ways


def rows(bench):
    """The rows; what cannot be measured here (a missing second filesystem, a command not built in) is not among them."""
    data, work = bench.data, bench.work
    bench.do(work, "tree", "new", "100", "7500", "21", cwd=data)
    bench.do(work, "tree", "before", "749", "5348", "22", cwd=data)
    bench.do(work, "tree", "after", "749", "5348", "23", cwd=data)
    new, before, after = (os.path.join(data, name) for name in ("new", "before", "after"))
    others = bench.scratch.path("others")

    def empty():
        return bench.scratch.fresh("run")

    def existing():
        cwd = empty()
        bench.do("cp", "-a", before, "tree", cwd=cwd)
        return cwd

    def copy_aside(tree):
        remove(others)
        bench.do("cp", "-a", tree, others)

    def session(cwd, *command, env=None):
        bench.do(bench.effigy, "run", "-q", "-n", "--", *command, cwd=cwd, env=env)

    def commit(*options, env=None):
        return [bench.effigy, "commit", "-y", "-q", *options], env

    make_new = (work, "tree", "tree", "100", "7500", "21")
    write_over = ("cp", "-rT", after, "tree")

    def new_by(argv, aside=False):
        def way():
            if aside:
                copy_aside(new)
            return argv, empty(), None

        return way

    def over_by(argv, aside=False):
        def way():
            if aside:
                copy_aside(after)
            return argv, existing(), None

        return way

    def committed(target, command, *options, env=None):
        def way():
            cwd = target()
            session(cwd, *command, env=env)
            argv, environment = commit(*options, env=env)
            return argv, cwd, environment

        return way

    def undone(target, command):
        def way():
            cwd = target()
            session(cwd, *command)
            bench.do(*commit()[0], cwd=cwd)
            return [bench.effigy, "undo", "-y", "-q"], cwd, None

        return way

    found = [
        Row(
            "7 500 files in 101 directories, all new",
            {
                "mv": new_by(["mv", others, "tree"], aside=True),
                "cp -a": new_by(["cp", "-a", new, "tree"]),
                "commit": committed(empty, make_new),
                "commit --keep": committed(empty, make_new, "--keep"),
                "undo": undone(empty, make_new),
            },
        ),
        Row(
            "5 348 files over existing ones",
            {
                "renames": over_by([work, "place", others, "tree"], aside=True),
                "cp -a": over_by(["cp", "-aT", after, "tree"]),
                "commit": committed(existing, write_over),
                "commit --keep": committed(existing, write_over, "--keep"),
                "undo": undone(existing, write_over),
            },
        ),
    ]
    if bench.scratch.other:
        found.append(other_filesystem(bench, empty, new, make_new, committed))
    if subprocess.run([bench.effigy, "replay", "--help"], capture_output=True, check=False).returncode == 0:
        found.append(replay(bench, empty, session))
    return found


def other_filesystem(bench, empty, new, make_new, committed):
    store = os.path.join(bench.scratch.other, "store")
    tree = os.path.join(bench.scratch.other, "tree")
    bench.do("cp", "-a", new, tree)
    env = bench.env | {"EFFIGY_STORE": store}
    return Row(
        "the 7 500 new files from another filesystem",
        {
            "cp -a": lambda: (["cp", "-a", tree, "tree"], empty(), None),
            "commit": committed(empty, make_new, env=env),
        },
    )


def replay(bench, empty, session):
    command = (bench.work, "create", "10000")

    def copied():
        created = bench.scratch.fresh("others")
        bench.do(*command, cwd=created)
        return ["cp", "-a", created, "tree"], empty(), None

    def replayed():
        cwd = empty()
        session(cwd, *command)
        return [bench.effigy, "replay", "-y", "-q"], cwd, None

    return Row("10 000 created files, replayed", {"cp -a": copied, "replay": replayed})


def sampler(bench, way):
    def sample():
        try:
            argv, cwd, env = way()
            return bench.timed(*argv, cwd=cwd, env=env)
        finally:
            os.chdir("/")
            bench.do(bench.effigy, "discard", "--all", "-y")
            if bench.scratch.other:
                env = bench.env | {"EFFIGY_STORE": os.path.join(bench.scratch.other, "store")}
                bench.do(bench.effigy, "discard", "--all", "-y", env=env)
            for name in ("run", "others"):
                remove(bench.scratch.path(name))

    return sample
