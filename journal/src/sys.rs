//! The few system calls that std does not offer, and the walks over hostile trees built on them.

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat, fstatat, mknodat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Fills `buffer` from the kernel's random source.
pub(crate) fn random(buffer: &mut [u8]) -> io::Result<()> {
    // SAFETY: getrandom(2) writes at most `len` bytes to the buffer, which is that long and writable.
    let got = unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    match usize::try_from(got) {
        Ok(n) if n == buffer.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn whole_file(kind: i32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).expect("lock types are 0, 1 and 2"),
        l_whence: 0,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Locks a file through its open file description, so that forked processes hold the lock too, without waiting.
pub(crate) fn lock(file: BorrowedFd<'_>, exclusive: bool) -> io::Result<()> {
    let kind = if exclusive {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(kind))) {
        Ok(_) => Ok(()),
        Err(Errno::EACCES | Errno::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether another open file description holds the exclusive lock. Takes no lock itself, so it never gets in anyone's way.
pub(crate) fn is_locked_exclusively(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut question = whole_file(libc::F_RDLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut question))?;
    Ok(i32::from(question.l_type) != libc::F_UNLCK)
}

/// Locks a file exclusively and waits for it.
pub(crate) fn lock_waiting(file: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLKW(&whole_file(libc::F_WRLCK))) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether `path` (not followed) still names the open file.
pub(crate) fn same_file(file: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
    let open = fstat(file)?;
    let named = match fs::symlink_metadata(path) {
        Ok(named) => named,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    Ok(open.st_dev == named.dev() && open.st_ino == named.ino())
}

/// Reads a regular file of at most `limit` bytes; `None` when it is something else or larger. Never blocks on a FIFO.
pub(crate) fn read_regular(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
    {
        Err(e)
            if e.raw_os_error() == Some(libc::ELOOP) || e.raw_os_error() == Some(libc::ENXIO) =>
        {
            return Ok(None);
        }
        other => other?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// What a filesystem says about itself.
pub(crate) struct Filesystem {
    /// Its magic number.
    pub(crate) magic: i64,
    /// Bytes an ordinary user can still write.
    pub(crate) free_bytes: u64,
    /// Files that can still be made; `None` when it has no such limit.
    pub(crate) free_inodes: Option<u64>,
}

pub(crate) fn filesystem(file: BorrowedFd<'_>) -> io::Result<Filesystem> {
    let s = nix::sys::statfs::fstatfs(file)?;
    let unit = u64::try_from(s.block_size()).unwrap_or(0);
    Ok(Filesystem {
        magic: s.filesystem_type().0,
        free_bytes: s.blocks_available().saturating_mul(unit),
        free_inodes: (s.files() > 0).then(|| s.files_free()),
    })
}

/// Sets an extended attribute of an open file and reads it back.
pub(crate) fn try_xattr(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<bool> {
    // SAFETY: fsetxattr(2) reads the NUL-terminated name and `len` bytes of the value; both live across the call.
    let set = unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut back = vec![0_u8; value.len() + 1];
    // SAFETY: fgetxattr(2) writes at most `back.len()` bytes to `back`.
    let got = unsafe {
        libc::fgetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            back.as_mut_ptr().cast(),
            back.len(),
        )
    };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    Ok(back.get(..got) == Some(value))
}

/// Makes a whiteout (a character device 0:0) named `name`, and removes it again.
pub(crate) fn try_whiteout(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    mknodat(dir, name, SFlag::S_IFCHR, Mode::empty(), 0)?;
    unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?;
    Ok(())
}

const OPEN_DIR: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Directories that are held open at once while a tree is removed or measured.
const MAX_DEPTH: usize = 64;

/// Removes `name` in `parent` and everything below it, also directories nobody may enter and trees of any depth.
///
/// Symbolic links are removed, never followed. What is deeper than a few dozen levels is first moved up.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let mut salt = [0; 8];
    random(&mut salt)?;
    let mut removal = Removal {
        top: parent,
        salt: u64::from_ne_bytes(salt),
        moved: 0,
        pending: Vec::new(),
    };
    removal.remove(parent, name, 0)?;
    while let Some(name) = removal.pending.pop() {
        removal.remove(parent, &name, 0)?;
    }
    Ok(())
}

/// A tree being removed.
struct Removal<'a> {
    /// The directory that held it.
    top: BorrowedFd<'a>,
    /// Makes the names of what is moved there unlike all others.
    salt: u64,
    moved: u64,
    /// What was moved there and is still to be removed.
    pending: Vec<CString>,
}

impl Removal<'_> {
    fn remove(&mut self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EISDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // An empty directory, whatever its mode, goes at once.
        match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Removing while reading may skip entries on some filesystems: go round until the directory is empty.
        for _ in 0..100_000 {
            let Some(mut dir) = open_unlocked(parent, name)? else {
                return Ok(());
            };
            if depth >= MAX_DEPTH {
                return self.move_up(parent, name);
            }
            for child in some_names(&mut dir, 10_000)? {
                self.remove(dir.as_fd(), &child, depth + 1)?;
            }
            match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::ENOTEMPTY.into())
    }

    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let up = CString::new(format!("deep.{:016x}.{}", self.salt, self.moved))?;
        self.moved += 1;
        nix::fcntl::renameat(parent, name, self.top, up.as_c_str())?;
        self.pending.push(up);
        Ok(())
    }
}

/// Up to `limit` names in a directory, without `.` and `..`.
fn some_names(dir: &mut Dir, limit: usize) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
            if names.len() == limit {
                break;
            }
        }
    }
    Ok(names)
}

