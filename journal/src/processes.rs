//! The table of processes.

use crate::bytes::ByteString;
use crate::event::{PathId, ProcessId};
use crate::paths::Paths;
use crate::session::Exit;
use std::sync::Arc;

/// Bytes of arguments that are kept; beyond this those of processes that have ended are let go.
const MAX_ARGUMENTS: usize = 256 << 20;

/// A process as of the point up to which the journal has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Who started it.
    pub parent: Option<ProcessId>,
    /// Its id, as the recorder gave it.
    pub pid: u32,
    /// Nanoseconds since the session's start.
    pub start: u64,
    /// When it ended, in the same unit.
    pub end: Option<u64>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// Its program: its own last exec, else what it inherited.
    pub exe: Option<PathId>,
    /// Its arguments, likewise.
    pub argv: Arc<[ByteString]>,
}

impl Process {
    /// The last component of its program's path, as ps(1) shows it; empty when it is not known.
    #[must_use]
    pub fn name<'a>(&self, paths: &'a Paths) -> &'a [u8] {
        self.exe.map_or(&[], |exe| paths.name(exe))
    }
}

/// The table of processes that a journal has spoken of so far.
#[derive(Debug)]
pub struct Processes {
    table: Vec<Process>,
    /// Bytes of arguments in the table, counted once for each exec.
    arguments: usize,
    nothing: Arc<[ByteString]>,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            table: Vec::new(),
            arguments: 0,
            nothing: Arc::new([]),
        }
    }
}

impl Processes {
    /// How many there are; numbers are below this.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// One process.
    #[must_use]
    pub fn get(&self, id: ProcessId) -> Option<&Process> {
        self.table.get(id.0 as usize)
    }

    /// The process, its parent, and so on up to the first one.
    pub fn ancestry(&self, id: ProcessId) -> impl Iterator<Item = (ProcessId, &Process)> {
        let first = self.get(id).map(|process| (id, process));
        std::iter::successors(first, |(id, process)| {
            // A parent is always older, so this ends also in a hostile table.
            let parent = process.parent.filter(|parent| parent < id)?;
            Some((parent, self.get(parent)?))
        })
    }

    pub(crate) fn push(&mut self, parent: Option<ProcessId>, pid: u32, time: u64) -> ProcessId {
        let (exe, argv) = match parent.and_then(|parent| self.get(parent)) {
            Some(parent) => (parent.exe, Arc::clone(&parent.argv)),
            None => (None, Arc::clone(&self.nothing)),
        };
        let id = ProcessId(u32::try_from(self.table.len()).expect("the codec limits the table"));
        self.table.push(Process {
            parent,
            pid,
            start: time,
            end: None,
            exit: None,
            exe,
            argv,
        });
        id
    }

    pub(crate) fn exec(&mut self, id: ProcessId, exe: PathId, argv: &[ByteString]) {
        let Some(process) = self.table.get_mut(id.0 as usize) else {
            return;
        };
        process.exe = Some(exe);
        process.argv = argv.into();
        self.arguments = self.arguments.saturating_add(size(argv));
        if self.arguments > MAX_ARGUMENTS {
            self.let_go();
        }
    }

    pub(crate) fn exit(&mut self, id: ProcessId, status: Exit, time: u64) {
        if let Some(process) = self.table.get_mut(id.0 as usize) {
            process.end = Some(time);
            process.exit = Some(status);
        }
    }

    /// Forgets the arguments of all who have ended, and if that is not enough, everybody's.
    fn let_go(&mut self) {
        for all in [false, true] {
            self.arguments = 0;
            for process in &mut self.table {
                if all || process.end.is_some() {
                    process.argv = Arc::clone(&self.nothing);
                }
                self.arguments = self.arguments.saturating_add(size(&process.argv));
            }
            if self.arguments < MAX_ARGUMENTS / 2 {
                return;
            }
        }
    }
}

fn size(argv: &[ByteString]) -> usize {
    argv.iter()
        .map(|arg| arg.0.len() + size_of::<ByteString>())
        .sum()
}
