//! The table of traced calls: one row a call, with its number on each ABI, what the supervisor does with it, where its paths
//! are, and how it is decoded. The filter ([`crate::filter`]), the decoder, docs/SYSCALLS.md and the coverage test all read
//! this table and nothing else.

mod table;

pub use table::TABLE;

use std::fmt::Write as _;

/// A set of call numbers and a layout of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abi {
    /// 64-bit x86.
    X86_64,
    /// 32-bit x86, also through `int 0x80` from a 64-bit program.
    X86,
    /// 64-bit ARM.
    Aarch64,
}

impl Abi {
    /// The AUDIT_ARCH number of linux/audit.h that seccomp reports.
    #[must_use]
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::X86 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The ABI with this AUDIT_ARCH number.
    #[must_use]
    pub const fn of_audit(arch: u32) -> Option<Self> {
        match arch {
            0xc000_003e => Some(Self::X86_64),
            0x4000_0003 => Some(Self::X86),
            0xc000_00b7 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The ABIs a program on this machine can use.
    #[must_use]
    pub const fn native() -> &'static [Self] {
        if cfg!(target_arch = "aarch64") {
            &[Self::Aarch64]
        } else {
            &[Self::X86_64, Self::X86]
        }
    }

    /// Bytes of a pointer and a long.
    #[must_use]
    pub const fn word(self) -> usize {
        match self {
            Self::X86 => 4,
            Self::X86_64 | Self::Aarch64 => 8,
        }
    }

    /// Its name in the documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86-64",
            Self::X86 => "i386",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// What the supervisor does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The supervisor executes it and answers with the exact result.
    Perform,
    /// The task executes it; the result is confirmed later.
    Observe,
    /// The task executes it; what it changes about the task is remembered.
    State,
    /// It is answered with an error.
    Refuse,
    /// It is observed when reads are recorded, and never stops otherwise.
    Read,
    /// It never stops. Listed because it takes a path, with the reason in the documentation.
    Ignore,
}

impl Class {
    /// Its name in the documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Perform => "perform",
            Self::Observe => "observe",
            Self::State => "state",
            Self::Refuse => "refuse",
            Self::Read => "read",
            Self::Ignore => "ignore",
        }
    }
}

/// When a call stops: tested by the filter in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Always.
    Always,
    /// When the argument has any of these bits.
    AnyBit {
        /// Number of the argument, from 0.
        arg: u8,
        /// The bits.
        mask: u32,
    },
    /// When the argument, a pointer, is not null.
    NotNull {
        /// Number of the argument, from 0.
        arg: u8,
    },
    /// When the low half of the argument is one of these.
    OneOf {
        /// Number of the argument, from 0.
        arg: u8,
        /// The values.
        values: &'static [u32],
    },
}

/// Where a path argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathArg {
    /// Number of the argument that holds the directory descriptor, where there is one.
    pub dir: Option<u8>,
    /// Number of the argument that points to the path.
    pub path: u8,
}

/// The flags with which an open may change something.
pub const WRITING: u32 = (libc::O_WRONLY
    | libc::O_RDWR
    | libc::O_CREAT
    | libc::O_TRUNC
    | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

/// How the arguments are read: one variant per layout.
#[expect(missing_docs, reason = "each is the call of its name")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decode {
    Mkdir,
    Rmdir,
    Unlink,
    Unlinkat,
    Rename,
    Renameat2,
    Link,
    Linkat,
    Symlink,
    Mknod,
    Truncate,
    Truncate64,
    Chmod,
    Fchmodat2,
    Chown,
    Chown16,
    Lchown,
    Lchown16,
    Fchownat,
    Utime,
    Utimes,
    Utimensat,
    Utimensat32,
    Setxattr,
    Lsetxattr,
    Setxattrat,
    Removexattr,
    Lremovexattr,
    Removexattrat,
    FileSetattr,
    Open,
    Creat,
    Openat2,
    Bind,
    Connect,
    Socketcall,
    Execve,
    Execveat,
    Umask,
    Root,
    Mount,
    Namespaces,
    Landlock,
    Credentials,
    IoUring,
    Read(Reading),
    Nothing,
}

