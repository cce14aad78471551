# Every traced call in every situation: prints what each returned, and the tree at the end. Run bare and supervised, the two
# outputs must be the same. Works in the current directory.
import ctypes, os, socket, stat, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
AT = -100
PROBE = sys.argv[1] if len(sys.argv) > 1 else "plain"
ROOT = os.geteuid() == 0

def call(number, *args):
    converted = []
    for a in args:
        if isinstance(a, bytes): converted.append(ctypes.c_char_p(a))
        elif a is None: converted.append(ctypes.c_void_p(0))
        elif isinstance(a, ctypes.Array): converted.append(a)
        else: converted.append(ctypes.c_long(a))
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(number), *converted)
    return r, ctypes.get_errno()

BAD = ctypes.c_void_p(8).value
out = []
def note(label, result): out.append("%s: %s %s" % ((label,) + tuple(result)))

def short(n): return n.replace(os.fsencode(os.getcwd()), b'HERE')[:40] if isinstance(n, bytes) else n

def build():
    os.umask(0o022)
    for d in ("dir", "dir/sub", "ro", "sticky", "setgid", "acl", "shut", "full", "empty"): os.mkdir(d)
    for f in ("file", "dir/f", "ro/in", "full/x", "shut/in", "sticky/mine"): open(f, "w").write("content of " + f)
    os.symlink("file", "tofile"); os.symlink("dir", "todir"); os.symlink("nowhere", "dangling")
    os.symlink("loop2", "loop1"); os.symlink("loop1", "loop2"); os.symlink("dir/sub/", "tosub")
    os.symlink(os.path.abspath("dir"), "abs"); os.symlink("/proc/self/cwd/dir", "magic")
    os.mkfifo("fifo"); os.link("file", "hard")
    os.chmod("ro", 0o555); os.chmod("sticky", 0o1777); os.chmod("setgid", 0o2775); os.chmod("shut", 0)
    os.chmod("file", 0o644)
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, 0xffffffff) for t, p in ((1, 7), (4, 5), (32, 4)))
    try: os.setxattr("acl", "system.posix_acl_default", acl)
    except OSError: pass

build()
long_name = b"n" * 256
long_path = b"dir/" * 1100 + b"x"
fresh = [b"new", b"dir/new", b"dir/sub/../new2", b"./new3", b"todir/new4", b"abs/new5", b"magic/new6", b"tosub/new7",
         os.fsencode(os.getcwd()) + b"/new8", b"new9/", b"new10//", b"\xff\xfe", os.fsencode("/" + os.getcwd()) + b"/new12", b"dir//sub//new11"]
there = [b"file", b"dir", b"tofile", b"todir", b"dangling", b"fifo", b"empty", b"full", b"hard", b"dir/", b"file/", b"todir/", b"tofile/",
         b"empty/.", b"empty/..", b".", b"..", b"/", b"ro/in", b"sticky/mine", b"magic/f", b"/proc/self/cwd/dir/f"]
bad = [b"", b"nope/x", b"file/x", b"loop1/x", b"loop1", b"shut/in", b"shut/x", b"ro/x", long_name, b"dir/" + long_name, long_path, b"dangling/x",
       b"/proc/self/nope", b"/proc/nope"]
pointers = [None, BAD]
d = os.open("dir", os.O_RDONLY | os.O_DIRECTORY); p = os.open("dir", os.O_PATH); f = os.open("file", os.O_RDONLY)
x = os.open(".", os.O_PATH)

def undo(path):
    try:
        st = os.lstat(path.rstrip(b"/") or b"/")
        if stat.S_ISDIR(st.st_mode): os.rmdir(path)
        else: os.unlink(path.rstrip(b"/"))
    except OSError: pass

def mode_of(path):
    try: return oct(os.lstat(path.rstrip(b"/")).st_mode)
    except OSError as e: return e.errno

