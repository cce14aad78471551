# How a system call is made without a library in between, and what it answered. Both ABIs of an x86-64 machine.
import ctypes, errno, mmap, os, struct

X64 = {
    "open": 2, "stat": 4, "lstat": 6, "access": 21, "connect": 42, "bind": 49, "execve": 59, "truncate": 76, "chdir": 80, "rename": 82,
    "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "readlink": 89, "chmod": 90, "chown": 92, "lchown": 94,
    "setfsuid": 122, "capset": 126, "utime": 132, "mknod": 133, "chroot": 161, "mount": 165, "umount2": 166, "pivot_root": 155,
    "setxattr": 188, "lsetxattr": 189, "getxattr": 191, "lgetxattr": 192, "listxattr": 194, "llistxattr": 195, "removexattr": 197,
    "lremovexattr": 198, "utimes": 235, "openat": 257, "mkdirat": 258, "mknodat": 259, "fchownat": 260, "futimesat": 261, "newfstatat": 262,
    "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "readlinkat": 267, "fchmodat": 268, "faccessat": 269, "unshare": 272,
    "utimensat": 280, "renameat2": 316, "execveat": 322, "statx": 332, "io_uring_setup": 425, "openat2": 437, "faccessat2": 439,
    "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446, "fchmodat2": 452, "setxattrat": 463,
    "getxattrat": 464, "listxattrat": 465, "removexattrat": 466, "file_setattr": 469,
}
I386 = {
    "open": 5, "creat": 8, "link": 9, "unlink": 10, "execve": 11, "chdir": 12, "mknod": 14, "chmod": 15, "lchown16": 16, "mount": 21,
    "umount": 22, "utime": 30, "access": 33, "rename": 38, "mkdir": 39, "rmdir": 40, "umount2": 52, "chroot": 61, "symlink": 83,
    "readlink": 85, "truncate": 92, "chown16": 182, "truncate64": 193, "lchown": 198, "chown": 212, "pivot_root": 217, "setxattr": 226,
    "lsetxattr": 227, "getxattr": 229, "lgetxattr": 230, "listxattr": 232, "llistxattr": 233, "removexattr": 235, "lremovexattr": 236,
    "utimes": 271, "openat": 295, "mkdirat": 296, "mknodat": 297, "fchownat": 298, "futimesat": 299, "newfstatat": 300, "unlinkat": 301,
    "renameat": 302, "linkat": 303, "symlinkat": 304, "readlinkat": 305, "fchmodat": 306, "faccessat": 307, "utimensat_time32": 320,
    "renameat2": 353, "execveat": 358, "bind": 361, "connect": 362, "statx": 383, "utimensat": 412, "io_uring_setup": 425, "openat2": 437,
    "faccessat2": 439, "fchmodat2": 452, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465, "removexattrat": 466, "file_setattr": 469,
}

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.syscall.restype = ctypes.c_long
SIZE = 1 << 18
# Below 4 GiB, so that both ABIs can name it.
ARENA = libc.mmap(None, SIZE, 3, 0x22 | 0x40, -1, 0)
CODE = libc.mmap(None, 4096, 7, 0x22 | 0x40, -1, 0)
# int 0x80 with the registers from a structure: number, five arguments, the sixth.
MACHINE_CODE = bytes.fromhex("53 55 8b07 8b5f04 8b4f08 8b570c 8b7710 8b6f18 8b7f14 cd80 4863c0 5d 5b c3")
BAD = 8
AT = -100


class Buffer(bytes):
    """An argument that is no string."""


class Nested(list):
    """An argument that is an array of strings, ended by a null pointer."""


class Caller:
    """Makes calls in one ABI."""

    def __init__(self, abi):
        self.wide = abi == "x86-64"
        self.numbers = X64 if self.wide else I386
        if not self.wide:
            ctypes.memmove(CODE, MACHINE_CODE, len(MACHINE_CODE))
            self.gate = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(CODE)

    def has(self, name):
        return name in self.numbers

    def long(self, *values):
        """Values of the ABI's `long`."""
        return Buffer(struct.pack("<%d%s" % (len(values), "q" if self.wide else "i"), *values))

    def put(self, data):
        at = ARENA + self.used
        self.used += (len(data) + 16) & ~15
        assert self.used <= SIZE - 4096
        ctypes.memmove(at, data, len(data))
        return at

    def aside(self, data):
        """Where data lies that the next call's arguments point to, without being arguments."""
        ctypes.memmove(ARENA + SIZE - 4096, data, len(data))
        return ARENA + SIZE - 4096

    def place(self, argument):
        if argument is None:
            return 0
        if isinstance(argument, Nested):
            return self.put(self.long(*[self.put(bytes(word) + b"\0") for word in argument], 0))
        if isinstance(argument, Buffer):
            return self.put(argument)
        if isinstance(argument, bytes):
            return self.put(argument + b"\0")
        return argument

    def __call__(self, name, *arguments):
        """The result, or minus the error number."""
        self.used = 0
        words = [self.place(argument) for argument in arguments]
        if self.wide:
            ctypes.set_errno(0)
            result = libc.syscall(*[ctypes.c_long(word) for word in [self.numbers[name]] + words])
            return -ctypes.get_errno() if result == -1 else result
        words = ([self.numbers[name]] + words + [0] * 6)[:7]
        registers = ctypes.create_string_buffer(struct.pack("<7I", *[word & 0xFFFFFFFF for word in words]))
        return self.gate(ctypes.addressof(registers))


def said(result):
    return errno.errorcode.get(-result, str(result)) if result < 0 else str(result)
