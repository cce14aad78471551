//! From raw arguments to a request: what the task asks for, read once out of its memory.

use crate::listener::Notification;
use crate::memory::{self, Fault};
use crate::syscalls::{Abi, Call, Decode, PathArg, Reading};
use effigy_journal::ByteString;
use std::ffi::CString;

/// A path argument: what it is relative to, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The descriptor it is relative to; `None` is the working directory.
    pub(crate) dir: Option<i32>,
    pub(crate) path: CString,
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

/// The number of arguments and bytes of argv that are kept.
const ARGV_COUNT: usize = 512;
const ARGV_BYTES: usize = 32 << 10;

struct Reader<'n> {
    notification: &'n Notification,
    abi: Abi,
    buffer: Vec<u8>,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the kernel, too, takes the low half of these arguments"
)]
impl Reader<'_> {
    fn arg(&self, index: usize) -> u64 {
        self.notification.args[index]
    }

    fn u32(&self, index: usize) -> u32 {
        self.arg(index) as u32
    }

    fn i32(&self, index: usize) -> i32 {
        self.u32(index).cast_signed()
    }

    fn long(&self, index: usize) -> i64 {
        if self.abi.word() == 4 {
            i64::from(self.i32(index))
        } else {
            self.arg(index).cast_signed()
        }
    }

    fn tid(&self) -> u32 {
        self.notification.tid
    }

    fn string(&mut self, address: u64) -> Result<CString> {
        memory::string(self.tid(), address, &mut self.buffer)?;
        CString::new(self.buffer.as_slice()).map_err(|_| Undecoded::Fails(libc::EFAULT))
    }

    fn name(&mut self, arg: PathArg) -> Result<Name> {
        let dir = arg
            .dir
            .map(|dir| self.i32(usize::from(dir)))
            .filter(|dir| *dir != libc::AT_FDCWD);
        let path = self.string(self.arg(usize::from(arg.path)))?;
        Ok(Name { dir, path })
    }

    fn exact<const N: usize>(&self, address: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        memory::read_exact(self.tid(), address, &mut bytes)?;
        Ok(bytes)
    }

    fn word(&self, address: u64) -> Result<u64> {
        if self.abi.word() == 4 {
            Ok(u64::from(u32::from_le_bytes(self.exact::<4>(address)?)))
        } else {
            Ok(u64::from_le_bytes(self.exact::<8>(address)?))
        }
    }

    /// Two times of `wide` bytes a number; `scale` is what one unit of the second number is in ns.
    fn times(&self, address: u64, width: usize, scale: i64, omit: bool) -> Result<Times> {
        if address == 0 {
            return Ok(None);
        }
        let mut bytes = [0u8; 32];
        memory::read_exact(self.tid(), address, &mut bytes[..4 * width])?;
        let number = |index: usize| {
            let at = &bytes[index * width..(index + 1) * width];
            if width == 4 {
                i64::from(i32::from_le_bytes([at[0], at[1], at[2], at[3]]))
            } else {
                i64::from_le_bytes([at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]])
            }
        };
        let time = |index: usize| {
            let sub = number(2 * index + 1);
            if !omit && !(0..1_000_000).contains(&sub) {
                return Err(Undecoded::Fails(libc::EINVAL));
            }
            Ok(libc::timespec {
                tv_sec: number(2 * index),
                tv_nsec: if scale == 1 { sub } else { sub * scale },
            })
        };
        Ok(Some([time(0)?, time(1)?]))
    }

    /// The name and value of an attribute that is about to be set.
    fn xattr(
        &mut self,
        name: u64,
        value: u64,
        size: u64,
        flags: u32,
    ) -> Result<(CString, Vec<u8>)> {
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE).cast_unsigned() != 0 {
            return Err(Undecoded::Fails(libc::EINVAL));
        }
        let name = self.xattr_name(name)?;
        if size > 65536 {
            return Err(Undecoded::Fails(libc::E2BIG));
        }
        let mut bytes = vec![0; size as usize];
        memory::read_exact(self.tid(), value, &mut bytes)?;
        Ok((name, bytes))
    }

    fn xattr_name(&mut self, address: u64) -> Result<CString> {
        match memory::string_within(self.tid(), address, 256, &mut self.buffer) {
            Ok(()) if self.buffer.is_empty() => Err(Undecoded::Fails(libc::ERANGE)),
            Ok(()) => {
                CString::new(self.buffer.as_slice()).map_err(|_| Undecoded::Fails(libc::ERANGE))
            }
            Err(Fault::TooLong) => Err(Undecoded::Fails(libc::ERANGE)),
            Err(fault) => Err(fault.into()),
        }
    }

    fn argv(&mut self, address: u64) -> Vec<ByteString> {
        let mut argv = Vec::new();
        let (mut at, mut room) = (address, ARGV_BYTES);
        while argv.len() < ARGV_COUNT && room > 0 && address != 0 {
            let Ok(pointer) = self.word(at) else { break };
            if pointer == 0 {
                break;
            }
            match memory::string_within(self.tid(), pointer, room, &mut self.buffer) {
                Ok(()) | Err(Fault::TooLong) => {}
                Err(_) => break,
            }
            room = room.saturating_sub(self.buffer.len() + 1);
            argv.push(ByteString::from(self.buffer.as_slice()));
            at = at.wrapping_add(self.abi.word() as u64);
        }
        argv
    }

    fn address(&mut self, address: u64, len: u64) -> Result<Address> {
        let Ok(len @ 2..=128) = usize::try_from(len) else {
            return Err(Undecoded::Uninteresting);
        };
        let mut bytes = [0u8; 128];
        memory::read_exact(self.tid(), address, &mut bytes[..len])?;
        let bytes = &bytes[..len];
        let port = || u16::from_be_bytes([bytes[2], bytes[3]]);
        Ok(match i32::from(u16::from_le_bytes([bytes[0], bytes[1]])) {
            libc::AF_UNIX if len > 2 && bytes[2] == 0 => Address::Abstract(bytes[3..].to_vec()),
            libc::AF_UNIX if len > 2 => {
                let path = bytes[2..]
                    .split(|byte| *byte == 0)
                    .next()
                    .unwrap_or_default();
                let path = CString::new(path).map_err(|_| Undecoded::Uninteresting)?;
                Address::Path(Name { dir: None, path })
            }
            libc::AF_INET if len >= 8 => {
                Address::V4([bytes[4], bytes[5], bytes[6], bytes[7]], port())
            }
            libc::AF_INET6 if len >= 24 => {
                let mut ip = [0; 16];
                ip.copy_from_slice(&bytes[8..24]);
                Address::V6(ip, port())
            }
            _ => Address::Other,
        })
    }
}

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
            Request::Rename {
                from: path(&mut r, 0)?,
                to: path(&mut r, 1)?,
                flags,
            }
        }
        Decode::Link | Decode::Linkat => {
            let flags = if call.decode == Decode::Linkat {
                r.i32(4)
            } else {
                0
            };
            let flags = only(flags, libc::AT_SYMLINK_FOLLOW | EMPTY)?;
            Request::Link {
                from: path(&mut r, 0)?,
                to: path(&mut r, 1)?,
                flags,
            }
        }
        Decode::Symlink => {
            let target = r.string(r.arg(0))?;
            Request::Symlink {
                target,
                at: path(&mut r, 0)?,
            }
        }
        Decode::Mknod => Request::Mknod {
            at: path(&mut r, 0)?,
            mode: r.u32(rest),
            dev: u64::from(r.u32(rest + 1)),
        },
        Decode::Truncate => {
            let len = r.long(rest);
            if len < 0 {
                return Err(Undecoded::Fails(libc::EINVAL));
            }
            Request::Truncate {
                at: path(&mut r, 0)?,
                len,
            }
        }
        Decode::Truncate64 => {
            let len = (u64::from(r.u32(1)) | u64::from(r.u32(2)) << 32).cast_signed();
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
                at: path(&mut r, 0)?,
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
                at: path(&mut r, 0)?,
                name,
                at_flags,
            }
        }
        Decode::FileSetattr => Request::FileSetattr {
            at: path(&mut r, 0)?,
            at_flags: r.i32(4),
        },
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