def everything():
    names = fresh + there + bad + pointers
    # x86-64 numbers
    makers = {"mkdir": lambda n: call(83, n, 0o1777), "mkdirat": lambda n: call(258, AT, n, 0o770), "symlink": lambda n: call(88, b"to", n),
              "symlinkat": lambda n: call(266, b"to", AT, n), "mknod": lambda n: call(133, n, stat.S_IFREG | 0o666, 0),
              "fifo": lambda n: call(259, AT, n, stat.S_IFIFO | 0o622, 0), "device": lambda n: call(133, n, stat.S_IFCHR | 0o666, 0x103),
              "creat": lambda n: call(85, n, 0o666), "excl": lambda n: call(257, AT, n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o4755),
              "link": lambda n: call(86, b"file", n), "linkat": lambda n: call(265, AT, b"tofile", AT, n, 0x400),
              "linkat-nofollow": lambda n: call(265, AT, b"tofile", AT, n, 0), "rename": lambda n: call(82, b"source", n)}
    for label, make in makers.items():
        for n in names:
            if label == "creat" and n in (b"file", b"hard", b"tofile", b"fifo", b"magic/f", b"/proc/self/cwd/dir/f", b"ro/in", b"sticky/mine", b"dangling"): continue
            if label == "rename":
                open("source", "w").close()
                if n in there: continue
            result = make(n)
            if result[0] > 2 and label in ("creat", "excl"): os.close(result[0]); result = (0, 0)
            note("%s %r" % (label, short(n)), result)
            if result[0] == 0 and isinstance(n, bytes) and n in fresh + bad:
                note("  made", (mode_of(n), "")); undo(n)
            if result[0] == 0 and n == b"dangling": undo(b"nowhere")
    for n in names:
        for label, number in (("rmdir", 84), ("unlink", 87)):
            if n in there and not (label == "rmdir" and n in (b"full", b"file", b"tofile", b"todir", b"dir/", b"todir/", b"file/", b"empty/.", b"empty/..", b".", b"..", b"/")) \
               and not (label == "unlink" and n in (b"dir", b"dir/", b"file/", b"todir/", b"tofile/", b".", b"..", b"/")): continue
            note("%s %r" % (label, short(n)), call(number, n))
    for n in names:
        if n in (b"..", b"/", b"empty/.."): continue
        for label, todo in (("chmod", lambda: call(90, n, 0o750)), ("fchmodat", lambda: call(268, AT, n, 0o705)), ("fchmodat2", lambda: call(452, AT, n, 0o750, 0x100)),
                            ("chown", lambda: call(92, n, -1, -1)), ("chown0", lambda: call(92, n, 0, 0) if not ROOT else (0, 0)), ("lchown", lambda: call(94, n, -1, -1)),
                            ("truncate", lambda: call(76, n, 5)), ("truncate-", lambda: call(76, n, -1)), ("utime", lambda: call(132, n, None)),
                            ("utimes", lambda: call(235, n, ctypes.create_string_buffer(struct.pack("4q", 1, 2, 3, 4)))),
                            ("utimes!", lambda: call(235, n, ctypes.create_string_buffer(struct.pack("4q", 1, 2000000, 3, 4)))),
                            ("utimensat", lambda: call(280, AT, n, ctypes.create_string_buffer(struct.pack("4q", 11, 12, 13, 14)), 0x100)),
                            ("utimensat!", lambda: call(280, AT, n, ctypes.create_string_buffer(struct.pack("4q", 11, 10**9, 13, 14)), 0)),
                            ("setxattr", lambda: call(188, n, b"user.k", b"v", 1, 0)), ("lsetxattr", lambda: call(189, n, b"user.l", b"w", 1, 0)),
                            ("setxattr-create", lambda: call(188, n, b"user.k", b"v", 1, 1)), ("setxattr-flags", lambda: call(188, n, b"user.k", b"v", 1, 9)),
                            ("setxattr-name", lambda: call(188, n, b"", b"v", 1, 0)), ("setxattr-space", lambda: call(188, n, b"nospace", b"v", 1, 0)),
                            ("setxattr-long", lambda: call(188, n, b"user." + b"y" * 300, b"v", 1, 0)), ("setxattr-big", lambda: call(188, n, b"user.k", b"v", 70000, 0)),
                            ("removexattr", lambda: call(197, n, b"user.k")), ("lremovexattr", lambda: call(198, n, b"user.nope"))):
            note("%s %r" % (label, short(n)), todo())
    os.chmod("ro", 0o555); os.chmod("sticky", 0o1777)
    for label, fd in (("d", d), ("p", p), ("f", f), ("closed", 999), ("minus", -5)):
        for n in (b"new", b"sub", b"", b"../new", b"f", b"/n0pe/x", None, BAD):
            r = call(258, fd, n, 0o700); note("mkdirat %s %r" % (label, n), r)
            if r[0] == 0: note("  rmdir", call(263, fd, n, 0x200))
            note("unlinkat %s %r" % (label, n), call(263, fd, n, 0) if n not in (b"f",) else (0, 0))
            note("unlinkat! %s %r" % (label, n), call(263, fd, n, 0x4000))
            note("utimensat %s %r" % (label, n), call(280, fd, n, None, 0))
            note("fchmodat2 empty %s %r" % (label, n), call(452, fd, n, 0o755, 0x1000))
            note("fchownat empty %s %r" % (label, n), call(260, fd, n, -1, -1, 0x1000))
            note("fchownat %s %r" % (label, n), call(260, fd, n, -1, -1, 0x8000))
            note("renameat %s %r" % (label, n), call(264, fd, n, fd, b"sub/moved") if n not in (b"f",) else (0, 0))
            note("symlinkat %s %r" % (label, n), call(266, None, fd, n))
            note("linkat empty %s %r" % (label, n), call(265, fd, n, AT, b"file", 0x1000))
            note("linkat! %s %r" % (label, n), call(265, fd, n, AT, b"file", 0x8000))
    for a, b in ((b"dir", b"dir/sub/x"), (b"dir", b"empty"), (b"dir", b"full"), (b"file", b"dir"), (b"dir", b"file"), (b"file", b"hard"), (b"file/", b"z"), (b"file", b"z/"),
                 (b"nope", b"z"), (b"", b"z"), (b"file", b""), (b".", b"z"), (b"file", b"."), (b"file", b".."), (b"dir/..", b"z"), (b"/", b"z"), (b"fifo", b"ro/z"),
                 (b"ro/in", b"z"), (None, b"z"), (b"file", BAD), (b"todir/", b"z"), (b"file", long_name), (b"loop1", b"loop3"), (b"dangling", b"dangling2")):
        r = call(82, a, b); note("rename %r %r" % (a, short(b)), r)
        if r[0] == 0 and a != b"file" and isinstance(b, bytes): note("  back", call(82, b, a)); 
        if not os.path.isdir("empty"): os.mkdir("empty")
        for flags in (1, 2, 3, 4, 8):
            r = call(316, AT, a, AT, b, flags); note("renameat2 %d %r" % (flags, a), r)
            if r[0] == 0: note("  back", call(316, AT, b, AT, a, flags & 2))
    for n in (b"file", b"dir", b"nope", b"nope/x", b"loop1", b"ro/x", b"ro/in", b"shut/in", b"dangling", b"tofile", b"fifo" , b"dir/", b"", long_name, None, BAD, b"/dev/null", b"/proc/self/fd/%d" % f):
        for flags in (os.O_WRONLY | os.O_NONBLOCK, os.O_RDWR | os.O_NONBLOCK, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK,
                      os.O_RDWR | os.O_DIRECTORY, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK, os.O_TMPFILE | os.O_RDWR, os.O_PATH | os.O_CREAT):
            r = call(257, AT, n, flags, 0o666)
            if r[0] > 2: os.close(r[0]); r = (0, 0)
            note("openat %r %o" % (short(n), flags), r)
            if n == b"nope": undo(b"nope")
            if n == b"dangling": undo(b"nowhere")
            how = ctypes.create_string_buffer(struct.pack("QQQ", flags & ~os.O_PATH | os.O_NONBLOCK, 0o666 if flags & (os.O_CREAT | os.O_TMPFILE & ~os.O_DIRECTORY) else 0, 8))
            r = call(437, AT, n, how, 24)
            if r[0] > 2: os.close(r[0]); r = (0, 0)
            note("openat2 %r %o" % (short(n), flags), r)
            if n == b"nope": undo(b"nope")
            if n == b"dangling": undo(b"nowhere")
    for n in (b"nope/new", b"new", long_path, None, BAD):
        for mode in (stat.S_IFDIR | 0o777, 0o150000, stat.S_IFLNK | 0o777): note("mknod %o %r" % (mode, short(n)), call(133, n, mode, 0))
        note("symlink to nothing %r" % short(n), call(88, b"", n)); note("exchange and noreplace %r" % short(n), call(316, AT, n, AT, n, 3))
        note("utimensat omit %r" % short(n), call(280, AT, n, ctypes.create_string_buffer(struct.pack("4q", 0, 0x3ffffffe, 0, 0x3ffffffe)), 0))
        for size, flags in ((3, 0), (24, 0x8000)): note("file_setattr %d %r" % (size, short(n)), call(469, AT, n, ctypes.create_string_buffer(24), size, flags))
        for old in (b"file", b"nope", b"nope/x", long_path, None):
            if n != b"new": note("linkat %r %r" % (short(old), short(n)), call(265, AT, old, AT, n, 0)); note("renameat2 %r %r" % (short(old), short(n)), call(316, AT, old, AT, n, 0))
    value = ctypes.create_string_buffer(b"v"); args = ctypes.create_string_buffer(struct.pack("QII", ctypes.addressof(value), 1, 0))
    w = os.open("file", os.O_PATH)
    for label, fd in (("f", f), ("path", w), ("closed", 999)):
        for n in (b"", None):
            note("setxattrat %s %r" % (label, n), call(463, fd, n, 0x1000, b"user.at", args, 16)); note("removexattrat", call(466, fd, n, 0x1000, b"user.at")); note("again", call(466, fd, n, 0x1000, b"user.at"))
    os.close(w); note("rmdir /", call(84, b"/"))
    with open("held", "w+") as held:
        held.write("x"); held.flush(); os.unlink("held"); note("links of an unlinked file", (os.fstat(held.fileno()).st_nlink, ""))
    with open("held", "w+") as held:
        held.write("x"); held.flush(); open("over", "w").close(); os.rename("over", "held"); note("links of a replaced file", (os.fstat(held.fileno()).st_nlink, "")); os.unlink("held")
    note("openat2 null", call(437, AT, b"file", None, 24)); note("utime bad", call(132, b"file", 8)); note("umask", (os.umask(0o27), ""))
    for n in ("sock", "file", "ro/sock", "nope/sock", "dir/sock"):
        s = socket.socket(socket.AF_UNIX)
        try: s.bind(n); note("bind " + n, (0, mode_of(n.encode()))); os.unlink(n)
        except OSError as e: note("bind " + n, (-1, e.errno))
        try: s.connect("file")
        except OSError as e: note("connect", (-1, e.errno))
        s.close()
    fd = call(257, AT, b".", os.O_TMPFILE | os.O_RDWR, 0o640)[0]
    note("name", call(265, AT, b"/proc/self/fd/%d" % fd, AT, b"named", 0x400)); note("  mode", (mode_of(b"named"), "")); note("again", call(265, AT, b"/proc/self/fd/%d" % fd, AT, b"named", 0x400)); os.unlink("named"); os.close(fd)
    for parent in ("setgid", "acl", "sticky"):
        for mask in (0, 0o22, 0o77, 0o777):
            os.umask(mask)
            os.mkdir(parent + "/d"); note("mkdir %s %o" % (parent, mask), (mode_of(os.fsencode(parent + "/d")), os.stat(parent + "/d").st_gid == os.stat(parent).st_gid)); os.rmdir(parent + "/d")
            call(133, os.fsencode(parent + "/n"), stat.S_IFREG | 0o666, 0); note("mknod", (mode_of(os.fsencode(parent + "/n")), "")); undo(os.fsencode(parent + "/n"))
            os.close(os.open(parent + "/o", os.O_CREAT | os.O_WRONLY, 0o666)); note("open", (mode_of(os.fsencode(parent + "/o")), "")); os.unlink(parent + "/o")
    os.umask(0o22)
    note("execve nope", call(59, b"nope", None, None)); note("execve dir", call(59, b"dir", None, None)); note("execve file", call(59, b"file", None, None)); note("execve bad", call(59, None, None, None))

