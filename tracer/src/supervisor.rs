//! The serial loop that owns the order of events.

mod attributes;
mod nameless;
mod names;
mod open;
mod paths;
mod rename;
mod settle;
mod state;

use open::Opening;

use crate::covers::Covers;
use crate::decode::{self, Name, Request, Undecoded};
use crate::listener::{Answer, Listener, NotifId, Notification, Reply};
use crate::parents::Parents;
use crate::pending::Pending;
use crate::recent::Recent;
use crate::recorder::{Recorder, Who};
use crate::resolve::{self};
use crate::sys::{self, Epoll, Errno, Ready};
use crate::syscalls::{Abi, Call, Class, Decode, Lookup};
use crate::tasks::{Held, Met, PROCESS, THREAD, Tasks};
use crate::{Attend, Flow, SuperviseError};
use effigy_journal::{By, ByteString, Exit, Note, Op, Outcome, Why};
use effigy_semisolate::NodeMaker;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

const LISTENER: u64 = 0;
const ATTEND: u64 = 1;

/// The journal is handed to the kernel at least this often, and calls in flight are looked at.
const TICK: Duration = Duration::from_millis(100);

/// A file larger than this is not copied up by the supervisor, for which everybody would have to wait.
const LARGE: u64 = 1 << 20;

/// A stopped call, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Asked {
    id: NotifId,
    pid: u32,
    who: Who,
    /// The task has exactly the semisolate's rights.
    home: bool,
}

/// The supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    listener: Listener,
    epoll: Epoll,
    lookup: Lookup,
    tasks: Tasks,
    covers: Covers,
    recorder: Recorder,
    nodes: Option<Rc<NodeMaker>>,
    pending: Vec<Pending>,
    root: Rc<Held>,
    /// The supervisor's own umask at present.
    umask: u32,
    /// Counts what may have changed the names of directories, and what symbolic links lead to.
    epoch: u64,
    parents: Parents,
    /// A call that may move directories was given up and may yet be carried out, of which nobody would hear.
    adrift: bool,
    /// Threads that were told to go on with a call that changes what is known about them.
    doubted: HashMap<u32, Decode>,
    /// Processes that have ended and whose status is awaited.
    ended: HashMap<u32, (OwnedFd, Who)>,
    refused_uring: HashSet<u32>,
    reads: bool,
    /// The view's /proc numbers tasks as this process does.
    pub(crate) outer_numbers: bool,
    recent: Recent,
    /// It has been noted that a task could not be looked at.
    blind: bool,
    /// The working directory of the call at hand.
    last_cwd: Option<(NotifId, Rc<Held>)>,
    /// The listener is at its end: no task is left that the filter binds.
    over: bool,
}

/// What became of a handled call. An error ends the loop.
type Handled = Result<(), SuperviseError>;

impl Supervisor {
    pub(crate) fn new(
        listener: Listener,
        tasks: Tasks,
        covers: Covers,
        recorder: Recorder,
        nodes: Option<NodeMaker>,
        reads: bool,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(listener.fd(), LISTENER, true)?;
        let root = sys::openat(sys::CWD, c"/", libc::O_PATH | libc::O_DIRECTORY, 0)
            .and_then(resolve::hold);
        let root = root.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        let umask = sys::umask(0o22);
        sys::umask(umask);
        Ok(Self {
            listener,
            epoll,
            lookup: Lookup::new(reads),
            tasks,
            covers,
            recorder,
            nodes: nodes.map(Rc::new),
            pending: Vec::new(),
            root: Rc::new(root),
            umask,
            epoch: 0,
            parents: Parents::default(),
            adrift: false,
            doubted: HashMap::new(),
            ended: HashMap::new(),
            refused_uring: HashSet::new(),
            reads,
            outer_numbers: false,
            recent: Recent::new(),
            blind: false,
            last_cwd: None,
            over: false,
        })
    }

