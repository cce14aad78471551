//! What is kept of an apply: `apply/<k>/` in the session's directory.
//!
//! ```text
//! plan       the steps; from here on there is something to recover
//! staged     identities of the copies that were prepared; without it no name has been changed
//! before/    what was replaced or removed
//! done       every step is taken
//! skip       what the undo does about each step, when it is not simply taken back
//! kept/      what the undo has found in the place of what it took back and nothing else keeps
//! undoing    an undo has begun
//! restaged   identities of the copies an undo prepared; without it the undo has changed no name
//! undone     everything was taken back (also: an interrupted apply was rolled back)
//! ```
//! A mark holds the time until which the changes of real files are effigy's own. A mark that is not whole does not count.

use crate::net::NetError;
use crate::step::{Loc, Make, Step};
use crate::sys;
use effigy_journal::{Session, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The format of plan files this effigy writes and reads.
const FORMAT: u32 = 1;

/// The largest plan that is read: 2 GiB, some ten million steps.
const MAX_PLAN: usize = 2 << 30;

/// The plan as it stands on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanFile {
    pub(crate) format: u32,
    /// The absolute paths of the target roots, by cover.
    pub(crate) targets: Vec<Vec<u8>>,
    pub(crate) steps: Vec<Step>,
    /// Targets of steps that overwrite a conflict: after an undo the conflict is there again.
    pub(crate) overwritten: Vec<Loc>,
}

/// What an undo does about a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taking {
    /// It is taken back.
    #[default]
    Back,
    /// It is left alone.
    Skip,
    /// It is taken back although somebody has changed the path since. What is there now goes where the new thing came from or,
    /// where that was a copy, to `kept/`.
    Force,
}

/// How far an apply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No plan was written: nothing has happened.
    Nothing,
    Applying,
    Applied(Timestamp),
    Undoing(Timestamp),
    Undone(Timestamp),
}

/// One apply's directory.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) number: u32,
    pub(crate) dir: PathBuf,
}

impl Ledger {
    /// The directory of the k-th apply.
    pub(crate) fn new(session: &Session, number: u32) -> Self {
        Self {
            number,
            dir: session.apply(number),
        }
    }

    /// All applies of a session, the first first.
    pub(crate) fn all(session: &Session) -> io::Result<Vec<Self>> {
        Self::in_dir(session.dir())
    }

