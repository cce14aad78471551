//! The notification listener: installing the filter, handing the descriptor over, receiving and answering notifications.

use crate::sys::check;
use libc::{c_int, c_ulong, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Number of a notification, unique for its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NotifId(pub(crate) u64);

/// A call that has stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    pub(crate) id: NotifId,
    /// The thread, in the supervisor's PID namespace.
    pub(crate) tid: u32,
    pub(crate) number: u32,
    pub(crate) arch: u32,
    pub(crate) args: [u64; 6],
}

/// What the task gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The task goes on and executes the call itself.
    Continue,
    /// The call returns this.
    Value(i64),
    /// The call fails with this error number (positive).
    Error(i32),
}

/// What came of an ioctl on the listener.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    Done(T),
    /// The notification is dead: its task was killed or interrupted. Normal.
    Gone,
}

/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP of linux/seccomp.h (6.6), which the libc crate does not have.
const SYNC_WAKE_UP: c_ulong = 1;

/// The listener.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
}

/// Lets the supervisor look at the calling process. One that has changed its ids since it was forked is shut to everybody
/// without power over the user namespace it came from, until it executes a program.
pub(crate) fn open_to_supervisor() -> io::Result<()> {
    // SAFETY: prctl(2) PR_SET_DUMPABLE takes plain numbers.
    check(i64::from(unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0)
    }))
    .map(drop)
}

/// Installs `program` on the calling thread; returns the listener. Allocates nothing.
///
/// no_new_privs is set only where installing without it is refused, so that set-user-id programs work for real root.
pub(crate) fn install(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let Ok(len) = u16::try_from(program.len()) else {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    };
    let prog = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    let flags: c_ulong =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let seccomp = || {
        // SAFETY: seccomp(2) reads `prog` and the instructions it points to, both alive here, and writes nothing.
        check(unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const prog,
            )
        })
    };
    let fd = match seccomp() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: prctl(2) PR_SET_NO_NEW_PRIVS takes plain numbers.
            check(i64::from(unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            }))?;
            seccomp()?
        }
        other => other?,
    };
    let fd = c_int::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: with NEW_LISTENER a successful call returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const ROOM: usize = 32;

/// A control buffer for one descriptor, aligned as struct cmsghdr wants.
#[repr(C, align(8))]
struct Control([u8; ROOM]);

/// Sends a descriptor and one byte over a Unix socket. Allocates nothing; sendmsg(2) is not trapped.
pub(crate) fn send(socket: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = 0u8;
    let mut iov = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control = Control([0; ROOM]);
    // SAFETY: an all-zero msghdr is valid; the fields used are set below.
    let mut msg: libc::msghdr = unsafe { mem::zeroed() };
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = (&raw mut control).cast();
    #[expect(clippy::cast_possible_truncation, reason = "four bytes")]
    let size = mem::size_of::<c_int>() as u32;
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute; CMSG_FIRSTHDR points into `control`, which has room for one descriptor
    // (24 bytes) and is aligned; sendmsg(2) reads from buffers that are alive.
    unsafe {
        msg.msg_controllen = libc::CMSG_SPACE(size) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const msg);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(header)
            .cast::<c_int>()
            .write_unaligned(fd.as_raw_fd());
        check(libc::sendmsg(socket.as_raw_fd(), &raw const msg, libc::MSG_NOSIGNAL) as i64)?;
    }
    Ok(())
}

/// Receives the descriptor that [`send`] sent.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut byte = 0u8;
    let mut iov = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control = Control([0; ROOM]);
    // SAFETY: an all-zero msghdr is valid; the fields used are set below.
    let mut msg: libc::msghdr = unsafe { mem::zeroed() };
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = (&raw mut control).cast();
    msg.msg_controllen = ROOM as _;
    loop {
        // SAFETY: recvmsg(2) writes into buffers that are alive and as long as said.
        let got =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut msg, libc::MSG_CMSG_CLOEXEC) };
        match check(got as i64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => break,
        }
    }
    // SAFETY: the kernel has set msg_controllen; CMSG_FIRSTHDR answers null unless a whole header is there, and the length is
    // checked before the descriptor is read. The descriptor is new and nobody else's.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const msg);
        #[expect(clippy::cast_possible_truncation, reason = "four bytes")]
        let want = libc::CMSG_LEN(mem::size_of::<c_int>() as u32) as usize;
        if header.is_null()
            || (*header).cmsg_level != libc::SOL_SOCKET
            || (*header).cmsg_type != libc::SCM_RIGHTS
            || ((*header).cmsg_len as usize) < want
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(OwnedFd::from_raw_fd(
            libc::CMSG_DATA(header).cast::<c_int>().read_unaligned(),
        ))
    }
}

