//! The rows.

use super::{Call, Class, Decode, PathArg, Reading, Stop, WRITING};
use Class::{Ignore, Observe, Perform, Read, Refuse, State};

/// `path!(1)`: a path relative to the working directory; `path!(0, 1)`: relative to a descriptor.
const fn p(path: u8) -> PathArg {
    PathArg { dir: None, path }
}
const fn at(dir: u8, path: u8) -> PathArg {
    PathArg {
        dir: Some(dir),
        path,
    }
}

const fn n(number: i16) -> Option<u32> {
    if number < 0 {
        None
    } else {
        Some(number.unsigned_abs() as u32)
    }
}

macro_rules! rows {
    ($($name:ident $class:ident [$a:literal $b:literal $c:literal] ($($path:expr),*) $stop:expr, $decode:expr, $remark:literal;)*) => {
        &[$(Call {
            name: stringify!($name),
            class: $class,
            numbers: [n($a), n($b), n($c)],
            paths: &[$($path),*],
            stop: $stop,
            decode: $decode,
            remark: $remark,
        }),*]
    };
}

const ALWAYS: Stop = Stop::Always;
/// prctl(2): PR_CAPBSET_DROP, PR_SET_KEEPCAPS, PR_SET_SECUREBITS, PR_CAP_AMBIENT.
const CREDENTIAL_PRCTLS: Stop = Stop::OneOf {
    arg: 0,
    values: &[8, 24, 28, 47],
};
/// socketcall(2): SYS_BIND, SYS_CONNECT.
const SOCKET_CALLS: Stop = Stop::OneOf {
    arg: 0,
    values: &[2, 3],
};
const fn writing(arg: u8) -> Stop {
    Stop::AnyBit { arg, mask: WRITING }
}

