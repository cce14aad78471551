//! The table against everything else that knows call numbers and paths, and the filter against the table.
#![expect(clippy::unwrap_used, reason = "a test")]

use effigy_tracer::filter::{build, build_for};
use effigy_tracer::syscalls::{Abi, Call, Class, Stop, TABLE, WRITING, document};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();

/// strace's %file class (linux/*/syscallent.h, flag TF, 6.1 and what was added to 6.18), by strace's names on x86-64, i386 and
/// aarch64.
const FILE_CLASS: &[&str] = &[
    "access",
    "acct",
    "bind",
    "chdir",
    "chmod",
    "chown",
    "chown32",
    "chroot",
    "connect",
    "creat",
    "execve",
    "execveat",
    "faccessat",
    "faccessat2",
    "fanotify_mark",
    "fchmodat",
    "fchmodat2",
    "fchownat",
    "file_getattr",
    "file_setattr",
    "fspick",
    "fstatat64",
    "futimesat",
    "getcwd",
    "getxattr",
    "getxattrat",
    "inotify_add_watch",
    "lchown",
    "lchown32",
    "lgetxattr",
    "link",
    "linkat",
    "listxattr",
    "listxattrat",
    "llistxattr",
    "lremovexattr",
    "lsetxattr",
    "lstat",
    "lstat64",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "mount",
    "mount_setattr",
    "move_mount",
    "name_to_handle_at",
    "newfstatat",
    "oldlstat",
    "oldstat",
    "open",
    "open_tree",
    "open_tree_attr",
    "openat",
    "openat2",
    "pivot_root",
    "quotactl",
    "readlink",
    "readlinkat",
    "removexattr",
    "removexattrat",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "setxattr",
    "setxattrat",
    "stat",
    "stat64",
    "statfs",
    "statfs64",
    "statx",
    "swapoff",
    "swapon",
    "symlink",
    "symlinkat",
    "truncate",
    "truncate64",
    "umount",
    "umount2",
    "unlink",
    "unlinkat",
    "uselib",
    "utime",
    "utimensat",
    "utimensat_time64",
    "utimes",
];

fn named(name: &str) -> impl Iterator<Item = &'static Call> {
    TABLE.iter().filter(move |call| call.name == name)
}

#[test]
fn every_call_that_takes_a_path_is_classified() {
    let missing: Vec<_> = FILE_CLASS
        .iter()
        .filter(|name| named(name).next().is_none())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_call_of_the_installed_strace_is_classified() {
    // strace shows what its filter for %file holds when it prints it: one `-e` list a call is asked for, so ask call by call.
    let Ok(output) = std::process::Command::new("strace")
        .args(["-e", "trace=%file", "-V"])
        .output()
    else {
        println!("skipped: no strace");
        return;
    };
    assert!(output.status.success());
    // Every name of the list that this strace knows is one it accepts by itself.
    let known = FILE_CLASS
        .iter()
        .filter(|name| {
            let trace = format!("trace={name}");
            std::process::Command::new("strace")
                .args(["-e", &trace, "-V"])
                .output()
                .is_ok_and(|out| out.status.success())
        })
        .count();
    assert!(known > 70, "strace knows only {known} of the names");
}

/// Names of the table that are not the kernel's own, because the kernel has one name for two layouts.
fn kernel_name(call: &Call) -> &'static str {
    match call.name {
        "utimensat_time32" => "utimensat",
        "newfstatat" | "fstatat64" | "oldstat" | "oldlstat" => "",
        name => name.strip_suffix("16").unwrap_or(name),
    }
}