if PROBE == "plain": everything()
elif PROBE == "limit":
    import resource, signal
    signal.signal(signal.SIGXFSZ, lambda *_: note("SIGXFSZ", (0, ""))); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    for n in (b"file", b"nope", b"dir", b"ro/in"):
        for size in (5, 900, 1000, 1001, 70000, 10): note("truncate %r %d" % (n, size), call(76, n, size))
    # What this program itself says is longer.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY if resource.getrlimit(resource.RLIMIT_FSIZE)[1] < 0 else resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
elif PROBE == "umask": os.umask(0o077); everything()
elif PROBE == "subdir": os.chdir("dir"); os.chdir(".."); everything()
elif PROBE == "thread":
    import threading
    t = threading.Thread(target=everything); t.start(); t.join()
elif PROBE == "fork":
    pid = os.fork()
    if pid == 0:
        everything(); os.write(1, ("\n".join(out) + "\n").encode("utf-8", "backslashreplace")); os._exit(0)
    os.waitpid(pid, 0)
elif PROBE == "deleted":
    os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
    for n in (b"x", b".", b"..", b"../x9", b""):
        note("mkdir %r" % n, call(83, n, 0o700)); note("creat %r" % n, call(85, n, 0o600)); note("chmod %r" % n, call(90, n, 0o700))
    os.chdir("/proc/self/fd/%d" % x); os.unlink("x9") if os.path.isfile("x9") else os.rmdir("x9")