    /// All applies of the session in this directory.
    pub(crate) fn in_dir(session: &Path) -> io::Result<Vec<Self>> {
        let above = session.join("apply");
        let entries = match fs::read_dir(&above) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let mut numbers = Vec::new();
        for entry in entries {
            numbers.extend(
                entry?
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<u32>().ok()),
            );
        }
        numbers.sort_unstable();
        let ledger = |number: u32| Self {
            number,
            dir: above.join(number.to_string()),
        };
        Ok(numbers.into_iter().map(ledger).collect())
    }

    /// The path of the directory relative to the session's.
    pub(crate) fn rel(&self, name: &str) -> Vec<u8> {
        format!("apply/{}/{name}", self.number).into_bytes()
    }

    /// Makes the directory and writes the plan, whole or not at all. It reaches the disk with the sync before the first
    /// name is changed; earlier where something is done before that sync that only the plan can take back.
    pub(crate) fn create(&self, plan: &PlanFile) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder
            .mode(0o700)
            .recursive(true)
            .create(self.dir.join("before"))?;
        let config = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(plan, config).map_err(io::Error::other)?;
        self.make_shelves(plan)?;
        let early = |step: &Step| match step {
            Step::Put(put) => put.copied,
            Step::Meta(meta) => meta.aid,
            _ => false,
        };
        let early = plan.steps.iter().any(early);
        self.write("plan", &bytes, early)?;
        if early {
            // Temporary names in the real tree must not outlive the plan that tells of them.
            let above = self.dir.parent().and_then(Path::parent);
            for dir in [Some(self.dir.as_path()), self.dir.parent(), above]
                .into_iter()
                .flatten()
            {
                fs::File::open(dir)?.sync_all()?;
            }
        }
        Ok(())
    }

    /// Makes the directories of [`archive`].
    fn make_shelves(&self, plan: &PlanFile) -> io::Result<()> {
        let before = self.rel("before/");
        let mut made = HashSet::new();
        let mut make = |rel: &[u8]| {
            let shelf = rel
                .strip_prefix(before.as_slice())
                .filter(|rest| rest.starts_with(b"shelf"))
                .and_then(|rest| rest.iter().position(|&b| b == b'/').map(|cut| &rest[..cut]));
            match shelf {
                Some(shelf) if made.insert(shelf.to_vec()) => {
                    let shelf = self.dir.join("before").join(OsStr::from_bytes(shelf));
                    fs::DirBuilder::new().mode(0o700).create(shelf)
                }
                _ => Ok(()),
            }
        };
        for step in &plan.steps {
            match step {
                Step::Put(put) => {
                    for loc in [Some(&put.hold), put.archive.as_ref()]
                        .into_iter()
                        .flatten()
                    {
                        if let Loc::Session(rel) = loc {
                            make(rel)?;
                        }
                    }
                }
                Step::Rewrite(rewrite) => make(&rewrite.archive)?,
                Step::Make(Make {
                    at: Loc::Session(rel),
                    ..
                }) => make(rel)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8], now: bool) -> io::Result<()> {
        let temporary = self.dir.join(format!("{name}.new"));
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        let length = (bytes.len() as u64).to_le_bytes();
        file.write_all(&[&length, bytes, &crc(bytes).to_le_bytes()].concat())?;
        if now {
            file.sync_data()?;
        }
        fs::rename(&temporary, self.dir.join(name))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.dir.join(name);
        let bytes = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() && meta.len() <= MAX_PLAN as u64 => fs::read(&path)?,
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else {
            return Ok(None);
        };
        let Some((body, check)) = rest.split_last_chunk::<4>() else {
            return Ok(None);
        };
        let whole = u64::from_le_bytes(*head) == body.len() as u64
            && u32::from_le_bytes(*check) == crc(body);
        Ok(whole.then(|| body.to_vec()))
    }

    /// The plan; `None` when it was never wholly written.
    pub(crate) fn plan(&self) -> Result<Option<PlanFile>, NetError> {
        let path = self.dir.join("plan");
        let Some(bytes) = self.read("plan").map_err(NetError::io(&path))? else {
            return Ok(None);
        };
        let damaged = |reason: String| NetError::Damaged {
            path: path.clone(),
            reason,
        };
        let config = bincode::config::standard().with_limit::<MAX_PLAN>();
        let (plan, _) = bincode::serde::decode_from_slice::<PlanFile, _>(&bytes, config)
            .map_err(|e| damaged(e.to_string()))?;
        if plan.format != FORMAT {
            return Err(damaged(format!(
                "it has format {}, this effigy reads {FORMAT}",
                plan.format
            )));
        }
        let inside = plan
            .steps
            .iter()
            .all(|step| is_inside(step, plan.targets.len()));
        if inside {
            Ok(Some(plan))
        } else {
            Err(damaged("a path in it leads outside".into()))
        }
    }

    /// Where an apply stands.
    pub(crate) fn stage(&self) -> Result<Stage, NetError> {
        let exists = |name: &str| self.dir.join(name).exists();
        if !exists("plan") {
            return Ok(Stage::Nothing);
        }
        if let Some(time) = self.time("undone")? {
            return Ok(Stage::Undone(time));
        }
        Ok(match self.time("done")? {
            Some(time) if self.time("undoing")?.is_some() => Stage::Undoing(time),
            Some(time) => Stage::Applied(time),
            None => Stage::Applying,
        })
    }

    /// Whether an undo has put copies in place.
    pub(crate) fn has_restaged(&self) -> bool {
        self.dir.join("restaged").exists()
    }

    fn time(&self, name: &str) -> Result<Option<Timestamp>, NetError> {
        let bytes = self.read(name).map_err(NetError::io(self.dir.join(name)))?;
        Ok(bytes.and_then(|b| {
            b.first_chunk::<8>()
                .map(|b| Timestamp(i64::from_le_bytes(*b)))
        }))
    }

    /// Sets a mark, at once on disk.
    pub(crate) fn mark(&self, name: &str, time: Timestamp) -> io::Result<()> {
        self.write(name, &time.0.to_le_bytes(), true)
    }

    /// Sets a mark that the next sync brings to disk.
    pub(crate) fn mark_soon(&self, name: &str, time: Timestamp) -> io::Result<()> {
        self.write(name, &time.0.to_le_bytes(), false)
    }

    /// Waits until whatever is stamped is later than `time`: seen by stamping this mark.
    ///
    /// Filesystems stamp with a clock that moves a tick (1–10 ms) at a time. Since Linux 6.13 a file whose stamp has been
    /// looked at gets a precise one next, and nothing is stamped earlier after that, so there is nothing to wait for.
    pub(crate) fn wait_beyond(&self, name: &str, time: Timestamp) {
        let stamp = || -> io::Result<Timestamp> {
            let file = fs::File::open(self.dir.join(name))?;
            sys::stat(file.as_fd(), c"")?;
            sys::chmod(file.as_fd(), 0o600)?;
            Ok(sys::stat(file.as_fd(), c"")?.ctime.into())
        };
        // A clock that stands still must not hold anybody up.
        for _ in 0..100 {
            if stamp().unwrap_or_else(|_| sys::coarse_now().into()) > time {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Takes a mark away.
    pub(crate) fn unmark(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.dir.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Notes identities of inodes, one a step, 0 for none; on disk `now`, or with the next sync.
    pub(crate) fn note_inodes(&self, name: &str, inodes: &[u64], now: bool) -> io::Result<()> {
        let bytes: Vec<u8> = inodes.iter().flat_map(|ino| ino.to_le_bytes()).collect();
        self.write(name, &bytes, now)
    }

    /// Notes what an undo does about each step.
    pub(crate) fn note_takings(&self, takings: &[Taking]) -> io::Result<()> {
        if takings.iter().all(|taking| *taking == Taking::Back) {
            // Of an undo that was refused.
            return self.unmark("skip");
        }
        let mut builder = fs::DirBuilder::new();
        builder
            .mode(0o700)
            .recursive(true)
            .create(self.dir.join("kept"))?;
        let numbers: Vec<u64> = takings.iter().map(|taking| *taking as u64).collect();
        self.note_inodes("skip", &numbers, true)
    }

    /// What was noted.
    pub(crate) fn takings(&self, steps: usize) -> io::Result<Vec<Taking>> {
        let taking = |number: &u64| match number {
            0 => Taking::Back,
            2 => Taking::Force,
            _ => Taking::Skip,
        };
        let noted = self.inodes("skip", steps)?;
        Ok(noted.map_or_else(
            || vec![Taking::Back; steps],
            |numbers| numbers.iter().map(taking).collect(),
        ))
    }

    /// The identities noted; `None` when they never were.
    pub(crate) fn inodes(&self, name: &str, steps: usize) -> io::Result<Option<Vec<u64>>> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        let words = bytes
            .chunks_exact(8)
            .filter_map(|word| word.first_chunk::<8>());
        let whole = bytes.len() == steps.saturating_mul(8);
        Ok(whole.then(|| words.map(|word| u64::from_le_bytes(*word)).collect()))
    }
}

/// Where the `kept`-th thing of an apply is kept. Directories are searched entry by entry, so many go on several shelves.
pub(crate) fn archive(number: u32, kept: u32) -> Loc {
    let rel = match kept / 64 {
        0 => format!("apply/{number}/before/{kept}"),
        shelf => format!("apply/{number}/before/shelf{shelf}/{kept}"),
    };
    Loc::Session(rel.into_bytes())
}

/// A plan from disk names places below its roots only.
fn is_inside(step: &Step, targets: usize) -> bool {
    use crate::step::{Made, Source};
    let rel =
        |rel: &[u8]| !rel.starts_with(b"/") && !rel.split(|&b| b == b'/').any(|name| name == b"..");
    let loc =
        |loc: &Loc| rel(loc.rel()) && !matches!(loc, Loc::Target(n, _) if *n as usize >= targets);
    match step {
        Step::Strip { at, .. }
        | Step::Whiteout { at }
        | Step::Unwhiteout { at }
        | Step::Transparent { at, .. } => rel(at),
        Step::Put(put) => {
            let source = put.new.as_ref().is_none_or(|new| match &new.source {
                Source::Move | Source::Directory(_) | Source::Made | Source::Changed => true,
                Source::Copy(from) => rel(from),
                Source::Link(from) => loc(from),
            });
            source && loc(&put.target) && loc(&put.hold) && put.archive.as_ref().is_none_or(loc)
        }
        Step::Meta(meta) => loc(&meta.target),
        Step::Rewrite(rewrite) => {
            loc(&rewrite.target) && rel(&rewrite.source) && rel(&rewrite.archive)
        }
        Step::Make(make) => {
            let from = match &make.made {
                Made::File { from, .. } | Made::Link(from) => loc(from),
                _ => true,
            };
            from && loc(&make.at)
        }
    }
}

/// CRC-32C, bit by bit over a table made once.
fn crc(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut c = i;
            let mut bit = 0;
            while bit < 8 {
                c = if c & 1 == 1 {
                    (c >> 1) ^ 0x82f6_3b78
                } else {
                    c >> 1
                };
                bit += 1;
            }
            table[i as usize] = c;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |c, &b| {
        TABLE[((c ^ u32::from(b)) & 0xff) as usize] ^ (c >> 8)
    })
}

/// A plan file for these roots.
pub(crate) fn plan_file(targets: &[&Path]) -> PlanFile {
    let targets = targets
        .iter()
        .map(|path| path.as_os_str().as_bytes().to_vec())
        .collect();
    PlanFile {
        format: FORMAT,
        targets,
        ..PlanFile::default()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn ledger(dir: &Path) -> Ledger {
        Ledger {
            number: 1,
            dir: dir.to_owned(),
        }
    }

    #[test]
    fn a_torn_mark_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = ledger(dir.path());
        ledger.create(&plan_file(&[])).unwrap();
        assert_eq!(ledger.stage().unwrap(), Stage::Applying);
        ledger.mark("done", Timestamp(7)).unwrap();
        assert_eq!(ledger.stage().unwrap(), Stage::Applied(Timestamp(7)));
        let whole = fs::read(dir.path().join("done")).unwrap();
        for length in 0..whole.len() {
            fs::write(dir.path().join("done"), &whole[..length]).unwrap();
            assert_eq!(ledger.stage().unwrap(), Stage::Applying, "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(dir.path().join("done"), damaged).unwrap();
            assert_eq!(ledger.stage().unwrap(), Stage::Applying, "byte {at}");
        }
    }

    #[test]
    fn a_plan_that_leads_outside_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = ledger(dir.path());
        for (path, inside) in [
            ("a/b", true),
            ("../a", false),
            ("a/../../b", false),
            ("/etc", false),
            ("a..b", true),
        ] {
            let mut plan = plan_file(&[Path::new("/somewhere")]);
            plan.steps.push(Step::Whiteout { at: path.into() });
            ledger.create(&plan).unwrap();
            assert_eq!(ledger.plan().is_ok(), inside, "{path}");
        }
        let mut plan = plan_file(&[Path::new("/somewhere")]);
        plan.overwritten.push(Loc::Target(0, b"x".to_vec()));
        ledger.create(&plan).unwrap();
        assert_eq!(ledger.plan().unwrap(), Some(plan));
    }
}