    /// Runs until `attend` says that the tree has ended or that all must stop. Answers whether it was stopped.
    pub(crate) fn run(&mut self, attend: &mut dyn Attend) -> Result<bool, SuperviseError> {
        for fd in attend.fds() {
            self.epoll
                .add(fd, ATTEND, true)
                .map_err(SuperviseError::Listener)?;
        }
        let mut ready = Vec::new();
        let mut flushed = Instant::now();
        loop {
            let idle = !self.recorder.is_dirty() && self.pending.is_empty();
            let timeout = if idle {
                -1
            } else {
                i32::try_from(TICK.saturating_sub(flushed.elapsed()).as_millis()).unwrap_or(0)
            };
            self.epoll
                .wait(timeout, &mut ready)
                .map_err(SuperviseError::Listener)?;
            match self.turn(&ready, attend)? {
                Flow::Continue => {}
                Flow::Ended => {
                    self.last_turns(&mut ready)?;
                    return Ok(false);
                }
                Flow::Stop => return Ok(true),
            }
            if flushed.elapsed() >= TICK {
                flushed = Instant::now();
                self.sweep();
                if self.recorder.is_dirty() {
                    self.recorder.flush();
                }
            }
            if let Some(failure) = self.recorder.failure() {
                return Err(SuperviseError::Journal(failure));
            }
        }
    }

    /// Deals with what is ready: ends of tasks first, so that a number is never taken for its former owner's.
    fn turn(&mut self, ready: &[Ready], attend: &mut dyn Attend) -> Result<Flow, SuperviseError> {
        let mut flow = Flow::Continue;
        for member in ready {
            match member.token {
                LISTENER => {}
                ATTEND => flow = attend.attend().map_err(SuperviseError::Attend)?,
                token if token < THREAD => self.process_ready(member),
                token => {
                    let tid = u32::try_from(token - THREAD).unwrap_or(0);
                    self.thread_said(tid);
                    self.tasks.thread_ended(tid);
                }
            }
        }
        for member in ready.iter().filter(|member| member.token == LISTENER) {
            if member.readable {
                self.receive()?;
            } else if member.hung_up && !self.over {
                self.over = true;
                self.epoll
                    .remove(self.listener.fd())
                    .map_err(SuperviseError::Listener)?;
            }
        }
        Ok(flow)
    }

    /// After the end: the last statuses, as far as they come at once.
    fn last_turns(&mut self, ready: &mut Vec<Ready>) -> Result<(), SuperviseError> {
        let deadline = Instant::now() + Duration::from_millis(20);
        while Instant::now() < deadline && (!self.tasks.pids().is_empty() || !self.ended.is_empty())
        {
            self.epoll
                .wait(2, ready)
                .map_err(SuperviseError::Listener)?;
            ready.retain(|member| member.token >= PROCESS && member.token < THREAD);
            if ready.is_empty() {
                continue;
            }
            for member in ready.iter() {
                self.process_ready(member);
            }
        }
        for pid in self.tasks.pids() {
            self.process_gone(pid);
        }
        Ok(())
    }

    fn process_ready(&mut self, member: &Ready) {
        let pid = u32::try_from(member.token - PROCESS).unwrap_or(0);
        if member.readable {
            self.process_gone(pid);
        }
        if member.hung_up
            && let Some((pidfd, who)) = self.ended.remove(&pid)
            && let Some(status) = sys::pidfd_exit(pidfd.as_fd())
        {
            self.exited(who, status);
        }
    }

    /// A process has ended: what it had in flight is settled, and its status is awaited.
    fn process_gone(&mut self, pid: u32) {
        let Some((process, tids)) = self.tasks.process_ended(pid) else {
            return;
        };
        for tid in tids {
            self.thread_said(tid);
            self.resolve_doubt(tid);
        }
        let who = Who {
            process: process.id,
            tid: pid,
            time: self.recorder.now(),
        };
        if let Some(status) = sys::pidfd_exit(process.pidfd.as_fd()) {
            self.exited(who, status);
        } else if self
            .epoll
            .only_hangup(process.pidfd.as_fd(), PROCESS + u64::from(pid))
            .is_ok()
        {
            self.ended.insert(pid, (process.pidfd, who));
        }
    }