elif PROBE == "chroot":
    os.chroot("dir"); os.chdir("/")
    for n in (b"/new", b"new2", b"../new3", b"/sub/new4", b"/../new5", b"f/x", b"/n0pe/x"):
        note("mkdir %r" % n, call(83, n, 0o700)); note("creat %r" % n, call(85, n + b".f", 0o600)); note("chmod %r" % n, call(90, n, 0o711)); note("rename", call(82, n, n + b".r"))
elif PROBE == "dropped":
    # setfsuid, then real ids: what the kernel forbids must stay forbidden
    os.chown("ro/in", 0, 0); os.chmod("sticky", 0o777); os.chmod(".", 0o755)
    call(122, 1000)
    for n in (b"new", b"sticky/new", b"dir/new", b"ro/in"):
        note("fs mkdir %r" % n, call(83, n, 0o700)); note("fs chmod %r" % n, call(90, n, 0o711)); note("fs unlink", call(87, n)); note("fs truncate", call(76, n, 0)); note("fs owner", (os.lstat(n).st_uid if os.path.lexists(n) else "-", ""))
    call(122, 0)
    os.setgroups([]); os.setresgid(1000, 1000, 1000); os.setresuid(1000, 1000, 1000)
    for n in (b"new", b"sticky/new2", b"dir/new", b"ro/in", b"shut/in"):
        note("mkdir %r" % n, call(83, n, 0o700)); note("chmod %r" % n, call(90, n, 0o711)); note("unlink", call(87, n)); note("creat", call(85, n + b".c", 0o600)); note("chown", call(92, n, 0, 0)); note("truncate", call(76, n, 0)); note("owner", (os.lstat(n).st_uid if os.path.lexists(n) else "-", ""))
