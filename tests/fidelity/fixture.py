# The little tree on which calls are made, and what became of it.
import os, stat, struct

DIRECTORIES = ["dir", "dir/sub", "empty", "full", "ro", "shut", "sticky", "setgid", "acl"]
FILES = ["file", "dir/f", "full/x", "ro/in", "shut/in", "sticky/mine", "closed", "readonly", "long"]
LINKS = {
    "tofile": "file", "todir": "dir", "tosub": "dir/sub/", "tolink": "tofile", "dangling": "nowhere", "loop1": "loop2", "loop2": "loop1",
    "up": "..", "ro/out": "../file",
}
MODES = {"ro": 0o555, "shut": 0, "sticky": 0o1777, "setgid": 0o2775, "closed": 0, "readonly": 0o444, "script": 0o755, "orphan": 0o755, "garbage": 0o755}
# These belong to the other user in the situations with one.
OTHERS = ["dir", "dir/f", "file", "sticky/mine", "acl", "script"]


def write(path, content):
    with open(path, "wb") as out:
        out.write(content)


def build(at, other=None):
    """Makes one tree at a place and leaves the process there."""
    os.mkdir(at)
    os.chdir(at)
    mask = os.umask(0o022)
    for name in DIRECTORIES:
        os.mkdir(name)
    for name in FILES:
        write(name, b"content of " + name.encode())
    write(b"\xff\xfe", b"odd")
    write("script", b"#!/bin/sh\nexit 7\n")
    write("orphan", b"#!/nonexistent\n")
    write("garbage", b"\0nothing")
    for name, target in LINKS.items():
        os.symlink(target, name)
    os.symlink(os.getcwd() + "/dir", "abs")
    if os.geteuid() == 0:
        # An overlay of an ordinary user parts the names of a file that it copies.
        os.link("file", "hard")
    os.mkfifo("fifo")
    os.mknod("socket", stat.S_IFSOCK | 0o755)
    entries = ((1, 7), (4, 5), (32, 4))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bits, 0xFFFFFFFF) for tag, bits in entries)
    try:
        os.setxattr("acl", "system.posix_acl_default", acl)
        os.setxattr("dir/f", "user.there", b"1")
    except OSError:
        pass
    for name in OTHERS if other else []:
        os.chown(name, other, other)
    for name, mode in MODES.items():
        os.chmod(name, mode)
    os.umask(mask)


class Fixture:
    """The trees that were there before the run, one after the other, and then new ones."""

    links = True

    def __init__(self, top, other=None):
        self.top, self.other, self.count, self.fds, self.attributes, self.changed = top, other, 0, {}, False, True

    def fresh(self, attributes=None):
        """Goes to the next tree if this one has changed. Extended attributes are only looked at where they may change."""
        self.attributes = self.attributes if attributes is None else attributes
        if not self.changed:
            self.seen = snapshot(self.attributes, self.links)
            return
        self.changed = False
        for fd in self.fds.values():
            os.close(fd)
        self.fds = {}
        os.fchdir(self.top)
        at = "%04d" % self.count
        self.count += 1
        try:
            os.chdir(at)
        except FileNotFoundError:
            try:
                build(at, self.other)
            except OSError:
                # This process may not make another: it goes on with the last one.
                self.count -= 2
                os.fchdir(self.top)
                os.chdir("%04d" % self.count)
                self.count += 1
        try:
            # These are the run's own, and always new.
            write("own", b"own")
            os.symlink("own", "ownlink")
        except OSError:
            pass
        kinds = {"directory": ("dir", os.O_RDONLY), "path": ("dir", os.O_PATH), "file": ("file", os.O_RDONLY),
                 "file path": ("file", os.O_PATH), "link path": ("tofile", os.O_PATH | os.O_NOFOLLOW), "here": (".", os.O_PATH), "own": ("own", os.O_RDONLY)}
        for kind, (name, flags) in kinds.items():
            try:
                self.fds[kind] = os.open(name, flags)
            except OSError:
                pass
        self.seen = snapshot(self.attributes, self.links)

    def changes(self):
        """What has changed since it was last asked."""
        before, self.seen = self.seen, snapshot(self.attributes, self.links)
        lines = []
        for name in sorted(set(before) | set(self.seen)):
            if before.get(name) != self.seen.get(name):
                lines.append("%s: %s -> %s" % (ascii(name), before.get(name, "-"), self.seen.get(name, "-")))
        self.changed = self.changed or bool(lines)
        return "; ".join(lines)


def snapshot(attributes, links=True):
    """All names below, and what there is to say of each. Not of directories: size, links, times."""
    found = {}
    pending = [b"."]
    while pending:
        path = pending.pop()
        found[path] = describe(path, attributes, links)
        if found[path].startswith("d"):
            try:
                pending.extend(os.path.join(path, name) for name in os.listdir(path))
            except OSError:
                pass
    return found


def describe(path, attributes, links):
    try:
        st = os.lstat(path)
    except OSError as error:
        return "errno %d" % error.errno
    text = "%s%04o %d:%d" % (stat.filemode(st.st_mode)[0], stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid)
    if links and not stat.S_ISDIR(st.st_mode):
        text += " links %d" % st.st_nlink
    if stat.S_ISREG(st.st_mode):
        text += " size %d" % st.st_size
    if stat.S_ISLNK(st.st_mode):
        text += " to " + os.readlink(path).decode("utf-8", "backslashreplace")
    if stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
        text += " device %x" % st.st_rdev
    if st.st_mtime_ns < 10**17:
        text += " time %d" % st.st_mtime_ns
    # Reading a link moves its access time, and a recorder of reads reads it.
    if st.st_atime_ns < 10**17 and not stat.S_ISLNK(st.st_mode):
        text += " read %d" % st.st_atime_ns
    if attributes and (stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode)):
        try:
            names = [name for name in os.listxattr(path, follow_symlinks=False) if not name.startswith(("system.posix_acl_default", "security.selinux"))]
            if names:
                text += " with " + " ".join("%s=%s" % (name, os.getxattr(path, name, follow_symlinks=False).hex()) for name in sorted(names))
        except OSError as error:
            text += " attributes errno %d" % error.errno
    return text
