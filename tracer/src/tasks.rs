//! What is known about the tasks: which process a thread belongs to, whether it has the semisolate's rights, its umask and
//! working directory.
//!
//! A process is told apart from a later one with the same number by its pidfd: the end of a process is always seen before the
//! next notification is received.

mod status;

use crate::listener::{Listener, NotifId};
use crate::sys::{self, Epoll, Errno, Seen};
use effigy_journal::ProcessId;
use status::Status;
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// A directory that is held, with its name in the view.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) fd: OwnedFd,
    pub(crate) seen: Seen,
    pub(crate) name: Vec<u8>,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) pidfd: OwnedFd,
    pub(crate) umask: u32,
    /// Its number in its own PID namespace.
    pub(crate) inner: u32,
    /// Working directory, valid while /proc/TID/cwd is the same object and no directory has been renamed since.
    pub(crate) cwd: Option<(Rc<Held>, u64)>,
    pub(crate) landlocked: bool,
    /// Threads other than the first that were seen.
    threads: Vec<u32>,
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) process: u32,
    /// Its number in its own PID namespace.
    pub(crate) inner: u32,
    standing: Standing,
    _pidfd: Option<OwnedFd>,
}

/// Whether a thread has exactly the rights of the semisolate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Something has changed: to be looked at before it matters.
    Unknown,
    /// It was at home, and has executed a program since, which can change credentials, but not namespaces. Its root may be shared
    /// with another process.
    Executed,
    Home,
    Foreign,
}

/// The rights of the semisolate: those the command started with and calls are performed with.
#[derive(Debug)]
struct Home {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    caps: u64,
    root: Seen,
    mount_ns: u64,
    user_ns: Option<u64>,
}

/// Tokens of the epoll set: processes and threads are their number plus these.
pub(crate) const PROCESS: u64 = 1 << 32;
pub(crate) const THREAD: u64 = 2 << 32;

/// Every task that was seen.
#[derive(Debug)]
pub(crate) struct Tasks {
    proc: OwnedFd,
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    home: Home,
    init: u32,
    landlock_seen: bool,
    thread_pidfds: bool,
}

/// A process that was just met.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) pid: u32,
    pub(crate) parent: Option<ProcessId>,
}

impl Tasks {
    /// Whether the command starts with the right to give files away (CAP_CHOWN).
    pub(crate) fn may_chown(&self) -> bool {
        self.home.caps & 1 != 0
    }

    /// `caps`: the effective capabilities of the command, which calls are performed with.
    pub(crate) fn new(proc: OwnedFd, init: u32, caps: u64) -> Result<Self, Errno> {
        let (uid, gid, groups) = sys::own_ids();
        let root = sys::statx(sys::CWD, c"/", 0)?;
        let mount_ns = sys::statx(proc.as_fd(), c"thread-self/ns/mnt", 0)?.stat.ino;
        Ok(Self {
            proc,
            processes: HashMap::new(),
            threads: HashMap::new(),
            home: Home {
                uid,
                gid,
                groups,
                caps,
                root,
                mount_ns,
                user_ns: None,
            },
            init,
            landlock_seen: false,
            thread_pidfds: true,
        })
    }

    pub(crate) fn proc(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }

    pub(crate) fn thread(&self, tid: u32) -> Option<&Thread> {
        self.threads.get(&tid)
    }

    pub(crate) fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    pub(crate) fn process_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    fn status(&self, tid: u32) -> Result<Status, Errno> {
        let path = CString::new(format!("{tid}/status")).map_err(|_| Errno(libc::EINVAL))?;
        let fd = sys::openat(self.proc(), &path, libc::O_RDONLY, 0)?;
        Ok(Status::parse(&sys::read_at_once(fd)?))
    }

