//! The store as its users meet it, as root and as an ordinary user.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use effigy_journal::store::Listing;
use effigy_journal::{
    CreateError, DiscardError, Exit, FindError, GcLimits, LockError, ProbeError, RecordError,
    SessionId, State, Status, Store, Timestamp,
};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

struct Scratch {
    store: Store,
    dir: tempfile::TempDir,
}

fn scratch() -> Scratch {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("a/store")).unwrap();
    Scratch { store, dir }
}

/// Runs a test of this file once more as an ordinary user, since to root no directory is closed.
fn as_ordinary_user_too(test: &str, body: fn()) {
    body();
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let own = tempfile::tempdir().unwrap();
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = own.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output = Command::new(&program)
        .args(["--exact", test])
        .env("TMPDIR", own.path())
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "as an ordinary user: {}",
        output.stdout.escape_ascii()
    );
    assert!(
        output.stdout.windows(8).any(|w| w == b"1 passed"),
        "the test did not run"
    );
}

#[test]
fn a_new_session_is_private_locked_and_found() {
    let s = scratch();
    let mut session = s.store.create(Some("build")).unwrap();
    for dir in [
        s.store.dir(),
        session.dir(),
        &session.versions(),
        &session.layers(),
    ] {
        assert_eq!(
            fs::metadata(dir).unwrap().permissions().mode() & 0o777,
            0o700,
            "{dir:?}"
        );
    }
    assert_eq!(session.status(), Status::Recording);
    session.create_layer(0).unwrap();
    assert!(session.upper(0).is_dir() && session.work(0).is_dir());
    session.record.argv = vec!["cp".into(), vec![0xff, b'x'].into()];
    session.record.cwd = PathBuf::from(std::ffi::OsStr::from_bytes(b"/home/\xfe"));
    session.record.exit = Some(Exit::Signal(9));
    session.record.state = State::Recorded;
    session.save().unwrap();
    let record = session.record.clone();
    let id = record.id.to_string();
    for wanted in [None, Some("build"), Some(id.as_str()), Some(&id[..7])] {
        let found = s.store.find(wanted).unwrap();
        assert_eq!(found.record, record);
        assert_eq!(found.status(), Status::Recorded);
    }
    session.release_room();
    assert_eq!(
        fs::read_dir(session.dir()).unwrap().count(),
        5,
        "no temporary file is left, nor the room kept aside"
    );
}

#[test]
fn a_recording_without_its_lock_was_interrupted() {
    let s = scratch();
    drop(s.store.create(None).unwrap());
    assert_eq!(s.store.find(None).unwrap().status(), Status::Interrupted);
}

#[test]
fn names_are_unique_and_plain() {
    let s = scratch();
    let first = s.store.create(Some("a.b-c_1+ü:")).unwrap();
    match s.store.create(Some("a.b-c_1+ü:")) {
        Err(CreateError::NameTaken { id, .. }) => assert_eq!(id, first.record.id),
        other => panic!("{other:?}"),
    }
    let long = "x".repeat(65);
    for bad in [
        "",
        ".",
        "..",
        "a/b",
        "-n",
        "a b",
        "a\nb",
        "k3f9-x2mq",
        "a@1",
        long.as_str(),
    ] {
        assert!(
            matches!(s.store.create(Some(bad)), Err(CreateError::BadName { .. })),
            "{bad:?}"
        );
    }
}

#[test]
fn not_found_names_what_is_near() {
    let s = scratch();
    assert!(matches!(s.store.find(None), Err(FindError::Empty { .. })));
    s.store.create(Some("install")).unwrap();
    match s.store.find(Some("instal")) {
        Err(FindError::NotFound { near, .. }) => assert_eq!(near, ["install"]),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        s.store.find(Some("")),
        Err(FindError::NotFound { .. })
    ));
}