impl Listener {
    /// Takes the listener over; asks for synchronous wake-ups. The second value says whether the kernel has them (6.6).
    pub(crate) fn new(fd: OwnedFd) -> (Self, bool) {
        // By value: a pointer answers EINVAL.
        // SAFETY: SECCOMP_IOCTL_NOTIF_SET_FLAGS takes its argument by value.
        let set = unsafe {
            libc::ioctl(
                fd.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS as _,
                SYNC_WAKE_UP,
            )
        };
        (Self { fd }, set == 0)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.fd.as_fd()
    }

    fn ioctl(&self, request: c_ulong, argument: *mut c_void) -> io::Result<Reply<()>> {
        loop {
            // SAFETY: every caller passes a live object of the type the request wants (linux/seccomp.h).
            let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, argument) };
            match check(i64::from(result)) {
                Ok(_) => return Ok(Reply::Done(())),
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOENT) => return Ok(Reply::Gone),
                    Some(libc::EINTR) => {}
                    // SEND: answered already; cannot be with one loop, and is as good as gone.
                    Some(libc::EINPROGRESS) => return Ok(Reply::Gone),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Receives the next notification; poll first, or this waits.
    pub(crate) fn recv(&self) -> io::Result<Reply<Notification>> {
        // The kernel answers EINVAL unless every byte is zero.
        // SAFETY: seccomp_notif consists of plain numbers.
        let mut raw: libc::seccomp_notif = unsafe { mem::zeroed() };
        match self.ioctl(
            libc::SECCOMP_IOCTL_NOTIF_RECV as c_ulong,
            (&raw mut raw).cast(),
        )? {
            Reply::Gone => Ok(Reply::Gone),
            Reply::Done(()) => Ok(Reply::Done(Notification {
                id: NotifId(raw.id),
                tid: raw.pid,
                number: raw.data.nr.cast_unsigned(),
                arch: raw.data.arch,
                args: raw.data.args,
            })),
        }
    }

    /// Answers a notification.
    pub(crate) fn send(&self, id: NotifId, answer: Answer) -> io::Result<Reply<()>> {
        let mut raw = libc::seccomp_notif_resp {
            id: id.0,
            val: 0,
            error: 0,
            flags: 0,
        };
        match answer {
            Answer::Continue => {
                #[expect(clippy::cast_possible_truncation, reason = "flag 1")]
                let flag = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
                raw.flags = flag;
            }
            Answer::Value(value) => raw.val = value,
            // Negative, or it arrives as a success.
            Answer::Error(errno) => raw.error = -errno.abs(),
        }
        self.ioctl(
            libc::SECCOMP_IOCTL_NOTIF_SEND as c_ulong,
            (&raw mut raw).cast(),
        )
    }

    /// Answers a notification with a descriptor, which the task gets at its lowest free number.
    pub(crate) fn send_descriptor(
        &self,
        id: NotifId,
        fd: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> io::Result<Reply<()>> {
        let mut raw = libc::seccomp_notif_addfd {
            id: id.0,
            flags: u32::try_from(libc::SECCOMP_ADDFD_FLAG_SEND).unwrap_or(0),
            srcfd: fd.as_raw_fd().cast_unsigned(),
            newfd: 0,
            newfd_flags: if close_on_exec {
                libc::O_CLOEXEC.cast_unsigned()
            } else {
                0
            },
        };
        self.ioctl(
            libc::SECCOMP_IOCTL_NOTIF_ADDFD as c_ulong,
            (&raw mut raw).cast(),
        )
    }

    /// Whether the notification is still alive, so that what was read through its thread id was read from its task.
    pub(crate) fn alive(&self, id: NotifId) -> io::Result<bool> {
        let mut raw = id.0;
        Ok(matches!(
            self.ioctl(
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID as c_ulong,
                (&raw mut raw).cast()
            )?,
            Reply::Done(())
        ))
    }
}