    /// Makes sure that the thread is known. `enter` gives a process that is met for the first time its number in the journal.
    ///
    /// Answers `None` when the notification has died meanwhile.
    pub(crate) fn meet(
        &mut self,
        tid: u32,
        notification: (&Listener, NotifId),
        epoll: &Epoll,
        enter: &mut dyn FnMut(Met) -> Option<ProcessId>,
    ) -> Option<()> {
        if self.threads.contains_key(&tid) {
            return Some(());
        }
        let status = self.status(tid).ok()?;
        let pid = status.tgid;
        let pidfd = if self.processes.contains_key(&pid) {
            None
        } else {
            Some(sys::pidfd_open(pid, false).ok()?)
        };
        let thread_pidfd = if tid != pid && self.thread_pidfds {
            match sys::pidfd_open(tid, true) {
                Ok(fd) => Some(fd),
                Err(Errno(libc::EINVAL)) => {
                    self.thread_pidfds = false;
                    None
                }
                Err(_) => return None,
            }
        } else {
            None
        };
        let (listener, id) = notification;
        // Only now is it certain that all of this was about the notifying thread.
        if !listener.alive(id).ok()? {
            return None;
        }
        if let Some(pidfd) = pidfd {
            self.enter_process(&status, pidfd, epoll, enter)?;
        }
        if let Some(fd) = &thread_pidfd {
            epoll.add(fd.as_fd(), THREAD + u64::from(tid), true).ok()?;
        }
        if tid != pid {
            self.processes.get_mut(&pid)?.threads.push(tid);
        }
        let standing = self.judge(tid, &status, pid);
        self.threads.insert(
            tid,
            Thread {
                process: pid,
                inner: status.inner_tid,
                standing,
                _pidfd: thread_pidfd,
            },
        );
        Some(())
    }

    fn enter_process(
        &mut self,
        status: &Status,
        pidfd: OwnedFd,
        epoll: &Epoll,
        enter: &mut dyn FnMut(Met) -> Option<ProcessId>,
    ) -> Option<()> {
        let pid = status.tgid;
        let parent = self.parent(status.ppid, epoll, enter, 0);
        let id = enter(Met { pid, parent })?;
        epoll
            .add(pidfd.as_fd(), PROCESS + u64::from(pid), true)
            .ok()?;
        let landlocked = self.landlock_seen
            && (status.ppid == self.init
                || self
                    .processes
                    .get(&status.ppid)
                    .is_none_or(|parent| parent.landlocked));
        self.processes.insert(
            pid,
            Process {
                id,
                pidfd,
                umask: status.umask,
                inner: status.inner_tgid,
                cwd: None,
                landlocked,
                threads: Vec::new(),
            },
        );
        Some(())
    }

    /// The journal's number of a parent; a parent that never stopped in a call is entered too.
    fn parent(
        &mut self,
        pid: u32,
        epoll: &Epoll,
        enter: &mut dyn FnMut(Met) -> Option<ProcessId>,
        depth: u32,
    ) -> Option<ProcessId> {
        if pid == 0 || pid == self.init || depth > 64 {
            return None;
        }
        if let Some(process) = self.processes.get(&pid) {
            return Some(process.id);
        }
        let status = self.status(pid).ok()?;
        // A process that the filter does not bind is the supervisor, or whoever started it.
        if !status.filtered {
            return None;
        }
        let pidfd = sys::pidfd_open(pid, false).ok()?;
        let parent = self.parent(status.ppid, epoll, enter, depth + 1);
        let id = enter(Met { pid, parent })?;
        epoll
            .add(pidfd.as_fd(), PROCESS + u64::from(pid), true)
            .ok()?;
        self.processes.insert(
            pid,
            Process {
                id,
                pidfd,
                umask: status.umask,
                inner: status.inner_tgid,
                cwd: None,
                landlocked: self.landlock_seen,
                threads: Vec::new(),
            },
        );
        self.threads.insert(
            pid,
            Thread {
                process: pid,
                inner: status.inner_tid,
                standing: Standing::Unknown,
                _pidfd: None,
            },
        );
        Some(id)
    }