    fn exited(&mut self, who: Who, status: i32) {
        let status = if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        };
        self.recorder.append(
            who,
            By::Observed(Why::Class),
            Op::Exit { status },
            Outcome::Ok,
        );
    }

    fn receive(&mut self) -> Handled {
        match self.listener.recv() {
            Ok(Reply::Done(notification)) => self.handle(&notification),
            Ok(Reply::Gone) => Ok(()),
            Err(error) => Err(SuperviseError::Listener(error)),
        }
    }

    fn send(&mut self, id: NotifId, answer: Answer) -> Handled {
        // A dead notification is normal: its task was killed.
        self.listener
            .send(id, answer)
            .map(drop)
            .map_err(SuperviseError::Listener)
    }

    fn handle(&mut self, notification: &Notification) -> Handled {
        let Notification { id, tid, .. } = *notification;
        let Some((abi, call)) = self.lookup.find(notification.arch, notification.number) else {
            return self.send(id, Answer::Continue);
        };
        if !self.pending.is_empty() {
            self.thread_said(tid);
        }
        if !self.doubted.is_empty() {
            self.resolve_doubt(tid);
        }
        let Some(asked) = self.meet(notification) else {
            // Dead, or a task about which nothing can be learnt: it goes on, and the layers will tell.
            if !self.blind && self.listener.alive(id).unwrap_or(false) {
                self.blind = true;
                self.recorder.note_text(
                    "a process could not be looked at: what it did is known from the layers only",
                );
            }
            return self.send(id, Answer::Continue);
        };
        let handled = match call.class {
            Class::Refuse => self.refuse(&asked),
            Class::State => self.change_of_state(&asked, notification, abi, call),
            _ => self.request(asked, notification, abi, call),
        };
        self.tasks.forget_unwatched(tid);
        handled
    }

    fn meet(&mut self, notification: &Notification) -> Option<Asked> {
        let Notification { id, tid, .. } = *notification;
        let recorder = &mut self.recorder;
        self.tasks
            .meet(tid, (&self.listener, id), &self.epoll, &mut |met: Met| {
                recorder.process(met.parent, met.pid)
            })?;
        let pid = self.tasks.thread(tid)?.process;
        let process = self.tasks.process(pid)?.id;
        Some(Asked {
            id,
            pid,
            who: Who {
                process,
                tid,
                time: self.recorder.now(),
            },
            home: true,
        })
    }

    fn request(
        &mut self,
        mut asked: Asked,
        notification: &Notification,
        abi: Abi,
        call: &Call,
    ) -> Handled {
        let request = match decode::decode(notification, abi, call) {
            Ok(request) => request,
            Err(Undecoded::Fails(errno)) if call.class == Class::Perform => {
                return self.send(asked.id, Answer::Error(errno));
            }
            Err(Undecoded::Succeeds) if call.class == Class::Perform => {
                return self.send(asked.id, Answer::Value(0));
            }
            Err(Undecoded::Unreadable) => {
                self.unreadable(&asked, call);
                return self.send(asked.id, Answer::Continue);
            }
            Err(_) => return self.send(asked.id, Answer::Continue),
        };
        asked.home = self.tasks.is_home(asked.who.tid);
        match request {
            Request::Mkdir { at, mode } => self.mkdir(&asked, &at, mode),
            Request::Rmdir { at } => self.remove(&asked, &at, true),
            Request::Unlink { at } => self.remove(&asked, &at, false),
            Request::Rename { from, to, flags } => self.rename(&asked, &from, &to, flags),
            Request::Link { from, to, flags } => self.link(&asked, &from, &to, flags),
            Request::Symlink { target, at } => self.symlink(&asked, &target, &at),
            Request::Mknod { at, mode, dev } => self.mknod(&asked, &at, mode, dev),
            Request::Truncate { at, len } => self.truncate(&asked, &at, len),
            Request::Chmod { at, mode, flags } => self.chmod(&asked, &at, mode, flags),
            Request::Chown {
                at,
                uid,
                gid,
                flags,
            } => self.chown(&asked, &at, (uid, gid), flags),
            Request::Utimens { at, times, flags } => self.utimens(&asked, &at, times, flags),
            Request::Setxattr {
                at,
                name,
                value,
                flags,
                at_flags,
            } => self.setxattr(&asked, &at, &name, (&value, flags), at_flags),
            Request::Removexattr { at, name, at_flags } => {
                self.removexattr(&asked, &at, &name, at_flags)
            }
            Request::FileSetattr { at, at_flags } => self.file_setattr(&asked, &at, at_flags),
            Request::Open {
                at,
                flags,
                mode,
                plain,
            } => self.open(&asked, &at, Opening { flags, mode, plain }),
            Request::Bind { address } => self.bind(&asked, &address),
            Request::Connect { address } => self.connect(&asked, address),
            Request::Exec { at, argv, flags } => self.exec(&asked, &at, argv, flags),
            Request::Umask { .. } => self.send(asked.id, Answer::Continue),
            Request::Read { at, kind } => self.read(&asked, &at, kind),
        }
    }

    /// A call whose arguments cannot be read goes on; that it did is noted, and the layers will tell what it did.
    fn unreadable(&mut self, asked: &Asked, call: &Call) {
        if self.listener.alive(asked.id).unwrap_or(false) && call.class == Class::Perform {
            self.recorder.note(Note::Text(ByteString::from(
                format!("path unreadable: {} by process {}", call.name, asked.pid).as_str(),
            )));
        }
    }

    /// Whether a performed call would copy up a file so large that everybody would have to wait.
    fn copies_up(&self, path: &[u8], seen: &sys::Seen) -> bool {
        seen.kind() == effigy_journal::Kind::File
            && seen.stat.size > LARGE
            && self.covers.layer(path).is_some()
            && self.covers.in_upper(path).is_none()
    }

    /// Takes on the task's umask.
    fn take_umask(&mut self, asked: &Asked) {
        if let Some(process) = self.tasks.process(asked.pid)
            && process.umask != self.umask
        {
            sys::umask(process.umask);
            self.umask = process.umask;
        }
    }

    /// Whether everything read so far was read from the task that asked: to be asked before acting.
    fn still_asks(&self, asked: &Asked) -> Result<bool, SuperviseError> {
        self.listener
            .alive(asked.id)
            .map_err(SuperviseError::Listener)
    }

    /// Answers with the result of a performed call.
    fn answer(&mut self, asked: &Asked, result: sys::Result<()>) -> Handled {
        self.send(
            asked.id,
            match result {
                Ok(()) => Answer::Value(0),
                Err(Errno(errno)) => Answer::Error(errno),
            },
        )
    }

    fn go_on(&mut self, asked: &Asked) -> Handled {
        self.send(asked.id, Answer::Continue)
    }

    /// Answers a call whose path does not resolve, and records that it failed.
    fn fail(
        &mut self,
        asked: &Asked,
        errno: Errno,
        names: [Option<&Name>; 2],
        op: impl FnOnce([effigy_journal::PathId; 2]) -> Op,
    ) -> Handled {
        let given: Vec<Option<Vec<u8>>> = names
            .iter()
            .map(|name| self.as_given(asked, (*name)?))
            .collect();
        if asked.home {
            self.answer(asked, Err(errno))?;
        } else {
            self.go_on(asked)?;
        }
        if given.iter().flatten().any(|path| self.covers.holds(path)) {
            let ids: Vec<_> = given
                .iter()
                .map(|path| self.recorder.path(path.as_deref().unwrap_or(b"/")))
                .collect();
            if let [Some(a), Some(b)] = ids[..] {
                let by = if asked.home {
                    By::Performed
                } else {
                    By::Observed(Why::Foreign)
                };
                self.recorder
                    .append(asked.who, by, op([a, b]), Outcome::Errno(errno.0));
            }
        }
        Ok(())
    }

    /// Records a performed call.
    fn performed(&mut self, asked: &Asked, op: Option<Op>, result: sys::Result<()>) {
        if let Some(op) = op {
            self.recorder
                .append(asked.who, By::Performed, op, outcome(result));
        }
    }

    pub(crate) fn into_parts(self) -> (Recorder, Covers) {
        (self.recorder, self.covers)
    }
}

fn outcome(result: sys::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Ok,
        Err(Errno(errno)) => Outcome::Errno(errno),
    }
}
