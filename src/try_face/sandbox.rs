//! A sandbox directory: the shape that try's scripts read, and a link to the session it stands for.
//!
//! ```text
//! DIR/session    a link to <store>/sessions/<id>
//! DIR/before     a link to the session that the former one is being put over, while that is done
//! DIR/upperdir/  what the session wrote, as one tree; files are those of the session's layers under further names
//! DIR/workdir/   empty
//! DIR/temproot/  empty directories
//! ```
//!
//! `upperdir` is made anew after everything that happens in the sandbox, and away while it happens: it is there to be read. Where
//! DIR lies on another filesystem than the store it is a link to a tree beside the session, as files have no names across filesystems.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use effigy_journal::{Session, SessionId, State, Store};
use effigy_replay::layering::{self, By};
use effigy_replay::{Selection, net_effects};

use super::{alone, stop, trace};
use crate::failure::{Cannot as _, report};
use crate::render::name::escaped;
use crate::store::{self, find_to_change, find_to_read};

const SESSION: &str = "session";
const BEFORE: &str = "before";
const UPPER: &str = "upperdir";
/// In the session: a link to the sandbox directory that shows it.
const SHOWN: &str = "sandbox";

/// A sandbox directory, absolute.
pub(super) struct Sandbox {
    dir: PathBuf,
}

/// The session that is in a sandbox before a run.
pub(super) struct Previous {
    pub(super) id: SessionId,
    /// The run can go on in it; otherwise it is laid over it, and takes its place.
    pub(super) goes_on: bool,
    /// The number of the first event of a run that goes on in it.
    pub(super) first: u64,
}

/// The session that a link names, and the store it is in.
struct Held {
    store: PathBuf,
    id: SessionId,
}

impl Sandbox {
    /// One to list or commit, or to lay another one over.
    pub(super) fn existing(dir: &Path) -> anyhow::Result<Self> {
        let shown = escaped(dir);
        if !dir.is_dir() {
            return Err(stop(2, format!("could not find directory {shown}")));
        }
        if !dir.join(UPPER).is_dir() && !dir.join(SESSION).is_symlink() {
            return Err(stop(1, format!("could not find directory {shown}/{UPPER}")));
        }
        let sandbox = Self::at(dir)?;
        if sandbox.held(SESSION)?.is_none() {
            let words =
                "holds no session of effigy: another try made it, and only that can read it";
            return Err(stop(1, format!("the sandbox {shown} {words}")));
        }
        Ok(sandbox)
    }

    /// One to run a command in: empty, or used before.
    pub(super) fn to_work_in(dir: &Path) -> anyhow::Result<Self> {
        let sandbox = Self::at(dir)?;
        let used = [UPPER, "workdir", "temproot"]
            .iter()
            .any(|name| sandbox.dir.join(name).is_dir());
        let invalid = if sandbox.held(SESSION)?.is_none() {
            used
        } else {
            holds_files(&sandbox.dir.join("temproot"))
        };
        if invalid {
            let dir = escaped(&sandbox.dir);
            return Err(stop(1, format!("given sandbox '{dir}' is invalid")));
        }
        Ok(sandbox)
    }

    /// A new one for a session.
    pub(super) fn made_for(store: &Store, session: &Session) -> anyhow::Result<Self> {
        let sandbox = Self {
            dir: make_temporary()?,
        };
        sandbox.point(SESSION, store, &session.record.id)?;
        Ok(sandbox)
    }

