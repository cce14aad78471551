//! Reading arguments: numbers out of registers, everything else out of the task's memory.

use super::{Address, Name, Result, Times, Undecoded};
use crate::listener::Notification;
use crate::memory::{self, Fault, Page};
use crate::syscalls::{Abi, PathArg};
use effigy_journal::ByteString;
use std::ffi::CString;

/// The number of arguments and bytes of argv that are kept.
const ARGV_COUNT: usize = 512;
const ARGV_BYTES: usize = 32 << 10;

/// Reads the arguments of one call.
pub(super) struct Reader<'n> {
    pub(super) notification: &'n Notification,
    pub(super) abi: Abi,
    pub(super) buffer: Vec<u8>,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the kernel, too, takes the low half of these arguments"
)]
impl Reader<'_> {
    pub(super) fn arg(&self, index: usize) -> u64 {
        self.notification.args[index]
    }

    pub(super) fn u32(&self, index: usize) -> u32 {
        self.arg(index) as u32
    }

    pub(super) fn i32(&self, index: usize) -> i32 {
        self.u32(index).cast_signed()
    }

    pub(super) fn long(&self, index: usize) -> i64 {
        if self.abi.word() == 4 {
            i64::from(self.i32(index))
        } else {
            self.arg(index).cast_signed()
        }
    }

    pub(super) fn tid(&self) -> u32 {
        self.notification.tid
    }

    pub(super) fn string(&mut self, address: u64) -> Result<CString> {
        memory::string(self.tid(), address, &mut self.buffer)?;
        CString::new(self.buffer.as_slice()).map_err(|_| Undecoded::Fails(libc::EFAULT))
    }

    pub(super) fn name(&mut self, arg: PathArg) -> Result<Name> {
        let path = self.string(self.arg(usize::from(arg.path)))?;
        Ok(Name {
            dir: self.dir(arg),
            path,
            fault: None,
        })
    }

    /// Two short paths with one read; `None` when it takes more to tell what they are.
    pub(super) fn two_names(&self, one: PathArg, other: PathArg) -> Option<[Name; 2]> {
        let address = |arg: PathArg| self.arg(usize::from(arg.path));
        let [a, b] = memory::two_strings(self.tid(), [address(one), address(other)])?;
        let name = |arg, path| {
            Some(Name {
                dir: self.dir(arg),
                path: CString::new(path).ok()?,
                fault: None,
            })
        };
        Some([name(one, a)?, name(other, b)?])
    }

    /// The descriptor a path is relative to.
    pub(super) fn dir(&self, arg: PathArg) -> Option<i32> {
        arg.dir
            .map(|dir| self.i32(usize::from(dir)))
            .filter(|dir| *dir != libc::AT_FDCWD)
    }

    pub(super) fn exact<const N: usize>(&self, address: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        memory::read_exact(self.tid(), address, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn word(&self, address: u64) -> Result<u64> {
        if self.abi.word() == 4 {
            Ok(u64::from(u32::from_le_bytes(self.exact::<4>(address)?)))
        } else {
            Ok(u64::from_le_bytes(self.exact::<8>(address)?))
        }
    }

    /// Two times of `wide` bytes a number; `scale` is what one unit of the second number is in ns.
    pub(super) fn times(
        &self,
        address: u64,
        width: usize,
        scale: i64,
        omit: bool,
    ) -> Result<Times> {
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
    pub(super) fn xattr(
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

    pub(super) fn xattr_name(&mut self, address: u64) -> Result<CString> {
        match memory::string_within(self.tid(), address, 256, &mut self.buffer) {
            Ok(()) if self.buffer.is_empty() => Err(Undecoded::Fails(libc::ERANGE)),
            Ok(()) => {
                CString::new(self.buffer.as_slice()).map_err(|_| Undecoded::Fails(libc::ERANGE))
            }
            Err(Fault::TooLong) => Err(Undecoded::Fails(libc::ERANGE)),
            Err(fault) => Err(fault.into()),
        }
    }

    pub(super) fn argv(&mut self, address: u64) -> Vec<ByteString> {
        let mut argv = Vec::new();
        let (mut at, mut room) = (address, ARGV_BYTES);
        let (mut pointers, mut strings) = (Page::of(self.tid()), Page::of(self.tid()));
        while argv.len() < ARGV_COUNT && room > 0 && address != 0 {
            let word = match (pointers.at(at), self.abi.word()) {
                (Ok(&[a, b, c, d, ..]), 4) => Ok(u64::from(u32::from_le_bytes([a, b, c, d]))),
                (Ok(&[a, b, c, d, e, f, g, h, ..]), 8) => {
                    Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
                }
                // It crosses the end of a page.
                _ => self.word(at),
            };
            let Ok(pointer) = word else { break };
            if pointer == 0 {
                break;
            }
            let near = strings.at(pointer).ok().and_then(|bytes| {
                let nul = bytes.iter().take(room).position(|byte| *byte == 0)?;
                Some(&bytes[..nul])
            });
            let string = match near {
                Some(string) => ByteString::from(string),
                None => {
                    match memory::string_within(self.tid(), pointer, room, &mut self.buffer) {
                        Ok(()) | Err(Fault::TooLong) => {}
                        Err(_) => break,
                    }
                    ByteString::from(self.buffer.as_slice())
                }
            };
            room = room.saturating_sub(string.as_ref().len() + 1);
            argv.push(string);
            at = at.wrapping_add(self.abi.word() as u64);
        }
        argv
    }

    pub(super) fn address(&mut self, address: u64, len: u64) -> Result<Address> {
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
                Address::Path(Name {
                    dir: None,
                    path,
                    fault: None,
                })
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