#[test]
fn the_numbers_are_the_kernels() {
    use std::str::FromStr as _;
    let mut checked = 0;
    for call in TABLE {
        let name = kernel_name(call);
        let found = [
            syscalls::x86_64::Sysno::from_str(name)
                .ok()
                .map(|number| number.id().unsigned_abs()),
            syscalls::x86::Sysno::from_str(name)
                .ok()
                .map(|number| number.id().unsigned_abs()),
            syscalls::aarch64::Sysno::from_str(name)
                .ok()
                .map(|number| number.id().unsigned_abs()),
        ];
        for ((mine, theirs), abi) in call.numbers.iter().zip(found).zip(Abi::native_names()) {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                assert_eq!(*mine, theirs, "{} on {abi}", call.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 200, "only {checked} numbers could be compared");
}

trait NativeNames {
    fn native_names() -> [&'static str; 3];
}

impl NativeNames for Abi {
    fn native_names() -> [&'static str; 3] {
        [Abi::X86_64.name(), Abi::X86.name(), Abi::Aarch64.name()]
    }
}

#[test]
fn libseccomp_agrees_where_it_knows_the_call() {
    use libseccomp::{ScmpArch, ScmpSyscall};
    let mut checked = 0;
    for call in TABLE {
        for (abi, arch) in [
            (Abi::X86_64, ScmpArch::X8664),
            (Abi::X86, ScmpArch::X86),
            (Abi::Aarch64, ScmpArch::Aarch64),
        ] {
            let (Some(number), Ok(theirs)) = (
                call.number(abi),
                ScmpSyscall::from_name_by_arch(kernel_name(call), arch),
            ) else {
                continue;
            };
            let theirs = i32::from(theirs);
            // Negative: the call does not exist there, or is part of a multiplexer.
            if theirs >= 0 {
                assert_eq!(
                    i64::from(number),
                    i64::from(theirs),
                    "{} on {}",
                    call.name,
                    abi.name()
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 200, "only {checked} numbers could be compared");
}

#[test]
fn no_number_is_given_twice() {
    for abi in [Abi::X86_64, Abi::X86, Abi::Aarch64] {
        let mut numbers: Vec<_> = TABLE.iter().filter_map(|call| call.number(abi)).collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "{}", abi.name());
    }
}

#[test]
fn paths_are_where_the_kernel_has_them() {
    for call in TABLE {
        for path in call.paths {
            assert!(
                path.path < 6 && path.dir.is_none_or(|dir| dir + 1 == path.path),
                "{}",
                call.name
            );
        }
        if call.name.ends_with("at") && call.class == Class::Perform && call.name != "futimesat" {
            assert!(
                call.paths.iter().all(|path| path.dir.is_some()),
                "{}",
                call.name
            );
        }
    }
}

/// Runs a seccomp program as the kernel would.
fn evaluate(program: &[libc::sock_filter], arch: u32, number: u32, args: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend(number.to_le_bytes());
    data.extend(arch.to_le_bytes());
    data.extend(0u64.to_le_bytes());
    data.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
    let (mut at, mut acc) = (0usize, 0u32);
    loop {
        let insn = program[at];
        at += 1;
        let code = u32::from(insn.code);
        let jump = |met: bool| usize::from(if met { insn.jt } else { insn.jf });
        match code {
            0x20 => {
                acc = u32::from_le_bytes(
                    data[insn.k as usize..insn.k as usize + 4]
                        .try_into()
                        .unwrap(),
                )
            }
            0x06 => return insn.k,
            0x05 => at += insn.k as usize,
            0x15 => at += jump(acc == insn.k),
            0x35 => at += jump(acc >= insn.k),
            0x45 => at += jump(acc & insn.k != 0),
            other => panic!("an instruction seccomp does not know: {other:#x}"),
        }
    }
}

fn expected(abi: Abi, number: u32, args: [u64; 6], reads: bool) -> u32 {
    let Some(call) = TABLE.iter().find(|call| call.number(abi) == Some(number)) else {
        return ALLOW;
    };
    if !call.stops(reads) {
        return ALLOW;
    }
    let low = |arg: u8| u32::try_from(args[usize::from(arg)] & 0xffff_ffff).unwrap();
    let stops = match call.stop_when(reads) {
        Stop::Always => true,
        Stop::AnyBit { arg, mask } => low(arg) & mask != 0,
        Stop::NotNull { arg } => args[usize::from(arg)] != 0,
        Stop::OneOf { arg, values } => values.contains(&low(arg)),
    };
    if stops { NOTIFY } else { ALLOW }
}

#[test]
fn the_filter_decides_as_the_table_says() {
    let interesting: Vec<u64> = (0..16)
        .chain([
            24,
            28,
            47,
            0o100,
            0o1000,
            0o2000,
            0x20_0000,
            0x41_0000,
            0x8_0000,
            u64::from(WRITING),
            1 << 32,
            u64::MAX,
        ])
        .collect();
    for reads in [false, true] {
        for abis in [&[Abi::X86_64, Abi::X86][..], &[Abi::Aarch64][..]] {
            let program = build_for(abis, reads);
            assert!(program.len() < 4096);
            for &abi in abis {
                for number in 0..600 {
                    for &value in &interesting {
                        let args = [value; 6];
                        assert_eq!(
                            evaluate(&program, abi.audit(), number, args),
                            expected(abi, number, args, reads),
                            "{} call {number} with {value:#x}",
                            abi.name()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn only_the_flags_of_an_open_count() {
    let program = build(false);
    let open = |flags: i32, mode: u64| {
        let flags = u64::from(flags.cast_unsigned());
        evaluate(
            &program,
            Abi::X86_64.audit(),
            257,
            [u64::MAX, 0x7fff_0000, flags, mode, u64::MAX, u64::MAX],
        )
    };
    assert_eq!(
        open(
            libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW,
            u64::MAX
        ),
        ALLOW
    );
    assert_eq!(open(libc::O_RDONLY | libc::O_DIRECTORY, 0), ALLOW);
    assert_eq!(open(libc::O_PATH | libc::O_DIRECTORY, 0), ALLOW);
    for flags in [
        libc::O_WRONLY,
        libc::O_RDWR,
        libc::O_CREAT,
        libc::O_TRUNC,
        libc::O_TMPFILE,
    ] {
        assert_eq!(open(flags, 0), NOTIFY, "{flags:#x}");
    }
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let program = build_for(&[Abi::X86_64, Abi::X86], false);
    assert_eq!(
        evaluate(&program, Abi::X86_64.audit(), 0x4000_0000 | 1, [0; 6]),
        ENOSYS,
        "x32"
    );
    assert_eq!(
        evaluate(&program, Abi::Aarch64.audit(), 34, [0; 6]),
        ENOSYS,
        "another machine's calls"
    );
    assert_eq!(
        evaluate(&program, Abi::X86_64.audit(), 425, [8, 0, 0, 0, 0, 0]),
        NOTIFY,
        "io_uring_setup"
    );
}

#[test]
fn the_documentation_is_generated_from_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/SYSCALLS.md");
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == document(),
        "docs/SYSCALLS.md is stale: cargo run -p effigy-tracer --example syscalls > docs/SYSCALLS.md"
    );
}
