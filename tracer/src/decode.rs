//! From raw arguments to a request: what the task asks for, read once out of its memory.

mod arguments;

use crate::listener::Notification;
use crate::memory::Fault;
use crate::syscalls::{Abi, Call, Decode, Reading};
use arguments::Reader;
use effigy_journal::ByteString;
use std::ffi::CString;

/// A path argument: what it is relative to, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The descriptor it is relative to; `None` is the working directory.
    pub(crate) dir: Option<i32>,
    pub(crate) path: CString,
    /// What resolving it fails with, since it could not be read: the kernel looks a first path up before it says so of a second.
    pub(crate) fault: Option<i32>,
}

impl Name {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.path.as_bytes()
    }

    pub(crate) fn is_absolute(&self) -> bool {
        self.bytes().first() == Some(&b'/')
    }
}

/// An address given to bind(2) or connect(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Path(Name),
    Abstract(Vec<u8>),
    V4([u8; 4], u16),
    V6([u8; 16], u16),
    /// A family that reaches nothing outside this machine, or nothing at all.
    Other,
}

pub(crate) type Times = Option<[libc::timespec; 2]>;

/// What a task asks for.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Mkdir {
        at: Name,
        mode: u32,
    },
    Rmdir {
        at: Name,
    },
    Unlink {
        at: Name,
    },
    Rename {
        from: Name,
        to: Name,
        flags: u32,
    },
    Link {
        from: Name,
        to: Name,
        flags: i32,
    },
    Symlink {
        target: CString,
        at: Name,
    },
    Mknod {
        at: Name,
        mode: u32,
        dev: u64,
    },
    Truncate {
        at: Name,
        len: i64,
    },
    Chmod {
        at: Name,
        mode: u32,
        flags: i32,
    },
    Chown {
        at: Name,
        uid: u32,
        gid: u32,
        flags: i32,
    },
    Utimens {
        at: Name,
        times: Times,
        flags: i32,
    },
    Setxattr {
        at: Name,
        name: CString,
        value: Vec<u8>,
        flags: i32,
        at_flags: i32,
    },
    Removexattr {
        at: Name,
        name: CString,
        at_flags: i32,
    },
    FileSetattr {
        at: Name,
        at_flags: i32,
    },
    Open {
        at: Name,
        flags: i32,
        mode: u32,
        /// The supervisor could execute it as it is.
        plain: bool,
    },
    Bind {
        address: Address,
    },
    Connect {
        address: Address,
    },
    Exec {
        at: Name,
        argv: Vec<ByteString>,
        flags: i32,
    },
    Umask {
        mask: u32,
    },
    Read {
        at: Name,
        kind: Reading,
    },
}

/// Why there is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecoded {
    /// The kernel would fail the call with this before it looks at anything else.
    Fails(i32),
    /// The kernel would succeed without looking at anything.
    Succeeds,
    /// The task's memory cannot be read.
    Unreadable,
    /// Nothing to record: the task goes on.
    Uninteresting,
}

impl From<Fault> for Undecoded {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Bad => Self::Fails(libc::EFAULT),
            Fault::TooLong => Self::Fails(libc::ENAMETOOLONG),
            Fault::Denied => Self::Unreadable,
        }
    }
}

type Result<T> = std::result::Result<T, Undecoded>;

fn only(flags: i32, allowed: i32) -> Result<i32> {
    if flags & !allowed == 0 {
        Ok(flags)
    } else {
        Err(Undecoded::Fails(libc::EINVAL))
    }
}

const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;
const EMPTY: i32 = libc::AT_EMPTY_PATH;
const NOREPLACE: u32 = libc::RENAME_NOREPLACE;
const EXCHANGE: u32 = libc::RENAME_EXCHANGE;
const WHITEOUT: u32 = libc::RENAME_WHITEOUT;

/// A 16-bit id of the old calls: all ones means "unchanged".
fn id16(id: u32) -> u32 {
    let id = id & 0xffff;
    if id == 0xffff { u32::MAX } else { id }
}