/// The kind of a reading call.
#[expect(missing_docs, reason = "each is the call of its name")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    Open,
    Stat,
    Access,
    Readlink,
    Getxattr,
    Chdir,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its name, as strace says it.
    pub name: &'static str,
    /// What is done with it.
    pub class: Class,
    /// Its number on x86-64, i386 and aarch64.
    pub numbers: [Option<u32>; 3],
    /// Where its paths are.
    pub paths: &'static [PathArg],
    /// When it stops.
    pub stop: Stop,
    /// How its arguments are read.
    pub decode: Decode,
    /// Why it is classified so, where that is not plain.
    pub remark: &'static str,
}

impl Call {
    /// Its number on an ABI, where it exists there.
    #[must_use]
    pub const fn number(&self, abi: Abi) -> Option<u32> {
        self.numbers[match abi {
            Abi::X86_64 => 0,
            Abi::X86 => 1,
            Abi::Aarch64 => 2,
        }]
    }

    /// Whether the filter makes it stop.
    #[must_use]
    pub fn stops(&self, reads: bool) -> bool {
        match self.class {
            Class::Ignore => false,
            Class::Read => reads,
            _ => true,
        }
    }

    /// When it stops, given that reads are recorded or not: with reads, every open does.
    #[must_use]
    pub fn stop_when(&self, reads: bool) -> Stop {
        if reads && self.decode == Decode::Open {
            Stop::Always
        } else {
            self.stop
        }
    }
}

/// The row of a call, looked up by number.
#[derive(Clone, Debug)]
pub struct Lookup {
    abis: Vec<(Abi, Vec<Option<&'static Call>>)>,
}

impl Lookup {
    /// An index over the calls that stop.
    #[must_use]
    pub fn new(reads: bool) -> Self {
        let abis = Abi::native()
            .iter()
            .map(|&abi| {
                let mut rows: Vec<Option<&'static Call>> = Vec::new();
                for call in TABLE.iter().filter(|call| call.stops(reads)) {
                    let Some(number) = call.number(abi) else {
                        continue;
                    };
                    let at = number as usize;
                    if rows.len() <= at {
                        rows.resize(at + 1, None);
                    }
                    rows[at] = Some(call);
                }
                (abi, rows)
            })
            .collect();
        Self { abis }
    }

    /// The row of call `number` on the ABI with this AUDIT_ARCH.
    #[must_use]
    pub fn find(&self, arch: u32, number: u32) -> Option<(Abi, &'static Call)> {
        let (abi, rows) = self.abis.iter().find(|(abi, _)| abi.audit() == arch)?;
        Some((*abi, (*rows.get(number as usize)?)?))
    }
}

/// The text of docs/SYSCALLS.md.
#[must_use]
pub fn document() -> String {
    let mut out = String::from(
        "# Traced calls\n\n\
         Generated from `tracer/src/syscalls/table.rs` by `cargo run -p effigy-tracer --example syscalls > docs/SYSCALLS.md`; a test\n\
         compares the two. Classes: *perform*: the supervisor executes the call and answers with the exact result. *observe*: the\n\
         task executes it, the result is confirmed afterwards. *state*: the task executes it, and what it changes about the task is\n\
         remembered. *refuse*: answered with an error. *read*: stops only with `--reads`. *ignore*: never stops.\n\n\
         Paths are given as (directory descriptor argument, path argument), counted from 0. x32 calls are answered with ENOSYS.\n\n\
         | call | class | x86-64 | i386 | aarch64 | paths | stops | remark |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for call in TABLE {
        let number = |n: Option<u32>| n.map_or_else(|| "–".to_owned(), |n| n.to_string());
        let paths: Vec<String> = call
            .paths
            .iter()
            .map(|p| {
                p.dir
                    .map_or_else(|| p.path.to_string(), |dir| format!("({dir}, {})", p.path))
            })
            .collect();
        let stops = match call.stop {
            _ if call.class == Class::Ignore => "never".to_owned(),
            _ if call.class == Class::Read => "with `--reads`".to_owned(),
            Stop::Always => "always".to_owned(),
            Stop::AnyBit { arg, mask } => format!("argument {arg} has a bit of {mask:#x}"),
            Stop::NotNull { arg } => format!("argument {arg} is not null"),
            Stop::OneOf { arg, values } => format!("argument {arg} is one of {values:?}"),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            call.name,
            call.class.name(),
            number(call.numbers[0]),
            number(call.numbers[1]),
            number(call.numbers[2]),
            paths.join(" "),
            stops,
            call.remark
        );
    }
    out
}