/// Every call the tracer knows: those that stop, and those that take a path and do not.
pub static TABLE: &[Call] = rows! {
    // Names made and removed.
    mkdir Perform [83 39 -1] (p(0)) ALWAYS, Decode::Mkdir, "";
    mkdirat Perform [258 296 34] (at(0, 1)) ALWAYS, Decode::Mkdir, "";
    rmdir Perform [84 40 -1] (p(0)) ALWAYS, Decode::Rmdir, "";
    unlink Perform [87 10 -1] (p(0)) ALWAYS, Decode::Unlink, "";
    unlinkat Perform [263 301 35] (at(0, 1)) ALWAYS, Decode::Unlinkat, "";
    rename Perform [82 38 -1] (p(0), p(1)) ALWAYS, Decode::Rename, "";
    renameat Perform [264 302 38] (at(0, 1), at(2, 3)) ALWAYS, Decode::Rename, "";
    renameat2 Perform [316 353 276] (at(0, 1), at(2, 3)) ALWAYS, Decode::Renameat2, "";
    link Perform [86 9 -1] (p(0), p(1)) ALWAYS, Decode::Link, "";
    linkat Perform [265 303 37] (at(0, 1), at(2, 3)) ALWAYS, Decode::Linkat, "observed when the source is a descriptor";
    symlink Perform [88 83 -1] (p(1)) ALWAYS, Decode::Symlink, "";
    symlinkat Perform [266 304 36] (at(1, 2)) ALWAYS, Decode::Symlink, "";
    mknod Perform [133 14 -1] (p(0)) ALWAYS, Decode::Mknod, "";
    mknodat Perform [259 297 33] (at(0, 1)) ALWAYS, Decode::Mknod, "";

    // Content and attributes changed by name.
    truncate Perform [76 92 45] (p(0)) ALWAYS, Decode::Truncate, "";
    truncate64 Perform [-1 193 -1] (p(0)) ALWAYS, Decode::Truncate64, "";
    chmod Perform [90 15 -1] (p(0)) ALWAYS, Decode::Chmod, "";
    fchmodat Perform [268 306 53] (at(0, 1)) ALWAYS, Decode::Chmod, "";
    fchmodat2 Perform [452 452 452] (at(0, 1)) ALWAYS, Decode::Fchmodat2, "";
    chown Perform [92 -1 -1] (p(0)) ALWAYS, Decode::Chown, "";
    chown16 Perform [-1 182 -1] (p(0)) ALWAYS, Decode::Chown16, "named chown on i386";
    chown32 Perform [-1 212 -1] (p(0)) ALWAYS, Decode::Chown, "";
    lchown Perform [94 -1 -1] (p(0)) ALWAYS, Decode::Lchown, "";
    lchown16 Perform [-1 16 -1] (p(0)) ALWAYS, Decode::Lchown16, "named lchown on i386";
    lchown32 Perform [-1 198 -1] (p(0)) ALWAYS, Decode::Lchown, "";
    fchownat Perform [260 298 54] (at(0, 1)) ALWAYS, Decode::Fchownat, "";
    utime Perform [132 30 -1] (p(0)) ALWAYS, Decode::Utime, "";
    utimes Perform [235 271 -1] (p(0)) ALWAYS, Decode::Utimes, "";
    futimesat Perform [261 299 -1] (at(0, 1)) Stop::NotNull { arg: 1 }, Decode::Utimes, "with a null path it acts on a descriptor";
    utimensat Perform [280 -1 88] (at(0, 1)) Stop::NotNull { arg: 1 }, Decode::Utimensat, "with a null path it acts on a descriptor";
    utimensat_time32 Perform [-1 320 -1] (at(0, 1)) Stop::NotNull { arg: 1 }, Decode::Utimensat32, "named utimensat on i386";
    utimensat_time64 Perform [-1 412 -1] (at(0, 1)) Stop::NotNull { arg: 1 }, Decode::Utimensat, "";
    setxattr Perform [188 226 5] (p(0)) ALWAYS, Decode::Setxattr, "";
    lsetxattr Perform [189 227 6] (p(0)) ALWAYS, Decode::Lsetxattr, "";
    setxattrat Perform [463 463 463] (at(0, 1)) ALWAYS, Decode::Setxattrat, "";
    removexattr Perform [197 235 14] (p(0)) ALWAYS, Decode::Removexattr, "";
    lremovexattr Perform [198 236 15] (p(0)) ALWAYS, Decode::Lremovexattr, "";
    removexattrat Perform [466 466 466] (at(0, 1)) ALWAYS, Decode::Removexattrat, "";
    file_setattr Perform [469 469 469] (at(0, 1)) ALWAYS, Decode::FileSetattr, "";

    // What gives the task a descriptor, a connection or a new program.
    open Observe [2 5 -1] (p(0)) writing(1), Decode::Open, "";
    openat Observe [257 295 56] (at(0, 1)) writing(2), Decode::Open, "";
    creat Observe [85 8 -1] (p(0)) ALWAYS, Decode::Creat, "";
    openat2 Observe [437 437 437] (at(0, 1)) ALWAYS, Decode::Openat2, "its flags are in memory, which a filter cannot read";
    bind Observe [49 361 200] () ALWAYS, Decode::Bind, "the path is in the address";
    connect Observe [42 362 203] () ALWAYS, Decode::Connect, "the path is in the address";
    socketcall Observe [-1 102 -1] () SOCKET_CALLS, Decode::Socketcall, "bind and connect of i386";
    execve Observe [59 11 221] (p(0)) ALWAYS, Decode::Execve, "";
    execveat Observe [322 358 281] (at(0, 1)) ALWAYS, Decode::Execveat, "";

    // What changes the task.
    umask State [95 60 166] () ALWAYS, Decode::Umask, "";
    chroot State [161 61 51] (p(0)) ALWAYS, Decode::Root, "";
    pivot_root State [155 217 41] (p(0), p(1)) ALWAYS, Decode::Root, "";
    mount State [165 21 40] (p(0), p(1)) ALWAYS, Decode::Mount, "";
    umount State [-1 22 -1] (p(0)) ALWAYS, Decode::Mount, "";
    umount2 State [166 52 39] (p(0)) ALWAYS, Decode::Mount, "";
    move_mount State [429 429 429] (at(0, 1), at(2, 3)) ALWAYS, Decode::Mount, "";
    mount_setattr State [442 442 442] (at(0, 1)) ALWAYS, Decode::Mount, "";
    setns State [308 346 268] () ALWAYS, Decode::Namespaces, "";
    unshare State [272 310 97] () ALWAYS, Decode::Namespaces, "";
    landlock_restrict_self State [446 446 446] () ALWAYS, Decode::Landlock, "";
    setuid State [105 23 146] () ALWAYS, Decode::Credentials, "";
    setgid State [106 46 144] () ALWAYS, Decode::Credentials, "";
    setreuid State [113 70 145] () ALWAYS, Decode::Credentials, "";
    setregid State [114 71 143] () ALWAYS, Decode::Credentials, "";
    setresuid State [117 164 147] () ALWAYS, Decode::Credentials, "";
    setresgid State [119 170 149] () ALWAYS, Decode::Credentials, "";
    setgroups State [116 81 159] () ALWAYS, Decode::Credentials, "";
    setfsuid State [122 138 151] () ALWAYS, Decode::Credentials, "";
    setfsgid State [123 139 152] () ALWAYS, Decode::Credentials, "";
    setuid32 State [-1 213 -1] () ALWAYS, Decode::Credentials, "";
    setgid32 State [-1 214 -1] () ALWAYS, Decode::Credentials, "";
    setreuid32 State [-1 203 -1] () ALWAYS, Decode::Credentials, "";
    setregid32 State [-1 204 -1] () ALWAYS, Decode::Credentials, "";
    setgroups32 State [-1 206 -1] () ALWAYS, Decode::Credentials, "";
    setfsuid32 State [-1 215 -1] () ALWAYS, Decode::Credentials, "";
    setfsgid32 State [-1 216 -1] () ALWAYS, Decode::Credentials, "";
    setresuid32 State [-1 208 -1] () ALWAYS, Decode::Credentials, "";
    setresgid32 State [-1 210 -1] () ALWAYS, Decode::Credentials, "";
    capset State [126 185 91] () ALWAYS, Decode::Credentials, "";
    prctl State [157 172 167] () CREDENTIAL_PRCTLS, Decode::Credentials, "only what drops capabilities";

    // What would do all of this without a call.
    io_uring_setup Refuse [425 425 425] () ALWAYS, Decode::IoUring, "answered with ENOSYS, and noted";

    // What only reads.
    stat Read [4 106 -1] (p(0)) ALWAYS, Decode::Read(Reading::Stat), "";
    lstat Read [6 107 -1] (p(0)) ALWAYS, Decode::Read(Reading::Stat), "";
    stat64 Read [-1 195 -1] (p(0)) ALWAYS, Decode::Read(Reading::Stat), "";
    lstat64 Read [-1 196 -1] (p(0)) ALWAYS, Decode::Read(Reading::Stat), "";
    oldstat Read [-1 18 -1] (p(0)) ALWAYS, Decode::Read(Reading::Stat), "";
    oldlstat Read [-1 84 -1] (p(0)) ALWAYS, Decode::Read(Reading::Stat), "";
    newfstatat Read [262 -1 79] (at(0, 1)) ALWAYS, Decode::Read(Reading::Stat), "";
    fstatat64 Read [-1 300 -1] (at(0, 1)) ALWAYS, Decode::Read(Reading::Stat), "";
    statx Read [332 383 291] (at(0, 1)) ALWAYS, Decode::Read(Reading::Stat), "";
    access Read [21 33 -1] (p(0)) ALWAYS, Decode::Read(Reading::Access), "";
    faccessat Read [269 307 48] (at(0, 1)) ALWAYS, Decode::Read(Reading::Access), "";
    faccessat2 Read [439 439 439] (at(0, 1)) ALWAYS, Decode::Read(Reading::Access), "";
    readlink Read [89 85 -1] (p(0)) ALWAYS, Decode::Read(Reading::Readlink), "";
    readlinkat Read [267 305 78] (at(0, 1)) ALWAYS, Decode::Read(Reading::Readlink), "";
    getxattr Read [191 229 8] (p(0)) ALWAYS, Decode::Read(Reading::Getxattr), "";
    lgetxattr Read [192 230 9] (p(0)) ALWAYS, Decode::Read(Reading::Getxattr), "";
    getxattrat Read [464 464 464] (at(0, 1)) ALWAYS, Decode::Read(Reading::Getxattr), "";
    listxattr Read [194 232 11] (p(0)) ALWAYS, Decode::Read(Reading::Getxattr), "";
    llistxattr Read [195 233 12] (p(0)) ALWAYS, Decode::Read(Reading::Getxattr), "";
    listxattrat Read [465 465 465] (at(0, 1)) ALWAYS, Decode::Read(Reading::Getxattr), "";
    chdir Read [80 12 49] (p(0)) ALWAYS, Decode::Read(Reading::Chdir), "";

    // What takes a path and neither changes nor tells anything worth an event.
    statfs Ignore [137 99 43] (p(0)) ALWAYS, Decode::Nothing, "reads the filesystem's figures";
    statfs64 Ignore [-1 268 -1] (p(0)) ALWAYS, Decode::Nothing, "reads the filesystem's figures";
    name_to_handle_at Ignore [303 341 264] (at(0, 1)) ALWAYS, Decode::Nothing, "reads a handle";
    inotify_add_watch Ignore [254 292 27] (p(1)) ALWAYS, Decode::Nothing, "watches";
    fanotify_mark Ignore [301 339 263] (at(3, 4)) ALWAYS, Decode::Nothing, "watches";
    file_getattr Ignore [468 468 468] (at(0, 1)) ALWAYS, Decode::Nothing, "reads attributes";
    open_tree Ignore [428 428 428] (at(0, 1)) ALWAYS, Decode::Nothing, "shows nothing until move_mount";
    open_tree_attr Ignore [467 467 467] (at(0, 1)) ALWAYS, Decode::Nothing, "shows nothing until move_mount";
    fspick Ignore [433 433 433] (at(0, 1)) ALWAYS, Decode::Nothing, "gives a context, changes nothing";
    quotactl Ignore [179 131 60] (p(1)) ALWAYS, Decode::Nothing, "needs power over the real machine, which nobody has inside";
    swapon Ignore [167 87 224] (p(0)) ALWAYS, Decode::Nothing, "needs power over the real machine, which nobody has inside";
    swapoff Ignore [168 115 225] (p(0)) ALWAYS, Decode::Nothing, "needs power over the real machine, which nobody has inside";
    acct Ignore [163 51 89] (p(0)) ALWAYS, Decode::Nothing, "needs power over the real machine, which nobody has inside";
    uselib Ignore [134 86 -1] (p(0)) ALWAYS, Decode::Nothing, "answered with ENOSYS by every current kernel";
    getcwd Ignore [79 183 17] () ALWAYS, Decode::Nothing, "reads";
};
