//! Device nodes in a session of real root.
//!
//! The kernel lets only the initial user namespace make a device node, and neither the command nor its supervisor is in it. Programs
//! that root runs make them all the same (installers, debootstrap), so the supervisor asks effigy outside: it sends the parent
//! directory, a descriptor of the view, and effigy makes the node there. Every mount of the view is `nodev`, so what is made exists
//! and cannot be opened.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::thread;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, recv, recvmsg, send, sendmsg,
};
use nix::sys::stat::{Mode, SFlag, mknodat, umask};
use serde::{Deserialize, Serialize};

use crate::channel::sockets;
use crate::sys;

/// A node to be made. The directory travels beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    name: CString,
    /// Type and permissions, before the umask.
    mode: u32,
    device: u64,
    umask: u32,
}

/// The supervisor's end: asks for nodes.
#[derive(Debug)]
pub struct NodeMaker(OwnedFd);

/// Effigy's end: makes them.
#[derive(Debug)]
pub(crate) struct NodeService(OwnedFd);

/// The longest order: a name and some numbers.
const LONGEST: usize = 1024;

/// Both ends.
pub(crate) fn pair() -> io::Result<(NodeMaker, NodeService)> {
    let (a, b) = sockets()?;
    Ok((NodeMaker(a), NodeService(b)))
}

impl NodeMaker {
    /// Makes a node `name` in `parent`, a covered directory of the view, with the umask of whoever asked for it.
    ///
    /// # Errors
    /// What mknodat(2) answers outside; EPERM when effigy is gone.
    pub fn make(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        mode: u32,
        device: u64,
        umask: u32,
    ) -> io::Result<()> {
        let order = Order {
            name: name.to_owned(),
            mode,
            device,
            umask,
        };
        let bytes = bincode::serde::encode_to_vec(order, bincode::config::standard())
            .map_err(io::Error::other)?;
        let fds = [parent.as_raw_fd()];
        sendmsg::<()>(
            self.0.as_raw_fd(),
            &[IoSlice::new(&bytes)],
            &[ControlMessage::ScmRights(&fds)],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        let mut answer = [0_u8; 4];
        let got = loop {
            match recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                other => break other?,
            }
        };
        match (got, i32::from_ne_bytes(answer)) {
            (4, 0) => Ok(()),
            (4, errno) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(Errno::EPERM.into()),
        }
    }
}

impl NodeService {
    /// Serves orders, on a thread with an umask of its own, until the supervisor is gone.
    pub(crate) fn start(self) -> io::Result<()> {
        thread::Builder::new()
            .name("nodes".to_owned())
            .spawn(move || self.serve())
            .map(drop)
    }

    fn serve(&self) {
        if unshare(CloneFlags::CLONE_FS).is_err() {
            // Closing the socket answers every order with EPERM, as if there were no service.
            return;
        }
        while let Ok(Some((order, parent))) = self.receive() {
            umask(Mode::from_bits_truncate(order.umask));
            let made = mknodat(
                parent.as_fd(),
                order.name.as_c_str(),
                SFlag::from_bits_truncate(order.mode) & SFlag::S_IFMT,
                Mode::from_bits_truncate(order.mode),
                order.device,
            );
            let errno = made.err().map_or(0, |errno| errno as i32);
            if send(
                self.0.as_raw_fd(),
                &errno.to_ne_bytes(),
                MsgFlags::MSG_NOSIGNAL,
            )
            .is_err()
            {
                return;
            }
        }
    }

    /// The next order and its directory; `None` when the supervisor is gone.
    fn receive(&self) -> io::Result<Option<(Order, OwnedFd)>> {
        let mut bytes = [0_u8; LONGEST];
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let mut control = cmsg_space!([RawFd; 1]);
        let message = loop {
            match recvmsg::<()>(
                self.0.as_raw_fd(),
                &mut buffers,
                Some(&mut control),
                MsgFlags::MSG_CMSG_CLOEXEC,
            ) {
                Err(Errno::EINTR) => {}
                other => break other?,
            }
        };
        let length = message.bytes;
        let mut parent = None;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                for fd in fds {
                    parent = Some(sys::received(fd));
                }
            }
        }
        let Some(parent) = parent else {
            return Ok(None);
        };
        let config = bincode::config::standard().with_limit::<LONGEST>();
        let (order, _) = bincode::serde::decode_from_slice(&bytes[..length], config)
            .map_err(io::Error::other)?;
        Ok(Some((order, parent)))
    }
}
