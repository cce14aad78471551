//! What the command was refused because of the semisolate, said once and plainly when it has ended.
//!
//! Some refusals would puzzle anybody: a Unix socket that exists outside but answers nothing inside; a write outside what `--write`
//! allows; a file of another owner that cannot be copied up in a user namespace (EOVERFLOW, "value too large"); a hard link to a
//! file that was there before (EXDEV); a program like sudo that gains nothing inside. The journal names them. Of the last two only
//! what made a program fail is told: most programs copy what they cannot link.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use effigy_journal::event::{Address, Entry, Op, Outcome};
use effigy_journal::{ProcessId, Reader, Session};
use nix::libc;

use crate::render::name::escaped;

/// So many paths are named; of more, the number.
const NAMED: usize = 5;

/// Reads the journal and says on standard error what was refused. A journal that cannot be read says nothing here: `effigy log`
/// tells what is wrong with it.
pub(super) fn explain(session: &Session, passed: &[PathBuf]) {
    let Some(refused) = Refused::read(session, passed) else {
        return;
    };
    say(&refused.sockets, |path| {
        let shown = escaped(path);
        eprintln!(
            "effigy: the socket {shown} was not reachable: sockets of other programs are not passed to the command by themselves"
        );
        eprintln!(
            "  hint: run it with --pass-socket {shown} to allow that; what is done through it is not recorded"
        );
    });
    say(&refused.confined, |path| {
        eprintln!(
            "effigy: {} could not be changed: the confinement that was asked for does not let it be",
            escaped(path)
        );
    });
    say(&refused.foreign, |path| {
        let owner = fs::symlink_metadata(path)
            .map(|stat| format!(" (owner {}, group {})", stat.uid(), stat.gid()));
        eprintln!(
            "effigy: {} could not be changed: it belongs to another user or group{}",
            escaped(path),
            owner.unwrap_or_default()
        );
    });
    say(&refused.unlinked, |path| {
        eprintln!(
            "effigy: {} could not get a further name: an ordinary user's semisolate cannot make hard links to files that were there before",
            escaped(path)
        );
    });
    say(&refused.powerless, |path| {
        eprintln!(
            "effigy: {} failed: inside it gains no rights beyond yours, since what it does with them could not be held back for you",
            escaped(path)
        );
    });
    if !refused.powerless.is_empty() {
        eprintln!("  hint: run the whole command as root: sudo effigy run");
    }
    if !refused.foreign.is_empty() {
        eprintln!(
            "  hint: outside it may be yours to change, but an ordinary user's semisolate cannot hold it: sudo effigy run --as-user can"
        );
    }
}

/// Whether a program runs as another user or group than the one who starts it.
fn has_rights_of_its_own(program: &Path) -> bool {
    let special = libc::S_ISUID | libc::S_ISGID;
    fs::metadata(program).is_ok_and(|stat| stat.is_file() && stat.mode() & special != 0)
}

/// Tells of some paths, and how many more there are.
fn say(paths: &BTreeSet<PathBuf>, tell: impl Fn(&Path)) {
    for path in paths.iter().take(NAMED) {
        tell(path);
    }
    if paths.len() > NAMED {
        eprintln!("effigy: … and {} more", paths.len() - NAMED);
    }
}

/// Whether `path` is a real socket that an overlay shows but does not connect: not passed, and not made anew by the command.
fn is_out_of_reach(session: &Session, passed: &[PathBuf], path: &Path) -> bool {
    let is_socket =
        |path: &Path| fs::symlink_metadata(path).is_ok_and(|stat| stat.file_type().is_socket());
    let Some(cover) = session.record.cover_of(path) else {
        return false;
    };
    let Ok(below) = path.strip_prefix(&cover.mount_point) else {
        return false;
    };
    is_socket(path)
        && !passed.iter().any(|passed| passed == path)
        && !is_socket(&session.upper(cover.layer).join(below))
}

#[derive(Default)]
struct Refused {
    sockets: BTreeSet<PathBuf>,
    foreign: BTreeSet<PathBuf>,
    /// Paths that the confinement asked for does not let be written.
    confined: BTreeSet<PathBuf>,
    /// Files that could not be linked, by programs that failed.
    unlinked: BTreeSet<PathBuf>,
    /// Set-user-id and set-group-id programs that failed.
    powerless: BTreeSet<PathBuf>,
}

impl Refused {
    fn read(session: &Session, passed: &[PathBuf]) -> Option<Self> {
        let mut reader = Reader::open(File::open(session.journal()).ok()?).ok()?;
        let mut refused = Self::default();
        let mut unlinked: HashMap<ProcessId, BTreeSet<PathBuf>> = HashMap::new();
        while let Ok(Some(entry)) = reader.next_entry() {
            let Entry::Event(event) = entry else { continue };
            match (&event.op, event.result) {
                // The result of a connection is not seen, but that of one to a socket in a cover is sure.
                (
                    Op::Connect {
                        address: Address::Unix(path),
                    },
                    _,
                ) => {
                    let path = reader.paths().path(*path);
                    if is_out_of_reach(session, passed, &path) {
                        refused.sockets.insert(path);
                    }
                }
                (Op::Link { from, .. }, Outcome::Errno(libc::EXDEV)) => {
                    let paths = unlinked.entry(event.process).or_default();
                    if paths.len() <= NAMED {
                        paths.insert(reader.paths().path(*from));
                    }
                }
                (Op::Exit { status }, _) if status.status() != 0 && session.record.uid != 0 => {
                    refused
                        .unlinked
                        .extend(unlinked.remove(&event.process).unwrap_or_default());
                    let process = reader.processes().get(event.process);
                    let program = process.and_then(|process| process.exe);
                    let program = program.map(|exe| reader.paths().path(exe));
                    refused
                        .powerless
                        .extend(program.filter(|exe| has_rights_of_its_own(exe)));
                }
                (op, Outcome::Errno(libc::EROFS)) if !session.record.confined.is_empty() => {
                    let (path, to) = op.paths();
                    refused
                        .confined
                        .extend(to.or(path).map(|path| reader.paths().path(path)));
                }
                (op, Outcome::Errno(libc::EOVERFLOW)) => {
                    refused
                        .foreign
                        .extend(op.path().map(|path| reader.paths().path(path)));
                }
                _ => {}
            }
        }
        Some(refused)
    }
}