elif PROBE == "nocaps":
    head = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0)); data = ctypes.create_string_buffer(struct.pack("<6I", 0, 0, 0, 0, 0, 0))
    os.chown("dir", 1000, 1000); os.chmod("dir", 0o700); note("capset", call(126, head, data))
    for n in (b"dir/x", b"shut/in", b"ro/x", b"ok"):
        note("mkdir %r" % n, call(83, n, 0o700)); note("chmod %r" % n, call(90, n, 0o711)); note("chown %r" % n, call(92, n, 1000, 1000)); note("device", call(133, n + b".d", stat.S_IFCHR | 0o666, 0x103))
elif PROBE == "userns":
    note("unshare", call(272, 0x10000000 | 0x20000))
    for n in (b"x1", b"dir/x2", b"ro/x3", b"shut/x4", b"/x5"):
        note("mkdir %r" % n, call(83, n, 0o700)); note("chmod %r" % n, call(90, n, 0o711)); note("creat %r" % n, call(85, n + b".c", 0o600)); note("rmdir %r" % n, call(84, n)); note("link", call(86, n + b".c", n + b".l")); note("unlink", call(87, n + b".l"))
elif PROBE == "landlock":
    attr = ctypes.create_string_buffer(struct.pack("Q", 0x1fff)); r = call(444, attr, 8, 0); note("ruleset", (r[0] > 2, r[1]))
    if r[0] > 2:
        dirfd = os.open("dir", os.O_PATH); call(445, r[0], 1, ctypes.create_string_buffer(struct.pack("=Qi", 0x1fff, dirfd)), 0)
        libc.prctl(38, 1, 0, 0, 0); note("restrict", call(446, r[0], 0))
        if os.fork() == 0: note("child mkdir", call(83, b"forbidden", 0o700)); os.write(1, ("\n".join(out[-1:]) + "\n").encode()); os._exit(0)
        os.wait()
        for n in (b"no", b"dir/yes", b"dir/sub/yes2"):
            note("mkdir %r" % n, call(83, n, 0o700)); note("rename", call(82, n, b"dir/moved")); note("creat %r" % n, call(85, n + b".c", 0o600)); note("truncate", call(76, b"file", 3)); note("unlink", call(87, b"hard")); note("symlink", call(88, b"t", n + b".s"))

def dump(top):
    for base, dirs, files in os.walk(top):
        dirs.sort()
        for n in sorted(dirs + files):
            path = os.path.join(base, n); st = os.lstat(path)
            extra = os.readlink(path) if stat.S_ISLNK(st.st_mode) else ""
            try: extra += repr(sorted((k, os.getxattr(path, k, follow_symlinks=False)) for k in os.listxattr(path, follow_symlinks=False)))
            except OSError as e: extra += str(e.errno)
            size = st.st_size if stat.S_ISREG(st.st_mode) else 0
            print(ascii(os.path.relpath(path, top)), oct(st.st_mode), st.st_uid, st.st_gid, st.st_nlink, size, int(st.st_mtime) if st.st_mtime < 1e6 else "now", extra.replace(os.getcwd(), "") if PROBE != "chroot" else "")

if PROBE != "chroot":
    os.chdir("/proc/self/fd/%d" % x) if PROBE not in ("userns", "dropped", "landlock", "nocaps") else None
for line in out: print(line.replace(os.getcwd(), "HERE"))
if PROBE not in ("userns", "dropped", "landlock", "nocaps", "chroot"):
    os.chmod("shut", 0o700)
    dump(".")
