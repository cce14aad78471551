//! Bringing copies to disk while more are made, so that little is left to wait for when all are.

use super::{Engine, Fail};
use crate::root::Root;
use crate::step::{Source, Step};
use crate::sys;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A plan that copies fewer files and fewer bytes than this is on disk at once.
const FILES: usize = 500;
const BYTES: u64 = 16 << 20;

/// Between two rounds: the disk gets larger pieces, and the copies are not held up by the filesystem's journal all the time.
const PAUSE: Duration = Duration::from_millis(20);

/// Writes out what is dirty on some filesystems, again and again, until it is ended or dropped.
pub(super) struct EarlySync {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl EarlySync {
    /// Begins. Where no thread is to be had, all is waited for at the end.
    fn begin(filesystems: Vec<OwnedFd>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let rounds = move || {
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                for filesystem in &filesystems {
                    sys::sync_filesystem(filesystem.as_fd())?;
                }
            }
            Ok(())
        };
        Self {
            stop: Some(stop),
            thread: thread::Builder::new().spawn(rounds).ok(),
        }
    }

    /// Ends it. The kernel tells of a failed write once (errseq in syncfs(2)): who has heard of it has to pass it on.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> io::Result<()> {
        self.stop = None;
        let ended = self.thread.take().map(JoinHandle::join);
        ended.map_or(Ok(()), |ended| ended.expect("the rounds do not panic"))
    }
}

impl Drop for EarlySync {
    fn drop(&mut self) {
        // One that was not ended is dropped by those who have failed already.
        let _ended = self.stop();
    }
}

impl Engine<'_> {
    /// Begins to bring the copies of the plan to disk, where there are enough of them.
    pub(super) fn sync_early(&self) -> Result<Option<EarlySync>, Fail> {
        let copies = |step: &&Step| match step {
            Step::Put(put) => {
                put.copied || matches!(&put.new, Some(new) if matches!(new.source, Source::Copy(_)))
            }
            Step::Rewrite(_) | Step::Make(_) => true,
            _ => false,
        };
        if self.now.to_copy < BYTES && self.plan.steps.iter().filter(copies).count() < FILES {
            return Ok(None);
        }
        let opened = |root: &Root| root.open_dir(b"").ok();
        let filesystems = self.synced(true)?.into_iter().filter_map(opened).collect();
        Ok(Some(EarlySync::begin(filesystems)))
    }
}