    fn at(dir: &Path) -> anyhow::Result<Self> {
        let shown = escaped(dir);
        let dir = dir.canonicalize().map_err(|error| {
            stop(
                2,
                format!("could not find sandbox directory {shown}: {error}"),
            )
        })?;
        Ok(Self { dir })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads a link to a session; one that is none, or names something else, is refused.
    fn held(&self, link: &str) -> anyhow::Result<Option<Held>> {
        let path = self.dir.join(link);
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(stop(
                    1,
                    format!("could not read {}: {error}", escaped(&path)),
                ));
            }
        };
        let id = target
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(SessionId::parse);
        let sessions = target.parent().filter(|sessions| {
            sessions.is_absolute() && sessions.file_name().is_some_and(|name| name == "sessions")
        });
        match (id, sessions.and_then(Path::parent)) {
            (Some(id), Some(store)) if target.is_dir() => Ok(Some(Held {
                store: store.to_owned(),
                id,
            })),
            _ => {
                let (dir, target) = (escaped(&self.dir), escaped(&target));
                let words = format!("the session of sandbox {dir} is gone: there is no {target}");
                Err(stop(1, words))
            }
        }
    }

    fn of_session(&self) -> anyhow::Result<Held> {
        self.held(SESSION)?.ok_or_else(|| {
            let dir = escaped(&self.dir);
            stop(1, format!("the sandbox {dir} holds no session"))
        })
    }

    /// The store of the session, or else this one.
    pub(super) fn store(&self, other: &Path) -> anyhow::Result<Store> {
        match self.held(SESSION)? {
            Some(held) => store::open(&held.store),
            None => store::open(other),
        }
    }

    /// The session, kept from being changed.
    pub(super) fn read(&self) -> anyhow::Result<(Store, Session)> {
        self.session(find_to_read)
    }

    /// The session, for this effigy alone.
    pub(super) fn change(&self) -> anyhow::Result<(Store, Session)> {
        self.session(find_to_change)
    }

    fn session(
        &self,
        find: fn(&Store, Option<&str>) -> anyhow::Result<Session>,
    ) -> anyhow::Result<(Store, Session)> {
        self.finish()?;
        let held = self.of_session()?;
        let store = store::open(&held.store)?;
        let mut session = find(&store, Some(held.id.as_str()))?;
        alone(&mut session);
        Ok((store, session))
    }

    /// The session that is in the sandbox before a run. `upperdir` goes, as it is about to be wrong.
    pub(super) fn previous(&self, store: &Store) -> anyhow::Result<Option<Previous>> {
        self.finish()?;
        let Some(held) = self.held(SESSION)? else {
            return Ok(None);
        };
        let session = find_to_read(store, Some(held.id.as_str()))?;
        self.hide(&session)?;
        let record = &session.record;
        let goes_on = record.traced
            && record.state != State::Applied
            && record.uid == nix::unistd::geteuid().as_raw()
            && store.upper(&held.id).is_empty();
        let pending = goes_on
            || !net_effects(&session, &Selection::all())
                .cannot()?
                .is_empty();
        let first = if goes_on {
            trace::next_event(&session)?
        } else {
            0
        };
        // What is committed is real.
        Ok(pending.then_some(Previous {
            id: held.id,
            goes_on,
            first,
        }))
    }

    /// Shows again what was hidden for a run that did not come about.
    pub(super) fn show_again(&self) {
        if let Ok((_, session)) = self.read() {
            self.show(&session);
        }
    }

    /// Makes `session` the one of this sandbox, with what the one before left.
    pub(super) fn take(
        &self,
        store: &Store,
        session: &mut Session,
        previous: Option<SessionId>,
    ) -> anyhow::Result<()> {
        if let Some(previous) = &previous {
            self.point(BEFORE, store, previous)?;
        }
        self.point(SESSION, store, &session.record.id)?;
        if let Some(previous) = previous {
            put_below(store, session, &previous, false)?;
            self.forget_before()?;
        }
        Ok(())
    }

    /// Finishes what [`take`](Self::take) was killed at.
    fn finish(&self) -> anyhow::Result<()> {
        let Ok(Some(before)) = self.held(BEFORE) else {
            return self.forget_before();
        };
        let held = self.of_session()?;
        let store = store::open(&held.store)?;
        if before.id != held.id {
            let mut session = find_to_change(&store, Some(held.id.as_str()))?;
            if session.record.lower.contains(&before.id) {
                put_below(&store, &mut session, &before.id, false)?;
            }
        }
        self.forget_before()
    }

    fn forget_before(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.dir.join(BEFORE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn point(&self, link: &str, store: &Store, id: &SessionId) -> anyhow::Result<()> {
        let (new, link) = (self.dir.join(format!("{link}.new")), self.dir.join(link));
        // Left by one that was killed.
        let _none = fs::remove_file(&new);
        let place = || {
            symlink(store.dir().join("sessions").join(id.as_str()), &new)?;
            fs::rename(&new, &link)
        };
        place().map_err(|error| stop(2, format!("could not write {}: {error}", escaped(&link))))?;
        if link.file_name().is_some_and(|name| name == SESSION) {
            let back = store.dir().join("sessions").join(id.as_str()).join(SHOWN);
            // The same again when a session goes on.
            let _none = fs::remove_file(&back);
            // Without it only try itself finds the view.
            let _unknown = symlink(&self.dir, &back);
        }
        Ok(())
    }

    /// Removes `upperdir`.
    pub(super) fn hide(&self, session: &Session) -> anyhow::Result<()> {
        for tree in [self.dir.join(UPPER), session.dir().join(UPPER)] {
            let removed = match fs::symlink_metadata(&tree) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&tree),
                Ok(_) => fs::remove_file(&tree),
                Err(error) => Err(error),
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(stop(
                        1,
                        format!("could not remove {}: {error}", escaped(&tree)),
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes `upperdir` show what the session holds. That it cannot is said and is no failure: the session is there.
    pub(super) fn show(&self, session: &Session) {
        let shown = self.hide(session).and_then(|()| self.try_show(session));
        if let Err(error) = shown {
            report(&error.context(format!("cannot show {}/{UPPER}", escaped(&self.dir))));
        }
    }

    fn try_show(&self, session: &Session) -> anyhow::Result<()> {
        let own = self.dir.join(UPPER);
        let beside = session.dir().join(UPPER);
        let same = fs::metadata(&self.dir)?.dev() == fs::metadata(session.dir())?.dev();
        let tree = if same { &own } else { &beside };
        for dir in [
            tree.clone(),
            self.dir.join("workdir"),
            self.dir.join("temproot"),
        ] {
            fs::create_dir_all(dir)?;
        }
        for entry in fs::read_dir("/")? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::create_dir_all(tree.join(entry.file_name()))?;
                fs::create_dir_all(self.dir.join("temproot").join(entry.file_name()))?;
            }
        }
        layering::show(session, tree).cannot()?;
        if !same {
            symlink(&beside, &own)?;
        }
        Ok(())
    }
}

/// Removes the `upperdir` of the sandbox that shows this session, as whatever is about to change the session counts the names of
/// its files.
pub(crate) fn hide_shown(session: &Session) {
    let Ok(dir) = fs::read_link(session.dir().join(SHOWN)) else {
        return;
    };
    let sandbox = Sandbox { dir };
    let shows = fs::read_link(sandbox.dir.join(SESSION)).is_ok_and(|held| held == session.dir());
    if shows && let Err(error) = sandbox.hide(session) {
        report(&error);
    }
}

/// Puts what another session holds below `session`, which was laid over it. Unless it is to stay, or a third one rests on it, it goes.
pub(super) fn put_below(
    store: &Store,
    session: &mut Session,
    id: &SessionId,
    stays: bool,
) -> anyhow::Result<()> {
    let lower = match stays {
        true => find_to_read(store, Some(id.as_str())),
        false => find_to_change(store, Some(id.as_str())),
    }?;
    let needed = store
        .list()
        .cannot()?
        .sessions
        .iter()
        .any(|other| other.record.id != session.record.id && other.record.lower.contains(id));
    let by = match stays || needed {
        true => By::Copying,
        false => By::Moving,
    };
    layering::absorb(session, &lower, by).cannot()?;
    session.save().cannot()?;
    if by == By::Moving {
        // One that stays is shown by ls.
        let _stays = store.discard(lower);
    }
    Ok(())
}

/// Whether there is anything but directories in a tree.
fn holds_files(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().any(|entry| {
        entry
            .file_type()
            .is_ok_and(|kind| !kind.is_dir() || holds_files(&entry.path()))
    })
}

/// A new private directory in `TMPDIR`, named as try names its own.
pub(super) fn make_temporary() -> anyhow::Result<PathBuf> {
    let base = env::temp_dir();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    for attempt in 0..1000_u32 {
        let salt = now
            .subsec_nanos()
            .wrapping_add(attempt.wrapping_mul(0x9e37_79b9));
        let (pid, millis) = (std::process::id(), now.as_millis());
        let dir = base.join(format!("tmp.{pid:x}{salt:08x}.try-{millis}"));
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let base = escaped(&base);
                return Err(stop(
                    2,
                    format!("could not make a directory in {base}: {error}"),
                ));
            }
        }
    }
    Err(stop(
        2,
        format!("could not make a directory in {}", escaped(&base)),
    ))
}
