# Makes every traced call with every kind of name in one situation, and says what each answered and what it did to the tree. Run bare
# and recorded, it must say the same.
#     matrix.py build COUNT [OTHER]      makes COUNT trees in ./fix (some of it belongs to the uid OTHER)
#     matrix.py SITUATION [OTHER]        makes the calls
import ctypes, errno, os, resource, signal, socket, stat, struct, sys, threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from calls import AT, BAD, Buffer, Caller, Nested, libc, said
from fixture import Fixture, build, snapshot

S_IFREG, S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK = stat.S_IFREG, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK
NOFOLLOW, REMOVEDIR, FOLLOW, EMPTY = 0x100, 0x200, 0x400, 0x1000
LONG = b"n" * 256
NAMES = [
    # New ones
    b"new", b"./new", b"dir/new", b"dir/../new", b"dir/sub/../../new", b"todir/new", b"todir/../new", b"tosub/new", b"abs/new", b"up/new",
    b"$ABS/new", b"$ABS/./dir/../new", b"/proc/self/cwd/new", b"/proc/thread-self/cwd/new", b"/proc/$PID/cwd/new", b"/proc/self/root$ABS/new",
    b"/proc/self/fd/$DIR/new", b"/dev/fd/$DIR/new", b"new/", b"new//", b"new/.", b"dir//new", b"setgid/new", b"acl/new", b"sticky/new",
    b"ro/new", b"shut/new", b"\xfe\xff new", b"dir/" + b"m" * 255, b"dangling", b"dangling/",
    # There already
    b"file", b"dir", b"empty", b"full", b"hard", b"tofile", b"todir", b"tolink", b"fifo", b"socket", b"script", b"orphan", b"garbage",
    b"closed", b"readonly", b"ro/in", b"ro/out", b"shut/in", b"sticky/mine", b"todir/f", b"\xff\xfe", b"$ABS/file", b"/proc/self/fd/$DIR/f",
    b"/proc/self/fd/$FILE", b"/proc/self/fd/$DIR", b"/dev/fd/$FILE", b"dir/sub", b"dir/sub/",
    b"dir/", b"empty/", b"file/", b"todir/", b"tofile/", b"empty/.", b"empty/..", b"file/.", b"file/..", b".", b"..", b"./", b"up", b"/",
    # Neither
    b"", b"nope/new", b"nope/", b"file/new", b"loop1", b"loop1/new", b"dangling/new", LONG, b"dir/" + LONG, b"dir/../" * 600 + b"new",
    b"./" * 2046 + b"new", b"./" * 2045 + b"newer", b"/proc/self/nope", b"/nope/new", b"/proc/self/fd/999", None, BAD,
]
FEW = [
    b"new", b"dir/new", b"todir/new", b"$ABS/new", b"/proc/self/cwd/new", b"new/", b"setgid/new", b"acl/new", b"sticky/new", b"ro/new", b"shut/new",
    b"dangling", b"file", b"dir", b"empty", b"tofile", b"todir", b"fifo", b"closed", b"readonly", b"script", b"ro/in", b"shut/in", b"sticky/mine",
    b"todir/f", b"dir/", b"empty/.", b".", b"", b"nope/new", b"loop1", LONG, None, BAD,
]
# Names of what the machine needs: calls that could change it are not made on these.
DELICATE = [b"/"]
HARMLESS = ["mkdir", "rmdir", "mknod", "symlink", "link", "execve"]
PAIRS = [
    (b"file", b"new"), (b"file", b"dir/new"), (b"file", b"$ABS/new"), (b"$ABS/dir/f", b"new"), (b"todir/f", b"new"), (b"file", b"hard"), (b"file", b"script"),
    (b"file", b"file"), (b"file", b"dir"), (b"file", b"empty"), (b"file", b"tofile"), (b"file", b"dangling"), (b"file", b"fifo"), (b"file", b"new/"),
    (b"file/", b"new"), (b"file", b"nope/new"), (b"file", b"script/new"), (b"file", b"ro/new"), (b"ro/in", b"new"), (b"file", b"shut/new"), (b"shut/in", b"new"),
    (b"sticky/mine", b"new"), (b"file", b"sticky/mine"), (b"file", b"setgid/new"), (b"dir/f", b"acl/new"), (b"tofile", b"new"), (b"tolink", b"new"),
    (b"dangling", b"new"), (b"loop1", b"new"), (b"todir", b"new"), (b"todir/", b"new"), (b"fifo", b"new"), (b"socket", b"new"), (b"\xff\xfe", b"\xfe"),
    (b"dir", b"new"), (b"dir", b"new/"), (b"dir/", b"new"), (b"dir", b"dir/sub/new"), (b"dir", b"dir/sub"), (b"dir", b"empty"), (b"dir", b"full"), (b"dir", b"file"),
    (b"dir", b"dir"), (b"dir", b"dir/."), (b"dir/sub", b"new"), (b"dir/sub", b"dir"), (b"dir/sub", b"empty"), (b"empty", b"dir/sub"), (b"empty", b"full/new"),
    (b"dir", b"todir"), (b"empty", b"tofile"), (b"ro", b"new"), (b"shut", b"new"), (b"setgid", b"acl/new"), (b"acl", b"new"), (b"sticky", b"full/new"),
    (b".", b"new"), (b"..", b"new"), (b"file", b"."), (b"file", b".."), (b"dir/..", b"new"), (b"/", b"new"), (b"file", b"/"), (b"", b"new"), (b"file", b""),
    (b"nope", b"new"), (b"nope/f", b"new"), (b"loop1/f", b"new"), (b"file", b"loop1/new"), (b"file", LONG), (LONG, b"new"), (b"dir/../" * 600 + b"file", b"new"),
    (None, b"new"), (BAD, b"new"), (b"file", None), (b"file", BAD), (b"/proc/self/fd/$FILE", b"new"), (b"/proc/self/cwd/file", b"/proc/self/fd/$DIR/new"),
    (b"/proc/self/stat", b"new"), (b"file", b"/proc/new"), (b"file", b"/dev/shm/../new"),
]
FEW_PAIRS = [pair for pair in PAIRS if pair[0] in (b"file", b"dir", b"ro/in", b"shut/in", b"sticky/mine", b"nope", b"tofile", b"") and (pair[1] in (None, BAD) or len(pair[1]) < 20)]
# The calls that are given every name, in the situations that are looked at most closely; the others get a few.
THOROUGH = [
    "mkdir", "mknod fifo", "symlink", "link", "creat", "open excl", "bind", "rmdir", "unlink", "chmod", "lchown", "utimensat", "utimensat nofollow",
    "truncate", "setxattr", "lsetxattr", "removexattr", "open write", "open write create", "openat2 beneath 4002", "execve", "stat", "chdir",
]
FD_NAMES = [b"new", b"sub", b"f", b"", b".", b"../file", b"../new", b"/nope/x", None, BAD]