#[test]
fn an_ambiguous_prefix_names_the_candidates() {
    let s = scratch();
    let ids: Vec<SessionId> = (0..60)
        .map(|_| s.store.create(None).unwrap().record.id)
        .collect();
    let first = |id: &SessionId| id.as_str().chars().next();
    let shared = ids
        .iter()
        .find(|id| ids.iter().filter(|o| first(o) == first(id)).count() > 1);
    let prefix = &shared.unwrap().as_str()[..1];
    match s.store.find(Some(prefix)) {
        Err(FindError::Ambiguous { candidates, .. }) => {
            assert!(candidates.len() > 1);
            assert!(
                candidates
                    .iter()
                    .all(|(id, _)| id.as_str().starts_with(prefix))
            );
        }
        other => panic!("{other:?}"),
    }
    let newest = s.store.find(None).unwrap();
    assert_eq!(newest.record.id, ids[59], "the newest is the last one made");
}

#[test]
fn a_session_in_use_refuses_others() {
    let s = scratch();
    let mut holder = s.store.create(Some("x")).unwrap();
    let mut other = s.store.find(Some("x")).unwrap();
    assert!(other.is_in_use());
    assert!(matches!(
        other.lock_exclusive(),
        Err(LockError::InUse { .. })
    ));
    assert!(matches!(other.lock_shared(), Err(LockError::InUse { .. })));
    let again = s.store.find(Some("x")).unwrap();
    match s.store.discard(again) {
        Err(DiscardError::Lock(LockError::InUse { name })) => assert_eq!(name, "x"),
        other => panic!("{other:?}"),
    }
    // Readers share, and keep writers out.
    holder.lock_shared().unwrap();
    assert!(!other.is_in_use(), "a shared lock is no use");
    other.lock_shared().unwrap();
    assert!(matches!(
        holder.lock_exclusive(),
        Err(LockError::InUse { .. })
    ));
    other.unlock();
    holder.lock_exclusive().unwrap();
    holder.unlock();
    s.store.discard(other).unwrap();
    assert!(matches!(
        holder.lock_exclusive(),
        Err(LockError::Gone { .. })
    ));
}