/// Reads what a stopped task asks for. Error numbers come in the order in which the kernel finds them.
pub(crate) fn decode(notification: &Notification, abi: Abi, call: &Call) -> Result<Request> {
    let mut r = Reader {
        notification,
        abi,
        buffer: Vec::new(),
    };
    let path = |r: &mut Reader<'_>, index: usize| match call.paths.get(index) {
        Some(arg) => r.name(*arg),
        None => Err(Undecoded::Uninteresting),
    };
    let second = |r: &mut Reader<'_>| match path(r, 1) {
        Err(Undecoded::Fails(errno)) => Ok(Name {
            dir: None,
            path: CString::default(),
            fault: Some(errno),
        }),
        other => other,
    };
    let both = |r: &mut Reader<'_>| match call.paths {
        [one, other] => match r.two_names(*one, *other) {
            Some(names) => Ok(names),
            None => Ok([path(r, 0)?, second(r)?]),
        },
        _ => Err(Undecoded::Uninteresting),
    };
    // With AT_EMPTY_PATH, a null pointer is as good as an empty path.
    let path_or_nothing = |r: &mut Reader<'_>, at_flags: i32| match call.paths.first() {
        Some(arg) if at_flags & EMPTY != 0 && r.arg(usize::from(arg.path)) == 0 => Ok(Name {
            dir: r.dir(*arg),
            path: CString::default(),
            fault: None,
        }),
        _ => path(r, 0),
    };
    // The first argument after the paths.
    let rest = call
        .paths
        .iter()
        .map(|arg| usize::from(arg.path) + 1)
        .max()
        .unwrap_or(0);
    Ok(match call.decode {
        Decode::Mkdir => Request::Mkdir {
            at: path(&mut r, 0)?,
            mode: r.u32(rest),
        },
        Decode::Rmdir => Request::Rmdir {
            at: path(&mut r, 0)?,
        },
        Decode::Unlink => Request::Unlink {
            at: path(&mut r, 0)?,
        },
        Decode::Unlinkat => {
            if only(r.i32(rest), libc::AT_REMOVEDIR)? == 0 {
                Request::Unlink {
                    at: path(&mut r, 0)?,
                }
            } else {
                Request::Rmdir {
                    at: path(&mut r, 0)?,
                }
            }
        }
        Decode::Rename | Decode::Renameat2 => {
            let flags = if call.decode == Decode::Renameat2 {
                r.u32(4)
            } else {
                0
            };
            if flags & !(NOREPLACE | EXCHANGE | WHITEOUT) != 0
                || (flags & EXCHANGE != 0 && flags & (NOREPLACE | WHITEOUT) != 0)
            {
                return Err(Undecoded::Fails(libc::EINVAL));
            }
            let [from, to] = both(&mut r)?;
            Request::Rename { from, to, flags }
        }
        Decode::Link | Decode::Linkat => {
            let flags = if call.decode == Decode::Linkat {
                r.i32(4)
            } else {
                0
            };
            let flags = only(flags, libc::AT_SYMLINK_FOLLOW | EMPTY)?;
            let [from, to] = both(&mut r)?;
            Request::Link { from, to, flags }
        }
        Decode::Symlink => {
            let target = r.string(r.arg(0))?;
            if target.is_empty() {
                return Err(Undecoded::Fails(libc::ENOENT));
            }
            Request::Symlink {
                target,
                at: path(&mut r, 0)?,
            }
        }
        Decode::Mknod => {
            let mode = r.u32(rest);
            match mode & libc::S_IFMT {
                0
                | libc::S_IFREG
                | libc::S_IFCHR
                | libc::S_IFBLK
                | libc::S_IFIFO
                | libc::S_IFSOCK => {}
                libc::S_IFDIR => return Err(Undecoded::Fails(libc::EPERM)),
                _ => return Err(Undecoded::Fails(libc::EINVAL)),
            }
            Request::Mknod {
                at: path(&mut r, 0)?,
                mode,
                dev: u64::from(r.u32(rest + 1)),
            }
        }
        Decode::Truncate | Decode::Truncate64 => {
            let len = if call.decode == Decode::Truncate64 {
                (u64::from(r.u32(1)) | u64::from(r.u32(2)) << 32).cast_signed()
            } else {
                r.long(rest)
            };
            if len < 0 {
                return Err(Undecoded::Fails(libc::EINVAL));
            }
            Request::Truncate {
                at: path(&mut r, 0)?,
                len,
            }
        }
        Decode::Chmod => Request::Chmod {
            at: path(&mut r, 0)?,
            mode: r.u32(rest),
            flags: 0,
        },
        Decode::Fchmodat2 => {
            let flags = only(r.i32(3), NOFOLLOW | EMPTY)?;
            Request::Chmod {
                at: path(&mut r, 0)?,
                mode: r.u32(2),
                flags,
            }
        }
        Decode::Chown | Decode::Lchown => {
            let flags = if call.decode == Decode::Lchown {
                NOFOLLOW
            } else {
                0
            };
            Request::Chown {
                at: path(&mut r, 0)?,
                uid: r.u32(1),
                gid: r.u32(2),
                flags,
            }
        }
        Decode::Chown16 | Decode::Lchown16 => {
            let flags = if call.decode == Decode::Lchown16 {
                NOFOLLOW
            } else {
                0
            };
            Request::Chown {
                at: path(&mut r, 0)?,
                uid: id16(r.u32(1)),
                gid: id16(r.u32(2)),
                flags,
            }
        }
        Decode::Fchownat => {
            let flags = only(r.i32(4), NOFOLLOW | EMPTY)?;
            Request::Chown {
                at: path(&mut r, 0)?,
                uid: r.u32(2),
                gid: r.u32(3),
                flags,
            }
        }
        Decode::Utime => {
            let times = match r.arg(1) {
                0 => None,
                address => {
                    let width = abi.word() as u64;
                    let second = |r: &Reader<'_>, at: u64| -> Result<i64> {
                        let word = r.word(at)?;
                        #[expect(
                            clippy::cast_possible_truncation,
                            reason = "a 32-bit time on i386"
                        )]
                        Ok(if width == 4 {
                            i64::from((word as u32).cast_signed())
                        } else {
                            word.cast_signed()
                        })
                    };
                    let time = |tv_sec| libc::timespec { tv_sec, tv_nsec: 0 };
                    Some([
                        time(second(&r, address)?),
                        time(second(&r, address.wrapping_add(width))?),
                    ])
                }
            };
            Request::Utimens {
                at: path(&mut r, 0)?,
                times,
                flags: 0,
            }
        }
        Decode::Utimes => {
            let times = r.times(r.arg(rest), abi.word(), 1000, false)?;
            Request::Utimens {
                at: path(&mut r, 0)?,
                times,
                flags: 0,
            }
        }
        Decode::Utimensat | Decode::Utimensat32 => {
            let width = if call.decode == Decode::Utimensat32 {
                4
            } else {
                8
            };
            let times = r.times(r.arg(2), width, 1, true)?;
            if times.is_some_and(|times| times.iter().all(|time| time.tv_nsec == libc::UTIME_OMIT))
            {
                return Err(Undecoded::Succeeds);
            }
            let flags = only(r.i32(3), NOFOLLOW | EMPTY)?;
            Request::Utimens {
                at: path(&mut r, 0)?,
                times,
                flags,
            }
        }
        Decode::Setxattr | Decode::Lsetxattr => {
            let (name, value) = r.xattr(r.arg(1), r.arg(2), r.arg(3), r.u32(4))?;
            let at_flags = if call.decode == Decode::Lsetxattr {
                NOFOLLOW
            } else {
                0
            };
            Request::Setxattr {
                at: path(&mut r, 0)?,
                name,
                value,
                flags: r.i32(4),
                at_flags,
            }
        }
        Decode::Setxattrat => {
            let at_flags = only(r.i32(2), NOFOLLOW | EMPTY)?;
            // struct xattr_args: value pointer, size, flags.
            if r.arg(5) < 16 {
                return Err(Undecoded::Fails(libc::EINVAL));
            }
            let args: [u8; 16] = r.exact(r.arg(4))?;
            let [
                v0,
                v1,
                v2,
                v3,
                v4,
                v5,
                v6,
                v7,
                s0,
                s1,
                s2,
                s3,
                f0,
                f1,
                f2,
                f3,
            ] = args;
            let value = u64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]);
            let size = u64::from(u32::from_le_bytes([s0, s1, s2, s3]));
            let flags = u32::from_le_bytes([f0, f1, f2, f3]);
            let (name, value) = r.xattr(r.arg(3), value, size, flags)?;
            Request::Setxattr {
                at: path_or_nothing(&mut r, at_flags)?,
                name,
                value,
                flags: flags.cast_signed(),
                at_flags,
            }
        }
        Decode::Removexattr | Decode::Lremovexattr => {
            let at_flags = if call.decode == Decode::Lremovexattr {
                NOFOLLOW
            } else {
                0
            };
            let name = r.xattr_name(r.arg(1))?;
            Request::Removexattr {
                at: path(&mut r, 0)?,
                name,
                at_flags,
            }
        }
        Decode::Removexattrat => {
            let at_flags = only(r.i32(2), NOFOLLOW | EMPTY)?;
            let name = r.xattr_name(r.arg(3))?;
            Request::Removexattr {
                at: path_or_nothing(&mut r, at_flags)?,
                name,
                at_flags,
            }
        }
        // The task executes it whatever it is given, so that nobody needs to know what fails first.
        Decode::FileSetattr => {
            let at_flags = r.i32(4);
            Request::FileSetattr {
                at: path_or_nothing(&mut r, at_flags).map_err(|_| Undecoded::Uninteresting)?,
                at_flags,
            }
        }
        Decode::Open => Request::Open {
            at: path(&mut r, 0)?,
            flags: r.i32(rest),
            mode: r.u32(rest + 1),
            plain: abi.word() == 8,
        },
        Decode::Creat => Request::Open {
            at: path(&mut r, 0)?,
            flags: libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
            mode: r.u32(1),
            plain: abi.word() == 8,
        },
        Decode::Openat2 => {
            let how: [u8; 24] = r.exact(r.arg(2))?;
            let field = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&how[at..at + 8]);
                u64::from_le_bytes(bytes)
            };
            #[expect(
                clippy::cast_possible_truncation,
                reason = "flags beyond 32 bits are refused by the kernel"
            )]
            Request::Open {
                at: path(&mut r, 0)?,
                flags: field(0) as i32,
                mode: field(8) as u32,
                plain: false,
            }
        }
        Decode::Bind => Request::Bind {
            address: r.address(r.arg(1), r.arg(2))?,
        },
        Decode::Connect => Request::Connect {
            address: r.address(r.arg(1), r.arg(2))?,
        },
        Decode::Socketcall => {
            let words: [u8; 12] = r.exact(r.arg(1))?;
            let word = |at: usize| {
                u64::from(u32::from_le_bytes([
                    words[at],
                    words[at + 1],
                    words[at + 2],
                    words[at + 3],
                ]))
            };
            let address = r.address(word(4), word(8))?;
            if r.u32(0) == 2 {
                Request::Bind { address }
            } else {
                Request::Connect { address }
            }
        }
        Decode::Execve => {
            let argv = r.argv(r.arg(1));
            Request::Exec {
                at: path(&mut r, 0)?,
                argv,
                flags: 0,
            }
        }
        Decode::Execveat => {
            let argv = r.argv(r.arg(2));
            Request::Exec {
                at: path(&mut r, 0)?,
                argv,
                flags: r.i32(4),
            }
        }
        Decode::Umask => Request::Umask {
            mask: r.u32(0) & 0o777,
        },
        Decode::Read(kind) => Request::Read {
            at: path(&mut r, 0)?,
            kind,
        },
        Decode::Root
        | Decode::Mount
        | Decode::Namespaces
        | Decode::Landlock
        | Decode::Credentials
        | Decode::IoUring
        | Decode::Nothing => return Err(Undecoded::Uninteresting),
    })
}