/// Opens a directory for reading and gives its owner all rights to it first if need be; `None` when it has just gone.
fn open_unlocked(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Dir>> {
    let open = || Dir::openat(parent, name, OPEN_DIR, Mode::empty());
    let dir = match open() {
        Err(Errno::EACCES) => {
            let stat = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
                return Err(Errno::ENOTDIR.into());
            }
            fchmodat(parent, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)?;
            open()
        }
        other => other,
    };
    let dir = match dir {
        Err(Errno::ENOENT) => return Ok(None),
        other => other?,
    };
    if fstat(dir.as_fd())?.st_mode & libc::S_IRWXU != libc::S_IRWXU {
        fchmod(dir.as_fd(), Mode::S_IRWXU)?;
    }
    Ok(Some(dir))
}

/// Bytes allocated below `path`; what cannot be read counts as nothing, what is deeper than [`MAX_DEPTH`] too.
pub(crate) fn allocated(path: &Path) -> u64 {
    let Ok(top) = File::open(path) else { return 0 };
    let Ok(dir) = Dir::from_fd(OwnedFd::from(top)) else {
        return 0;
    };
    allocated_in(dir, 0)
}

fn allocated_in(mut dir: Dir, depth: usize) -> u64 {
    let mut sum = 0_u64;
    let mut below = Vec::new();
    let entries: Vec<CString> = dir
        .iter()
        .filter_map(|entry| entry.ok().map(|entry| entry.file_name().to_owned()))
        .filter(|name| !matches!(name.to_bytes(), b"." | b".."))
        .collect();
    for name in entries {
        let Ok(stat) = fstatat(dir.as_fd(), name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else {
            continue;
        };
        sum = sum.saturating_add(
            u64::try_from(stat.st_blocks)
                .unwrap_or(0)
                .saturating_mul(512),
        );
        if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
            below.push(name);
        }
    }
    for name in below {
        if depth < MAX_DEPTH {
            if let Ok(child) = Dir::openat(dir.as_fd(), name.as_c_str(), OPEN_DIR, Mode::empty()) {
                sum = sum.saturating_add(allocated_in(child, depth + 1));
            }
        }
    }
    sum
}