#[test]
fn the_lock_is_given_up_though_a_process_that_inherited_it_lingers() {
    let s = scratch();
    let session = s.store.create(Some("x")).unwrap();
    let kept = session.lock_fd().unwrap().try_clone_to_owned().unwrap();
    let mut other = s.store.find(Some("x")).unwrap();
    assert_eq!(other.status(), Status::Recording);
    drop(session);
    assert_eq!(other.status(), Status::Interrupted);
    other.lock_exclusive().unwrap();
    drop(kept);
    assert!(s.store.find(Some("x")).unwrap().is_in_use());
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn discard_removes_what_nobody_may_enter() {
    as_ordinary_user_too("discard_removes_what_nobody_may_enter", || {
        let s = scratch();
        let session = s.store.create(Some("x")).unwrap();
        session.create_layer(3).unwrap();
        let inner = session.work(3).join("work");
        fs::create_dir(&inner).unwrap();
        let closed = session.upper(3).join("closed");
        fs::create_dir_all(closed.join("within/empty")).unwrap();
        fs::write(closed.join("within/file"), "x").unwrap();
        let outside = s.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        symlink(&outside, closed.join("link")).unwrap();
        let fifo = CString::new(closed.join("fifo").as_os_str().as_bytes()).unwrap();
        nix::unistd::mkfifo(fifo.as_c_str(), nix::sys::stat::Mode::empty()).unwrap();
        mode(&closed.join("within/empty"), 0);
        mode(&closed.join("within"), 0o500);
        mode(&closed, 0);
        mode(&inner, 0);
        assert!(session.measure() > 0);
        s.store.discard(session).unwrap();
        assert!(s.store.list().unwrap().sessions.is_empty());
        assert_eq!(
            fs::read_dir(s.store.dir().join("trash")).unwrap().count(),
            0
        );
        assert!(
            outside.join("kept").exists(),
            "a symbolic link is not followed"
        );
    });
}

#[test]
fn discard_removes_a_tree_of_any_depth() {
    let s = scratch();
    let session = s.store.create(None).unwrap();
    let mut dir = fs::File::open(session.layers()).unwrap();
    for _ in 0..3000 {
        use nix::sys::stat::Mode;
        nix::sys::stat::mkdirat(&dir, "d", Mode::S_IRWXU).unwrap();
        let flags = nix::fcntl::OFlag::O_RDONLY;
        dir = nix::fcntl::openat(&dir, "d", flags, Mode::empty())
            .unwrap()
            .into();
    }
    drop(dir);
    s.store.discard(session).unwrap();
    assert_eq!(
        fs::read_dir(s.store.dir().join("trash")).unwrap().count(),
        0
    );
}

#[test]
fn gc_keeps_to_its_limits_and_spares_what_is_needed() {
    let s = scratch();
    let make = |name: &str, age: i64| {
        let mut session = s.store.create(Some(name)).unwrap();
        let at = Timestamp(Timestamp::now().0 - age * 1_000_000_000);
        session.record.start = at;
        session.record.end = Some(at);
        session.record.state = State::Recorded;
        fs::write(session.dir().join("layers/blob"), vec![1; 100_000]).unwrap();
        session.save().unwrap();
        session.release_room();
        session
    };
    let lower = make("lower", 5000);
    let used = make("used", 4000);
    drop(make("wanted", 3000));
    drop(make("old", 2000));
    drop(make("middle", 1000));
    let mut upper = make("upper", 10);
    upper.record.lower = vec![lower.record.id.clone()];
    upper.save().unwrap();
    drop((lower, upper));
    let names = |listing: Listing| -> Vec<String> {
        listing
            .sessions
            .into_iter()
            .filter_map(|s| s.record.name)
            .collect()
    };
    let nothing = s.store.gc(&GcLimits::default(), &mut |_| false).unwrap();
    assert!(nothing.discarded.is_empty());
    let age = GcLimits {
        age: Some(Duration::from_secs(1500)),
        ..GcLimits::default()
    };
    let report = s.store.gc(&age, &mut |s| s.label() == "wanted").unwrap();
    assert_eq!(report.discarded.len(), 1);
    assert_eq!(report.discarded[0].1.as_deref(), Some("old"));
    assert!(report.discarded[0].2 >= 100_000);
    assert_eq!(report.kept.len(), 3);
    drop(used);
    let count = GcLimits {
        count: Some(3),
        ..GcLimits::default()
    };
    let report = s.store.gc(&count, &mut |_| false).unwrap();
    assert_eq!(report.discarded.len(), 2);
    assert_eq!(names(s.store.list().unwrap()), ["lower", "middle", "upper"]);
    let bytes = GcLimits {
        bytes: Some(250_000),
        ..GcLimits::default()
    };
    s.store.gc(&bytes, &mut |_| false).unwrap();
    assert_eq!(names(s.store.list().unwrap()), ["lower", "upper"]);
}

#[test]
fn gc_sweeps_up_after_the_killed() {
    let s = scratch();
    fs::create_dir_all(s.store.dir().join("trash/k3f9-x2mq.0/layers/0/upper")).unwrap();
    fs::create_dir(s.store.dir().join("sessions/k3f9-x2mq")).unwrap();
    assert!(s.store.list().unwrap().sessions.is_empty());
    let report = s.store.gc(&GcLimits::default(), &mut |_| false).unwrap();
    assert_eq!(report.remains, 2);
    assert!(!s.store.dir().join("sessions/k3f9-x2mq").exists());
}

#[test]
fn hostile_records_are_listed_as_damaged_and_can_be_discarded() {
    let s = scratch();
    let good = s.store.create(Some("good")).unwrap();
    let text = fs::read_to_string(good.dir().join("session.json")).unwrap();
    let id = good.record.id.as_str();
    let bad = "k3f9-x2mq";
    let dir = s.store.dir().join("sessions").join(bad);
    let write = |text: &[u8]| {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("session.json"), text).unwrap();
    };
    let own = text.replace(id, bad).replace("\"good\"", "null");
    write(own.as_bytes());
    assert_eq!(
        s.store.list().unwrap().sessions.len(),
        2,
        "the untouched record is good"
    );
    let nested = "[".repeat(1_000_000);
    let cover = r#"{"layer":0,"mount_point":"/a","root":{"mode":0,"uid":0,"gid":0}}"#;
    for text in [
        String::new(),
        "{}".into(),
        nested,
        " ".repeat(5 << 20),
        text.clone(),
        own.replace("\"cwd\": \"/\"", "\"cwd\": \"/a/../../etc\""),
        own.replace("\"cwd\": \"/\"", "\"cwd\": \"relative\""),
        own.replace("\"cwd\": \"/\"", "\"cwd\": {\"bytes\": \"*\"}"),
        own.replace("\"name\": null", "\"name\": \"../x\""),
        own.replace("\"covers\": []", &format!("\"covers\": [{cover},{cover}]")),
        own.replace("\"format\": 1", "\"format\": -1"),
    ] {
        assert_ne!(text, own);
        write(text.as_bytes());
        let listing = s.store.list().unwrap();
        assert_eq!(listing.damaged.len(), 1, "{}", &text[..text.len().min(400)]);
        assert!(matches!(
            s.store.find(Some(bad)),
            Err(FindError::Damaged(_))
        ));
    }
    write(own.replace("\"format\": 1", "\"format\": 7").as_bytes());
    match s.store.find(Some(bad)) {
        Err(FindError::Damaged(RecordError::TooNew { found: 7, .. })) => {}
        other => panic!("{other:?}"),
    }
    // A FIFO must not hang the reader.
    fs::remove_file(dir.join("session.json")).unwrap();
    nix::unistd::mkfifo(&dir.join("session.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let damaged = s.store.list().unwrap().damaged;
    assert_eq!(damaged.len(), 1);
    s.store.discard_damaged(&damaged[0].id).unwrap();
    assert!(s.store.list().unwrap().damaged.is_empty());
}

#[test]
fn a_failed_save_leaves_the_old_record() {
    as_ordinary_user_too("a_failed_save_leaves_the_old_record", || {
        if nix::unistd::geteuid().is_root() {
            return;
        }
        let s = scratch();
        let mut session = s.store.create(None).unwrap();
        mode(session.dir(), 0o500);
        session.record.state = State::Applied;
        match session.save() {
            Err(RecordError::Io { path, .. }) => assert!(path.ends_with("session.json")),
            other => panic!("{other:?}"),
        }
        mode(session.dir(), 0o700);
        assert_eq!(s.store.find(None).unwrap().record.state, State::Recording);
    });
}

#[test]
fn probe_tells_whether_layers_can_live_here() {
    as_ordinary_user_too("probe_tells_whether_layers_can_live_here", || {
        let s = scratch();
        let capacity = s.store.probe().unwrap();
        assert!(capacity.free_bytes > 0);
        assert_eq!(
            fs::read_dir(s.store.dir().join("trash")).unwrap().count(),
            0
        );
    });
}

#[test]
fn probe_refuses_a_filesystem_without_attributes() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    // ramfs keeps no user attributes; overlayfs keeps them, but is no place for an upper layer.
    let script = r#"
        set -e; mkdir "$1/ram" "$1/lower" "$1/over"; mount -t ramfs none "$1/ram"
        mkdir "$1/ram/upper" "$1/ram/work" "$1/ram/store"
        mount -t tmpfs none "$1/lower"; mkdir "$1/lower/l" "$1/lower/u" "$1/lower/w"
        mount -t overlay none -o "lowerdir=$1/lower/l,upperdir=$1/lower/u,workdir=$1/lower/w" "$1/over"
        EFFIGY_TEST_PROBE="$1" exec "$2" --exact probe_in_prepared_places --nocapture
    "#;
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.stdout.escape_ascii());
}

#[test]
fn probe_in_prepared_places() {
    let Some(dir) = std::env::var_os("EFFIGY_TEST_PROBE") else {
        return;
    };
    let dir = PathBuf::from(dir);
    let store = Store::open(&dir.join("over/store")).unwrap();
    match store.probe() {
        Err(
            e @ ProbeError::Refused {
                filesystem: "overlayfs",
                ..
            },
        ) => {
            assert!(e.remedy().contains("EFFIGY_STORE"));
        }
        other => panic!("{other:?}"),
    }
    let store = Store::open(&dir.join("ram/store")).unwrap();
    match store.probe() {
        Err(ProbeError::NoXattrs { .. }) => {}
        other => panic!("{other:?}"),
    }
}
