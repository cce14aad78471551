//! Runs a command under the supervisor, on the real filesystem, and prints what it did: `record [--reads] CMD [ARG...]`.
//!
//! There is no semisolate here: everything the command does happens for real.
#![expect(clippy::print_stdout, reason = "an example prints")]

use effigy_journal::{Budget, Entry, Reader, Versions, Writer};
use effigy_tracer::{Attend, Flow, Options, Tracer, World, receive_listener, supervise};
use std::error::Error;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

/// Ends the loop when the other end closes.
struct Closed(UnixStream);

impl Attend for Closed {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.0.as_fd()]
    }

    fn attend(&mut self) -> std::io::Result<Flow> {
        Ok(if self.0.read(&mut [0; 8])? == 0 {
            Flow::Ended
        } else {
            Flow::Continue
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<_> = std::env::args_os().skip(1).collect();
    let reads = args.first().is_some_and(|arg| arg == "--reads");
    if reads {
        args.remove(0);
    }
    let quiet = args.first().is_some_and(|arg| arg == "--quiet");
    if quiet {
        args.remove(0);
    }
    let [program, rest @ ..] = &args[..] else {
        return Err("usage: record [--reads] CMD [ARG...]".into());
    };
    let store = std::env::temp_dir().join(format!("effigy-record-{}", std::process::id()));
    std::fs::create_dir_all(store.join("versions"))?;
    let journal = File::create_new(store.join("journal"))?;
    let versions = OwnedFd::from(File::open(store.join("versions"))?);

    let options = Options { reads };
    let prepared = Tracer::prepare(options);
    let (to, from) = UnixStream::pair()?;
    let (end, ended) = UnixStream::pair()?;
    let supervisor = std::thread::spawn(move || -> Result<_, String> {
        let listener = receive_listener(from.as_fd()).map_err(|error| error.to_string())?;
        let outer_proc = File::open("/proc").map_err(|error| error.to_string())?;
        let world = World {
            listener,
            outer_proc: outer_proc.into(),
            init: 0,
            layers: Vec::new(),
            journal: Writer::create(journal).map_err(|error| error.to_string())?,
            versions: Versions::new(versions, Budget::default(), 0),
            earlier: 0,
            recorded: None,
            start: Instant::now(),
            options,
            command_caps: None,
            nodes: None,
            own: Vec::new(),
            outer_numbers: false,
            attend: &mut Closed(ended),
        };
        supervise(world).map_err(|error| error.to_string())
    });
    let mut command = Command::new(program);
    command.args(rest);
    // SAFETY: between fork and exec only `arm` runs, which allocates nothing.
    unsafe { command.pre_exec(move || prepared.arm(to.as_fd())) };
    let status = command.status()?;
    drop(end);
    let report = supervisor.join().map_err(|_| "the supervisor panicked")??;

    let mut reader = Reader::open(File::open(store.join("journal"))?)?;
    while let Some(entry) = reader.next_entry()? {
        if let (Entry::Event(event), false) = (entry, quiet) {
            let show = |id| reader.paths().path(id).display().to_string();
            let to = event.op.to().map(show).unwrap_or_default();
            let path = event.op.path().map(show).unwrap_or_default();
            println!(
                "{} {} {path} {to} {:?} {:?}",
                event.seq.0,
                event.op.name(),
                event.result,
                event.by
            );
        }
    }
    println!("{status}: {report:?}");
    std::fs::remove_dir_all(store)?;
    Ok(())
}