class Matrix:
    def __init__(self, abi, fixture, all_of_it):
        self.call, self.fixture, self.wide = Caller(abi), fixture, abi == "x86-64"
        self.all_of_it = all_of_it
        self.pairs = PAIRS if all_of_it else FEW_PAIRS
        self.root = os.geteuid() == 0

    def name(self, name):
        """A name as of now."""
        if not isinstance(name, bytes) or b"$" not in name:
            return name
        fds = self.fixture.fds
        try:
            here = os.getcwdb()
        except FileNotFoundError:
            here = b"/gone"
        for word, value in ((b"$ABS", here), (b"$PID", b"%d" % os.getpid()), (b"$DIR", b"%d" % fds.get("directory", 998)), (b"$FILE", b"%d" % fds.get("file", 998)), (b"$OWN", b"%d" % fds.get("own", 998))):
            name = name.replace(word, value)
        return name

    def say(self, label, names, result):
        shown = ", ".join(ascii(name) if not isinstance(name, bytes) or len(name) < 60 else "%s... of %d" % (ascii(name[:12]), len(name)) for name in names)
        changes = self.fixture.changes() if result >= 0 else ""
        print("%s(%s) = %s%s" % (label, shown, said(result), " | " + changes if changes else ""))
        return changes

    def one(self, label, make, undo=False, renew=False, names=None):
        """One call with each of the names. What it made is removed again; where it removed something the next tree is taken."""
        self.fixture.fresh("xattr" in label)
        for name in names or (NAMES if self.all_of_it and label in THOROUGH else FEW):
            if label.startswith("openat2 no other mounts") and not self.root and name == b"$ABS/new":
                # The view of an ordinary user is made of many mounts.
                continue
            if self.restricted and not self.root and label.endswith("away"):
                # The task makes the call itself, and its namespace has no number for that user: EINVAL, docs/LIMITS.md.
                continue
            if name in DELICATE and not label.startswith(tuple(HARMLESS)):
                continue
            found, self.before = self.name(name), self.fixture.seen
            result = make(found)
            changes = self.say(label, [name], result)
            if changes and (renew or undo and not self.remove(found)):
                self.fixture.fresh()

    def remove(self, name):
        if name in (None, BAD) or name.rstrip(b"/") == b"dangling":
            return False
        before = self.before
        for remove in (os.unlink, os.rmdir):
            try:
                remove(name.rstrip(b"/"))
            except OSError:
                continue
            self.fixture.changes()
            self.fixture.changed = self.fixture.seen != before
            return True
        return False

    def opened(self, fd):
        if fd >= 0:
            mode, flags = os.fstat(fd).st_mode, libc.fcntl(fd, 3)
            os.close(fd)
            return 0 if stat.S_IFMT(mode) else flags
        return fd

    def made(self):
        """Calls that make a name."""
        call = self.call
        makers = {
            "mkdir": lambda n: call("mkdir", n, 0o777), "mkdir 7777": lambda n: call("mkdir", n, 0o7777), "mkdirat": lambda n: call("mkdirat", AT, n, 0o700),
            "mknod": lambda n: call("mknod", n, S_IFREG | 0o666, 0), "mknod no type": lambda n: call("mknod", n, 0o4755, 0),
            "mknod fifo": lambda n: call("mknodat", AT, n, S_IFIFO | 0o666, 0), "mknod socket": lambda n: call("mknodat", AT, n, S_IFSOCK | 0o666, 0),
            "mknod directory": lambda n: call("mknod", n, stat.S_IFDIR | 0o777, 0), "mknod nonsense": lambda n: call("mknod", n, 0o150000, 0),
            "mknod device": lambda n: call("mknod", n, S_IFCHR | 0o666, 0x103) if not self.root else 0,
            "mknod block": lambda n: call("mknod", n, S_IFBLK | 0o666, 0x700) if not self.root else 0,
            "symlink": lambda n: call("symlink", b"to where", n), "symlinkat": lambda n: call("symlinkat", b"to", AT, n),
            "symlink to nothing": lambda n: call("symlink", b"", n), "symlink far": lambda n: call("symlink", b"t/" * 2040, n),
            "symlink too far": lambda n: call("symlink", b"t/" * 2050, n), "symlink to null": lambda n: call("symlink", None, n),
            "symlink to bad": lambda n: call("symlink", BAD, n), "symlink odd": lambda n: call("symlink", b"\xff\n", n),
            "link": lambda n: call("link", b"own", n), "link of a link": lambda n: call("link", b"ownlink", n),
            "linkat follow": lambda n: call("linkat", AT, b"ownlink", AT, n, FOLLOW), "linkat fd": lambda n: call("linkat", self.fixture.fds.get("own", 998), b"", AT, n, EMPTY),
            "linkat magic": lambda n: call("linkat", AT, self.name(b"/proc/self/fd/$OWN"), AT, n, FOLLOW), "linkat flags": lambda n: call("linkat", AT, b"own", AT, n, 0x8000),
            "creat": lambda n: self.opened(call("creat", n, 0o666)) if n not in self.blocking else 0,
            "open excl": lambda n: self.opened(call("open", n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o6777)),
            "openat nofollow": lambda n: self.opened(call("openat", AT, n, os.O_CREAT | os.O_NOFOLLOW | os.O_RDWR | os.O_NONBLOCK, 0o640)),
            "bind": self.bind,
        }
        self.blocking = [b"fifo"]
        for label, make in makers.items():
            self.one(label, make, undo=True, renew=label == "creat")

    def bind(self, name):
        with socket.socket(socket.AF_UNIX) as bound:
            return self.address("bind", bound, name)

    def address(self, call, bound, name):
        if name in (None, BAD):
            return self.call(call, bound.fileno(), name, 20)
        name = name[:200]
        return self.call(call, bound.fileno(), Buffer(struct.pack("=H", 1) + name + b"\0"), 3 + len(name))

    def removed(self):
        call = self.call
        for label, make in {
            "rmdir": lambda n: call("rmdir", n), "unlink": lambda n: call("unlink", n), "unlinkat": lambda n: call("unlinkat", AT, n, 0),
            "unlinkat dir": lambda n: call("unlinkat", AT, n, REMOVEDIR), "unlinkat flags": lambda n: call("unlinkat", AT, n, 0x4000),
        }.items():
            self.one(label, make, renew=True)

    def times(self, *values):
        return self.call.long(*values)

    def attributes(self):
        """Calls that change what a name already has."""
        call, uid, gid, other = self.call, os.geteuid(), os.getegid(), 54321
        kernel_times = lambda *values: Buffer(struct.pack("<4q", *values))
        now, omit = (1 << 30) - 1, (1 << 30) - 2
        access = lambda *bits: Buffer(struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bit, 0xFFFFFFFF) for tag, bit in zip((1, 4, 32), bits)))
        capability = Buffer(struct.pack("<5I", 0x02000001, 0x400, 0, 0, 0))
        set_value = lambda name, value, flags=0, size=None: lambda n: call("setxattr", n, name, value, len(value) if size is None else size, flags)
        changers = {
            "chmod": lambda n: call("chmod", n, 0o750), "chmod 6755": lambda n: call("chmod", n, 0o6755), "fchmodat": lambda n: call("fchmodat", AT, n, 0o705),
            "fchmodat2": lambda n: call("fchmodat2", AT, n, 0o2711, 0), "fchmodat2 nofollow": lambda n: call("fchmodat2", AT, n, 0o710, NOFOLLOW),
            "fchmodat2 flags": lambda n: call("fchmodat2", AT, n, 0o710, 0x8000), "fchmodat2 empty": lambda n: call("fchmodat2", AT, n, 0o711, EMPTY),
            "chown nothing": lambda n: call("chown", n, -1, -1), "chown to self": lambda n: call("chown", n, uid, gid), "chown away": lambda n: call("chown", n, other, -1),
            "chgrp away": lambda n: call("chown", n, -1, other), "lchown": lambda n: call("lchown", n, uid, -1), "lchown away": lambda n: call("lchown", n, other, other),
            "fchownat": lambda n: call("fchownat", AT, n, -1, gid, NOFOLLOW), "fchownat flags": lambda n: call("fchownat", AT, n, -1, -1, 0x8000),
            "fchownat empty": lambda n: call("fchownat", AT, n, uid, gid, EMPTY),
            "utime now": lambda n: call("utime", n, None), "utime": lambda n: call("utime", n, self.times(1111, 2222)), "utime bad": lambda n: call("utime", n, BAD),
            "utimes": lambda n: call("utimes", n, self.times(11, 12, 13, 14)), "utimes wrong": lambda n: call("utimes", n, self.times(11, 1000000, 13, 14)),
            "futimesat": lambda n: call("futimesat", AT, n, self.times(21, 22, 23, 24)),
            "utimensat": lambda n: call("utimensat", AT, n, kernel_times(31, 32, 33, 34), 0),
            "utimensat nofollow": lambda n: call("utimensat", AT, n, kernel_times(41, 42, 43, 44), NOFOLLOW),
            "utimensat now": lambda n: call("utimensat", AT, n, None, 0), "utimensat omit": lambda n: call("utimensat", AT, n, kernel_times(0, omit, 0, omit), 0),
            "utimensat mixed": lambda n: call("utimensat", AT, n, kernel_times(51, 52, 0, now), NOFOLLOW),
            "utimensat past": lambda n: call("utimensat", AT, n, kernel_times(-5, 1, -6, 2), 0),
            "utimensat wrong": lambda n: call("utimensat", AT, n, kernel_times(0, 10**9, 0, 0), 0), "utimensat bad": lambda n: call("utimensat", AT, n, BAD, 0),
            "utimensat flags": lambda n: call("utimensat", AT, n, None, 0x8000),
            "truncate": lambda n: call("truncate", n, 5), "truncate longer": lambda n: call("truncate", n, 70000), "truncate minus": lambda n: call("truncate", n, -1),
            "truncate huge": lambda n: call("truncate", n, 1 << 62) if self.wide else 0, "truncate same": lambda n: call("truncate", n, 15),
            "setxattr": set_value(b"user.k", Buffer(b"value")), "setxattr again": set_value(b"user.there", Buffer(b"2")), "setxattr nothing": set_value(b"user.e", Buffer(b"")),
            "setxattr create": set_value(b"user.there", Buffer(b"3"), 1), "setxattr replace": set_value(b"user.none", Buffer(b"3"), 2),
            "setxattr flags": set_value(b"user.k", Buffer(b"3"), 9), "setxattr no name": set_value(b"", Buffer(b"3")), "setxattr no space": set_value(b"k", Buffer(b"3")),
            "setxattr other space": set_value(b"other.k", Buffer(b"3")), "setxattr only space": set_value(b"user.", Buffer(b"3")), "setxattr long": set_value(b"user." + b"y" * 300, Buffer(b"3")),
            "setxattr big": set_value(b"user.k", Buffer(b"3"), 0, 70000), "setxattr trusted": set_value(b"trusted.k", Buffer(b"3")) if not self.root else lambda n: 0,
            "setxattr security": set_value(b"security.k", Buffer(b"3")) if not self.root else lambda n: 0, "setxattr capability": set_value(b"security.capability", capability),
            "setxattr capability nonsense": set_value(b"security.capability", Buffer(b"3")), "setxattr acl": set_value(b"system.posix_acl_access", access(6, 4, 4)),
            "setxattr acl nonsense": set_value(b"system.posix_acl_access", Buffer(b"3")), "setxattr overlay": set_value(b"user.overlay.k", Buffer(b"3")),
            "setxattr bad name": lambda n: call("setxattr", n, BAD, Buffer(b"3"), 1, 0), "setxattr bad value": lambda n: call("setxattr", n, b"user.k", BAD, 1, 0),
            "lsetxattr": lambda n: call("lsetxattr", n, b"user.l", Buffer(b"x"), 1, 0), "setxattrat": lambda n: call("setxattrat", AT, n, 0, b"user.a", self.attribute(b"at"), 16),
            "setxattrat nofollow": lambda n: call("setxattrat", AT, n, NOFOLLOW, b"user.a", self.attribute(b"at"), 16), "setxattrat flags": lambda n: call("setxattrat", AT, n, 0x8000, b"user.a", self.attribute(b"at"), 16),
            "setxattrat size": lambda n: call("setxattrat", AT, n, 0, b"user.a", self.attribute(b"at"), 8), "setxattrat bad": lambda n: call("setxattrat", AT, n, 0, b"user.a", BAD, 16),
            "removexattr": lambda n: call("removexattr", n, b"user.there"), "lremovexattr": lambda n: call("lremovexattr", n, b"user.there"),
            "removexattr none": lambda n: call("removexattr", n, b"user.none"), "removexattr no name": lambda n: call("removexattr", n, b""), "removexattr bad": lambda n: call("removexattr", n, BAD),
            "removexattrat": lambda n: call("removexattrat", AT, n, 0, b"user.there"), "removexattrat flags": lambda n: call("removexattrat", AT, n, 0x8000, b"user.there"),
            "removexattr capability": lambda n: call("removexattr", n, b"security.capability"),
            "file_setattr": lambda n: call("file_setattr", AT, n, Buffer(bytes(24)), 24, 0), "file_setattr flags": lambda n: call("file_setattr", AT, n, Buffer(bytes(24)), 24, 0x8000),
            "file_setattr size": lambda n: call("file_setattr", AT, n, Buffer(bytes(24)), 3, 0), "file_setattr append": lambda n: call("file_setattr", AT, n, Buffer(struct.pack("<Q", 0x40) + bytes(16)), 24, 0),
        }
        if not self.wide:
            changers.update({
                "chown16": lambda n: call("chown16", n, uid & 0xFFFF, 0xFFFF), "lchown16": lambda n: call("lchown16", n, 0xFFFF, gid & 0xFFFF),
                "truncate64": lambda n: call("truncate64", n, 7, 0), "truncate64 minus": lambda n: call("truncate64", n, 7, 0x80000000),
                "utimensat_time32": lambda n: call("utimensat_time32", AT, n, self.times(61, 62, 63, 64), 0),
            })
        for label, make in changers.items():
            self.one(label, make, renew=label.startswith("removexattr"))
        self.one("removexattr acl", lambda n: call("removexattr", n, b"system.posix_acl_default"), names=[b"acl", b"acl", b"file", b"nope", b"fifo"])

    def attribute(self, value):
        """struct xattr_args"""
        return Buffer(struct.pack("<QII", self.call.aside(value), len(value), 0))

    def opens(self):
        call, o = self.call, os
        flags = {
            "write": o.O_WRONLY, "both": o.O_RDWR, "append": o.O_WRONLY | o.O_APPEND, "read": o.O_RDONLY, "create": o.O_RDONLY | o.O_CREAT, "directory": o.O_RDWR | o.O_DIRECTORY,
            "directory create": o.O_DIRECTORY | o.O_CREAT, "excl": o.O_EXCL | o.O_CREAT | o.O_RDWR, "nofollow": o.O_WRONLY | o.O_NOFOLLOW, "truncate": o.O_WRONLY | o.O_TRUNC,
            "truncate to read": o.O_RDONLY | o.O_TRUNC, "nameless": o.O_TMPFILE | o.O_RDWR, "nameless to read": o.O_TMPFILE, "path": o.O_PATH | o.O_CREAT, "three": 3, "nonsense": 0x80000000 if self.wide else 0,
            "noatime": o.O_RDWR | o.O_NOATIME, "sync": o.O_WRONLY | o.O_SYNC,
        }
        for label, flag in flags.items():
            for create in (False, True):
                full = flag | o.O_NONBLOCK | (o.O_CREAT if create else 0)
                if create and (flag & o.O_CREAT or label in ("read", "directory", "three", "nonsense", "noatime", "sync")):
                    continue
                word = "open %s%s" % (label, " create" if create else "")
                self.one(word, lambda n: self.opened(call("openat", AT, n, full, 0o666)), undo=True, renew="truncate" in label)
        hows = {"plain": 0, "beneath": 8, "in root": 16, "no links": 4, "no magic links": 2, "no other mounts": 1, "nonsense": 0x100}
        for label, resolve in hows.items():
            for flag in (o.O_RDWR | o.O_NONBLOCK, o.O_WRONLY | o.O_CREAT | o.O_NONBLOCK, o.O_RDONLY | o.O_NONBLOCK):
                how = Buffer(struct.pack("<3Q", flag, 0o640 if flag & o.O_CREAT else 0, resolve))
                self.one("openat2 %s %o" % (label, flag), lambda n: self.opened(call("openat2", AT, n, how, 24)), undo=True, renew=True)
        self.fixture.fresh()
        for label, how, size in (("mode", struct.pack("<3Q", 0, 0o600, 0), 24), ("short", bytes(24), 8), ("long", bytes(32), 32), ("long and more", bytes(24) + b"12345678", 32), ("huge", bytes(24), 9000)):
            self.say("openat2 " + label, [b"file"], self.opened(call("openat2", AT, b"file", Buffer(how), size)))
        self.say("openat2 null", [b"file"], self.opened(call("openat2", AT, b"file", None, 24)))
        self.say("openat2 bad", [b"file"], self.opened(call("openat2", AT, b"file", BAD, 24)))
        fd = call("openat", AT, b"dir", o.O_TMPFILE | o.O_RDWR, 0o640)
        self.say("nameless", [b"dir"], min(fd, 0))
        if fd >= 0:
            os.write(fd, b"was nameless")
            self.say("its name", [b"named"], call("linkat", AT, b"/proc/self/fd/%d" % fd, AT, b"named", FOLLOW))
            self.say("its name again", [b"named"], call("linkat", AT, b"/proc/self/fd/%d" % fd, AT, b"named", FOLLOW))
            self.say("another", [b"other"], call("linkat", fd, b"", AT, b"other", EMPTY))
            os.close(fd)

    def connects(self):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_UNIX, kind) as client:
                self.one("connect", lambda n: self.address("connect", client, n))
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            self.fixture.fresh()
            self.say("bind", [b"dir/listens"], self.address("bind", server, b"dir/listens"))
            self.say("bind again", [b"dir/listens"], self.address("bind", server, b"dir/listens2"))
            try:
                server.listen()
            except OSError as error:
                print("listen", error.errno)
            self.say("connect to own", [b"todir/listens"], self.address("connect", client, b"todir/listens"))
            self.say("bind nameless", [b""], self.call("bind", client.fileno(), Buffer(b"\1\0"), 2))
            self.say("bind short", [b""], self.call("bind", client.fileno(), Buffer(b"\1\0"), 1))
            self.say("bind to no socket", [b""], self.call("bind", self.fixture.fds.get("file", 998), Buffer(b"\1\0x\0"), 4))

    def programs(self):
        def child(name, *arguments):
            def make(path):
                sys.stdout.flush()
                pid = os.fork()
                if pid == 0:
                    at = [AT] if name == "execveat" else []
                    result = self.call(name, *at, path, Nested([b"one", b"two"]), Nested([b"A=b"]), *arguments)
                    os._exit(-result & 255)
                status = os.waitpid(pid, 0)[1]
                return -os.WEXITSTATUS(status) if os.WEXITSTATUS(status) != 7 else 0
            return make
        self.one("execve", child("execve"))
        self.one("execveat", child("execveat", NOFOLLOW), names=FEW)
        self.one("execveat flags", child("execveat", 0x8000), names=FEW)

    def two(self):
        call = self.call
        makers = {"rename": lambda a, b: call("rename", a, b), "renameat": lambda a, b: call("renameat", AT, a, AT, b)}
        for flags in (0, 1, 2, 3, 8):
            makers["renameat2 %d" % flags] = lambda a, b, flags=flags: call("renameat2", AT, a, AT, b, flags)
        for flags in (0, FOLLOW):
            makers["linkat %x" % flags] = lambda a, b, flags=flags: call("linkat", AT, a, AT, b, flags)
        for label, make in makers.items():
            self.fixture.fresh("xattr" in label)
            for pair in self.pairs:
                if label.startswith("linkat") and not self.root:
                    # Nothing that was there before can get a second name: see by_nature.
                    pair = (b"own" if pair[0] == b"file" else b"ownlink" if pair[0] == b"tofile" else pair[0], pair[1])
                    if pair[0] not in (b"own", b"ownlink", b"nope", b"dir", b"", b"loop1", b"nope/f", LONG, None, BAD):
                        continue
                if not self.root and (pair[0] == b"/" or pair[1] in (b"/", b"/dev/shm/../new")):
                    continue
                if self.say(label, pair, make(self.name(pair[0]), self.name(pair[1]))):
                    self.fixture.fresh()

    def descriptors(self):
        call = self.call
        makers = {
            "mkdirat": lambda d, n: call("mkdirat", d, n, 0o770), "mknodat": lambda d, n: call("mknodat", d, n, S_IFIFO | 0o600, 0), "symlinkat": lambda d, n: call("symlinkat", b"to", d, n),
            "unlinkat": lambda d, n: call("unlinkat", d, n, 0), "unlinkat dir": lambda d, n: call("unlinkat", d, n, REMOVEDIR),
            "openat": lambda d, n: self.opened(call("openat", d, n, os.O_CREAT | os.O_WRONLY, 0o606)), "openat write": lambda d, n: self.opened(call("openat", d, n, os.O_RDWR)),
            "openat2 beneath": lambda d, n: self.opened(call("openat2", d, n, Buffer(struct.pack("<3Q", os.O_CREAT | os.O_RDWR, 0o600, 8)), 24)),
            "utimensat": lambda d, n: call("utimensat", d, n, Buffer(struct.pack("<4q", 71, 72, 73, 74)), 0), "utimensat empty": lambda d, n: call("utimensat", d, n, Buffer(struct.pack("<4q", 81, 82, 83, 84)), EMPTY),
            "futimesat": lambda d, n: call("futimesat", d, n, self.times(91, 92, 93, 94)), "fchmodat": lambda d, n: call("fchmodat", d, n, 0o751), "fchmodat2 empty": lambda d, n: call("fchmodat2", d, n, 0o753, EMPTY),
            "fchmodat2 empty nofollow": lambda d, n: call("fchmodat2", d, n, 0o755, EMPTY | NOFOLLOW), "fchownat": lambda d, n: call("fchownat", d, n, -1, -1, 0),
            "fchownat empty": lambda d, n: call("fchownat", d, n, os.geteuid(), -1, EMPTY), "linkat": lambda d, n: call("linkat", d, n, AT, b"made", 0), "linkat follow": lambda d, n: call("linkat", d, n, AT, b"made", FOLLOW),
            "linkat empty": lambda d, n: call("linkat", d, n, AT, b"made", EMPTY), "linkat to": lambda d, n: call("linkat", AT, b"own", d, n, 0), "renameat": lambda d, n: call("renameat", d, n, AT, b"moved"),
            "renameat to": lambda d, n: call("renameat", AT, b"script", d, n), "renameat2 swap": lambda d, n: call("renameat2", AT, b"script", d, n, 2),
            "setxattrat empty": lambda d, n: call("setxattrat", d, n, EMPTY, b"user.d", self.attribute(b"d"), 16), "removexattrat empty": lambda d, n: call("removexattrat", d, n, EMPTY, b"user.d"),
            "file_setattr empty": lambda d, n: call("file_setattr", d, n, Buffer(bytes(24)), 24, EMPTY),
        }
        for label, make in makers.items():
            self.fixture.fresh("xattr" in label)
            for kind in ("directory", "path", "file", "file path", "link path", "here", "nothing", "minus"):
                for name in FD_NAMES:
                    if label in ("linkat", "linkat follow", "linkat empty") and not self.root and (kind not in ("nothing", "minus")):
                        continue
                    fd = {"nothing": 999, "minus": -5}.get(kind, self.fixture.fds.get(kind, 998))
                    result = make(fd, name)
                    if self.say("%s %s" % (label, kind), [name], result):
                        self.fixture.fresh()

    def by_nature(self):
        """What cannot be the same inside: docs/LIMITS.md."""
        call = self.call
        for label, make in {
            "mknod device": lambda: call("mknod", b"device", S_IFCHR | 0o666, 0x103), "mknod block": lambda: call("mknod", b"block", S_IFBLK | 0o666, 0x700),
            "mknod whiteout": lambda: call("mknod", b"whiteout", S_IFCHR, 0), "rename leaving a whiteout": lambda: call("renameat2", AT, b"file", AT, b"moved", 4),
            "setxattr trusted": lambda: call("setxattr", b"script", b"trusted.k", Buffer(b"1"), 1, 0), "setxattr security": lambda: call("setxattr", b"script", b"security.k", Buffer(b"1"), 1, 0),
            "removexattr no acl": lambda: call("removexattr", b"dir", b"system.posix_acl_default"), "link": lambda: call("link", b"readonly", b"linked"),
        }.items():
            self.fixture.fresh()
            print(label, said(make()))

    def reads(self):
        call, room = self.call, Buffer(bytes(4096))
        for label, make in {
            "stat": lambda n: call("stat", n, room), "lstat": lambda n: call("lstat", n, room), "newfstatat": lambda n: call("newfstatat", AT, n, room, NOFOLLOW), "newfstatat empty": lambda n: call("newfstatat", AT, n, room, EMPTY),
            "statx": lambda n: call("statx", AT, n, 0, 0x7FF, room), "statx flags": lambda n: call("statx", AT, n, 0x10, 0x7FF, room), "access": lambda n: call("access", n, 2), "access run": lambda n: call("access", n, 1),
            "access mode": lambda n: call("access", n, 8), "faccessat": lambda n: call("faccessat", AT, n, 4), "faccessat2": lambda n: call("faccessat2", AT, n, 4, 0x200 | NOFOLLOW),
            "readlinkat": lambda n: call("readlinkat", AT, n, room, 3), "readlink none": lambda n: call("readlink", n, room, 0), "getxattr": lambda n: call("getxattr", n, b"user.there", room, 100),
            "getxattr small": lambda n: call("getxattr", n, b"user.there", room, 0), "lgetxattr": lambda n: call("lgetxattr", n, b"user.none", room, 100), "getxattrat": lambda n: call("getxattrat", AT, n, 0, b"user.there", Buffer(struct.pack("<QII", 0, 0, 0)), 16),
            "open": lambda n: self.opened(call("open", n, os.O_RDONLY | os.O_NONBLOCK, 0)), "openat path": lambda n: self.opened(call("openat", AT, n, os.O_PATH | os.O_NOFOLLOW, 0)),
        }.items():
            if self.call.has(label.split()[0]):
                self.one(label, make)

        def chdir(name):
            result = call("chdir", name)
            self.fixture.fds.get("here") and os.fchdir(self.fixture.fds["here"])
            return result
        self.one("chdir", chdir)

    def others(self):
        """Calls that are only watched or refused."""
        call, quiet = self.call, not self.root
        self.fixture.fresh()
        print("umask", os.umask(0o27), os.umask(0o77), os.umask(self.mask))
        if quiet:
            for label, make in {"chroot": lambda n: call("chroot", n), "umount2": lambda n: call("umount2", n, 0), "mount": lambda n: call("mount", b"none", n, b"tmpfs", 0, None),
                                "pivot_root": lambda n: call("pivot_root", n, n)}.items():
                self.one(label, make, names=FEW)

    mask = 0o22
    restricted = False

    def everything(self):
        for part in (self.made, self.removed, self.attributes, self.opens, self.connects, self.programs, self.two, self.descriptors, self.reads, self.others):
            part()