    /// Something about a thread may change with the call it goes on with.
    pub(crate) fn doubt(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.standing = Standing::Unknown;
        }
    }

    /// As [`doubt`](Self::doubt), for every thread of its process: root and namespaces are shared.
    pub(crate) fn doubt_all_like(&mut self, tid: u32) {
        let Some(pid) = self.threads.get(&tid).map(|thread| thread.process) else {
            return;
        };
        for thread in self
            .threads
            .values_mut()
            .filter(|thread| thread.process == pid)
        {
            thread.standing = Standing::Unknown;
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.cwd = None;
        }
    }

    /// A Landlock domain is entered: what it forbids cannot be told from outside, and children inherit it.
    pub(crate) fn landlock(&mut self, tid: u32) {
        self.landlock_seen = true;
        if let Some(process) = self
            .threads
            .get(&tid)
            .and_then(|thread| self.processes.get_mut(&thread.process))
        {
            process.landlocked = true;
        }
        self.doubt(tid);
    }

    /// Whether calls of this thread may be performed with the supervisor's own rights.
    pub(crate) fn is_home(&mut self, tid: u32) -> bool {
        let Some(thread) = self.threads.get(&tid) else {
            return false;
        };
        match thread.standing {
            Standing::Home => true,
            Standing::Foreign => false,
            before @ (Standing::Unknown | Standing::Executed) => {
                let pid = thread.process;
                let Ok(status) = self.status(tid) else {
                    return false;
                };
                let standing = match before {
                    Standing::Executed
                        if self.has_home_credentials(&status, pid) && self.has_home_root(tid) =>
                    {
                        Standing::Home
                    }
                    Standing::Executed => Standing::Foreign,
                    _ => self.judge(tid, &status, pid),
                };
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.umask = status.umask;
                }
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.standing = standing;
                }
                standing == Standing::Home
            }
        }
    }

    fn has_home_credentials(&self, status: &Status, pid: u32) -> bool {
        let landlocked = self
            .processes
            .get(&pid)
            .is_none_or(|process| process.landlocked);
        let home = &self.home;
        !landlocked
            && status.fsuid == home.uid
            && status.fsgid == home.gid
            && status.groups == home.groups
            && status.effective == home.caps
    }

    fn look(&self, tid: u32, what: &str) -> Option<Seen> {
        let path = CString::new(format!("{tid}/{what}")).ok()?;
        sys::statx(self.proc.as_fd(), &path, 0).ok()
    }

    fn has_home_root(&self, tid: u32) -> bool {
        self.look(tid, "root")
            .is_some_and(|root| root.same(&self.home.root))
    }

    fn judge(&mut self, tid: u32, status: &Status, pid: u32) -> Standing {
        if !self.has_home_credentials(status, pid) || !self.has_home_root(tid) {
            return Standing::Foreign;
        }
        let mount_ns = self.look(tid, "ns/mnt").map(|ns| ns.stat.ino);
        if mount_ns != Some(self.home.mount_ns) {
            return Standing::Foreign;
        }
        // Capabilities count within a user namespace. The first task that is at home otherwise is the command itself.
        let user_ns = self.look(tid, "ns/user").map(|ns| ns.stat.ino);
        let home = &mut self.home;
        if user_ns.is_none() || home.user_ns.is_some_and(|home| Some(home) != user_ns) {
            return Standing::Foreign;
        }
        home.user_ns = user_ns;
        Standing::Home
    }

    /// A thread has ended.
    pub(crate) fn thread_ended(&mut self, tid: u32) {
        if let Some(thread) = self.threads.remove(&tid)
            && let Some(process) = self.processes.get_mut(&thread.process)
        {
            process.threads.retain(|other| *other != tid);
        }
    }

    /// A process has become another program: only one thread is left, and it has the process's number.
    pub(crate) fn executed(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.cwd = None;
        let threads = std::mem::take(&mut process.threads);
        let alone = threads.is_empty();
        for tid in threads {
            self.threads.remove(&tid);
        }
        if let Some(thread) = self.threads.get_mut(&pid) {
            // The one that executes may be another, with namespaces of its own.
            thread.standing = match thread.standing {
                Standing::Home | Standing::Executed if alone => Standing::Executed,
                _ => Standing::Unknown,
            };
        }
    }

    /// A process has ended; the threads it had.
    pub(crate) fn process_ended(&mut self, pid: u32) -> Option<(Process, Vec<u32>)> {
        let mut process = self.processes.remove(&pid)?;
        let mut tids = std::mem::take(&mut process.threads);
        tids.push(pid);
        for tid in &tids {
            self.threads.remove(tid);
        }
        Some((process, tids))
    }

    /// Every process that is still there.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// Whether no thread of the process but this has been seen.
    pub(crate) fn knows_threads_end(&self) -> bool {
        self.thread_pidfds
    }

    /// Forgets a thread whose end cannot be seen (before 6.9), so that its number is never taken for a later thread's.
    pub(crate) fn forget_unwatched(&mut self, tid: u32) {
        if self
            .threads
            .get(&tid)
            .is_some_and(|thread| thread.process != tid)
            && !self.knows_threads_end()
        {
            self.thread_ended(tid);
        }
    }
}