# The situations. Each changes the process, and then makes calls.

def unshare(flags):
    if libc.unshare(flags) != 0:
        print("unshare", errno.errorcode[ctypes.get_errno()])
        return False
    return True


def in_a_thread(todo):
    """In a thread whose working directory and umask are its own, while the process is elsewhere."""
    def run():
        unshare(0x200)
        todo()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def in_a_child(todo):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        todo()
        sys.stdout.flush()
        os._exit(0)
    print("child", os.waitpid(pid, 0)[1])


def without_capabilities():
    head, none = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0)), ctypes.create_string_buffer(24)
    print("capset", libc.syscall(126, head, none))


def only_capabilities(bits):
    head = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0))
    print("capset", libc.syscall(126, head, ctypes.create_string_buffer(struct.pack("<6I", bits, bits, 0, 0, 0, 0))))


def another_user(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def landlock():
    """A domain in which below the current directory files may be made, written and removed, and directories made."""
    everything, some = 0x1FFF, 0x1 | 0x2 | 0x4 | 0x8 | 0x20 | 0x80 | 0x100
    rules = libc.syscall(444, ctypes.create_string_buffer(struct.pack("<Q", everything)), 8, 0)
    if rules < 0:
        print("there is no Landlock")
        sys.exit(77)
    here = os.open(".", os.O_PATH)
    libc.syscall(445, rules, 1, ctypes.create_string_buffer(struct.pack("=Qi", some, here)), 0)
    libc.prctl(38, 1, 0, 0, 0)
    print("restricted", libc.syscall(446, rules, 0))
    os.close(rules)


def main():
    situation = sys.argv[1]
    other = int(sys.argv[2]) if len(sys.argv) > 2 else None
    top = os.getcwd()
    if situation == "build":
        os.mkdir("fix")
        for number in range(int(sys.argv[2])):
            os.chdir(top)
            build("fix/%04d" % number, int(sys.argv[3]) if len(sys.argv) > 3 else None)
        return
    top = os.open("fix", os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(top)
    sys.stdout.reconfigure(line_buffering=False)
    abi = "i386" if situation == "other_abi" else "x86-64"
    os.umask(0o22)
    matrix = Matrix(abi, Fixture(top, other), situation in ("plain", "other_abi"))
    todo = matrix.everything
    if situation in ("plain", "other_abi", "reads", "read_only"):
        todo()
    elif situation == "by_nature":
        matrix.by_nature()
    elif situation == "umask":
        os.umask(0o77)
        matrix.mask = 0o77
        todo()
    elif situation == "thread":
        os.mkdir("elsewhere")
        os.chdir("elsewhere")
        in_a_thread(todo)
    elif situation == "child":
        in_a_child(todo)
    elif situation == "no_capabilities":
        without_capabilities()
        todo()
    elif situation == "some_capabilities":
        only_capabilities(1 << 0 | 1 << 3)
        todo()
    elif situation == "another_user":
        another_user(other)
        todo()
    elif situation == "fsuid":
        libc.setfsgid(other)
        libc.setfsuid(other)
        todo()
    elif situation == "chroot":
        os.chroot(".")
        os.chdir("/")
        todo()
    elif situation == "chroot_above":
        # The root is not above the trees: absolute names are elsewhere, `..` stops at nothing.
        os.chroot("0000/dir")
        todo()
    elif situation in ("user_namespace", "mapped_namespace"):
        uid, gid = os.geteuid(), os.getegid()
        if unshare(0x10000000 | 0x20000) and situation == "mapped_namespace":
            for name, line in (("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid)):
                with open("/proc/self/" + name, "w") as out:
                    out.write(line)
        todo()
    elif situation == "landlock":
        landlock()
        matrix.restricted = True
        todo()
    elif situation == "gone":
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        matrix.fixture.fresh = lambda *_: setattr(matrix.fixture, "seen", snapshot(False))
        for part in (matrix.made, matrix.removed, matrix.attributes, matrix.opens, matrix.reads):
            part()
    elif situation == "file_size":
        signal.signal(signal.SIGXFSZ, lambda *_: print("SIGXFSZ"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        matrix.one("truncate", lambda n: matrix.call("truncate", n, 5))
        matrix.one("truncate longer", lambda n: matrix.call("truncate", n, 70000))
    elif situation == "few_files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        matrix.fixture.fresh()
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        for label, result in (("openat", matrix.call("openat", AT, b"new", os.O_CREAT | os.O_WRONLY, 0o600)), ("mkdir", matrix.call("mkdir", b"newer", 0o700)), ("creat", matrix.call("creat", b"file", 0o600))):
            print(label, said(result), [os.path.lexists("new"), os.path.lexists("newer")], os.lstat("file").st_size)
        for fd in taken:
            os.close(fd)
    else:
        sys.exit("no such situation: " + situation)
    sys.stdout.flush()


main()
