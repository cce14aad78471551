//! Archives: what comes back, and what hostile ones can do (nothing).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use effigy_journal::archive::{ImportError, export};
use effigy_journal::{ByteString, Cover, CreateError, GcLimits, RootState, Session, State, Store};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::path::Path;
use tar::{EntryType, Header};

fn store(dir: &Path) -> Store {
    Store::open(&dir.join("store")).unwrap()
}

/// A session with something of every kind in its layer.
fn session(store: &Store) -> Session {
    let mut session = store.create(Some("demo")).unwrap();
    session.create_layer(0).unwrap();
    let upper = session.upper(0);
    fs::create_dir_all(upper.join("d/deep")).unwrap();
    let long = "n".repeat(200);
    fs::write(upper.join("d/deep").join(&long), "long").unwrap();
    fs::write(upper.join("a"), "content").unwrap();
    fs::hard_link(upper.join("a"), upper.join("b")).unwrap();
    fs::hard_link(upper.join("a"), session.versions().join("3")).unwrap();
    symlink("../../../../etc/passwd", upper.join("link")).unwrap();
    let sparse = fs::File::create(upper.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 64 << 20).unwrap();
    fs::write(session.journal(), b"").unwrap();
    fs::remove_file(session.journal()).unwrap();
    session.record.argv = vec!["x".into(), "--token".into(), "hunter2".into()];
    session.record.covers = vec![Cover {
        layer: 0,
        mount_point: "/".into(),
        root: RootState {
            mode: 0o700,
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
        },
        staged: false,
        mounted: Some(true),
        below: Vec::new(),
        hides: false,
    }];
    session.record.state = State::Recorded;
    session.save().unwrap();
    session
}

fn archived(store: &Store) -> Vec<u8> {
    let mut archive = Vec::new();
    export(&session(store), false, &mut archive).unwrap();
    archive
}

#[test]
fn a_session_comes_back_elsewhere() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let original = session(&store(here.path()));
    let mut archive = Vec::new();
    export(&original, false, &mut archive).unwrap();
    assert!(
        archive.len() < 64 << 10,
        "holes are not stored: {} bytes",
        archive.len()
    );
    let imported = store(there.path())
        .import(archive.as_slice(), None)
        .unwrap();
    let session = imported.session;
    assert_eq!(imported.former, None);
    assert_eq!(
        (&session.record.id, &session.record.argv),
        (&original.record.id, &original.record.argv)
    );
    assert_eq!(
        (session.record.state, session.record.imported),
        (State::Recorded, true)
    );
    assert!(session.is_locked_exclusively());
    let upper = session.upper(0);
    let long = "n".repeat(200);
    assert_eq!(fs::read(upper.join("d/deep").join(long)).unwrap(), b"long");
    let stat = |name: &str| fs::symlink_metadata(upper.join(name)).unwrap();
    assert_eq!(stat("a").ino(), stat("b").ino());
    assert_eq!(
        stat("a").ino(),
        fs::metadata(session.versions().join("3")).unwrap().ino()
    );
    assert_eq!(
        fs::read_link(upper.join("link")).unwrap(),
        Path::new("../../../../etc/passwd")
    );
    assert_eq!(stat("sparse").len(), (64 << 20) + 3);
    assert!(
        stat("sparse").blocks() < 1024,
        "{}",
        stat("sparse").blocks()
    );
    let before = fs::symlink_metadata(original.upper(0).join("d")).unwrap();
    assert_eq!(
        (stat("d").mtime(), stat("d").mtime_nsec(), stat("d").mode()),
        (before.mtime(), before.mtime_nsec(), before.mode())
    );
}

#[test]
fn ids_and_names_that_are_taken() {
    let here = tempfile::tempdir().unwrap();
    let store = store(here.path());
    let archive = archived(&store);
    let taken = store.import(archive.as_slice(), None);
    assert!(
        matches!(
            taken,
            Err(ImportError::Create(CreateError::NameTaken { .. }))
        ),
        "{taken:?}"
    );
    let imported = store.import(archive.as_slice(), Some("other")).unwrap();
    assert!(imported.former.is_some());
    assert_eq!(store.list().unwrap().sessions.len(), 2);
    assert!(store.import(archive.as_slice(), Some("../x")).is_err());
    assert_eq!(
        fs::read_dir(store.dir().join("sessions")).unwrap().count(),
        2,
        "nothing is left of a refusal"
    );
}

#[test]
fn secrets_are_left_out_when_asked() {
    let here = tempfile::tempdir().unwrap();
    let session = session(&store(here.path()));
    let mut archive = Vec::new();
    assert_eq!(export(&session, true, &mut archive).unwrap().redacted, 1);
    let there = tempfile::tempdir().unwrap();
    let imported = store(there.path())
        .import(archive.as_slice(), None)
        .unwrap();
    assert_eq!(
        imported.session.record.argv[2],
        ByteString::from("[redacted]")
    );
}

/// An archive of a head, a record and these entries.
struct Hostile {
    tar: tar::Builder<GzEncoder<Vec<u8>>>,
}

impl Hostile {
    fn new() -> Self {
        let mut hostile = Self {
            tar: tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast())),
        };
        hostile.file("effigy.json", br#"{"format":1}"#);
        let scratch = tempfile::tempdir().unwrap();
        let record = serde_json::to_vec(&session(&store(scratch.path())).record).unwrap();
        hostile.file("session.json", &record);
        hostile
    }

    fn entry(&mut self, name: &str, kind: EntryType, link: &str, data: &[u8]) {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o4777);
        header.set_uid(nix::unistd::geteuid().as_raw().into());
        header.set_gid(nix::unistd::getegid().as_raw().into());
        header.set_mtime(1);
        header.set_size(data.len() as u64);
        header.set_cksum();
        self.tar.append(&header, data).unwrap();
    }

    fn file(&mut self, name: &str, data: &[u8]) {
        self.entry(name, EntryType::Regular, "", data);
    }

    fn layer(&mut self) {
        for name in ["layers/0", "layers/0/upper"] {
            self.entry(name, EntryType::Directory, "", b"");
        }
    }

    fn done(self) -> Vec<u8> {
        self.tar.into_inner().unwrap().finish().unwrap()
    }
}

/// The archive is refused, and nothing of it is left anywhere.
#[track_caller]
fn refused(make: impl FnOnce(&mut Hostile)) -> ImportError {
    let mut hostile = Hostile::new();
    make(&mut hostile);
    let here = tempfile::tempdir().unwrap();
    let store = store(here.path());
    let error = store.import(hostile.done().as_slice(), None).unwrap_err();
    assert_eq!(
        fs::read_dir(store.dir().join("sessions")).unwrap().count(),
        0,
        "{error}"
    );
    let mut names: Vec<_> = fs::read_dir(here.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.extend(
        fs::read_dir(store.dir())
            .unwrap()
            .map(|entry| entry.unwrap().file_name()),
    );
    names.sort();
    assert_eq!(names, ["lock", "sessions", "store", "trash"], "{error}");
    error
}

#[test]
fn no_entry_gets_outside() {
    for name in [
        "/tmp/x",
        "../x",
        "layers/0/upper/../../../../x",
        "lock",
        "apply/1/plan",
        "kept",
        "layers/0/work",
        "versions/x",
        "session.json/x",
    ] {
        let error = refused(|hostile| {
            hostile.layer();
            hostile.file(name, b"x");
        });
        assert!(
            matches!(error, ImportError::Damaged { .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn no_link_is_followed() {
    let target = tempfile::tempdir().unwrap();
    let through = target.path().to_str().unwrap().to_owned();
    let error = refused(|hostile| {
        hostile.layer();
        hostile.entry("layers/0/upper/l", EntryType::Symlink, &through, b"");
        hostile.file("layers/0/upper/l/x", b"x");
    });
    assert!(
        error.to_string().contains("directory it lies in"),
        "{error}"
    );
    // The layer itself, the directory of versions, and a link over what stands.
    refused(|hostile| hostile.entry("layers/0", EntryType::Symlink, &through, b""));
    refused(|hostile| hostile.entry("versions/1", EntryType::Symlink, &through, b""));
    refused(|hostile| hostile.entry("journal", EntryType::Symlink, "/etc/passwd", b""));
    refused(|hostile| {
        hostile.layer();
        hostile.entry("layers/0/upper/l", EntryType::Symlink, &through, b"");
        hostile.file("layers/0/upper/l", b"x");
    });
    for link in [
        "/etc/passwd",
        "../../../../etc/passwd",
        "session.json",
        "journal",
        "layers/0/upper/nothing",
        "layers/0/upper",
    ] {
        let error = refused(|hostile| {
            hostile.layer();
            hostile.entry("layers/0/upper/x", EntryType::Link, link, b"");
        });
        assert!(
            matches!(error, ImportError::Damaged { .. }),
            "{link}: {error}"
        );
    }
    // A link to a symbolic link is one more name of it, and is not followed either.
    refused(|hostile| {
        hostile.layer();
        hostile.entry("layers/0/upper/l", EntryType::Symlink, &through, b"");
        hostile.entry(
            "layers/0/upper/m",
            EntryType::Link,
            "layers/0/upper/l/x",
            b"",
        );
    });
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}

#[test]
fn what_is_too_large_or_malformed_is_refused() {
    refused(|hostile| hostile.entry("pax", EntryType::XHeader, "", &vec![b'x'; 3 << 20]));
    refused(|hostile| {
        hostile.entry(
            "pax",
            EntryType::XHeader,
            "",
            b"30 path=layers/0/upper/../../x\n",
        );
        hostile.layer();
    });
    refused(|hostile| {
        hostile.entry(
            "pax",
            EntryType::XHeader,
            "",
            b"99999999999999999999 path=x\n",
        )
    });
    refused(|hostile| hostile.file("session.json", &vec![b' '; 5 << 20]));
    refused(|hostile| hostile.file("journal", b"no journal"));
    refused(|hostile| hostile.file("effigy.json", br#"{"format":2}"#));
    refused(|hostile| hostile.entry("layers/0/upper/x", EntryType::GNULongName, "", b"x"));
    refused(|hostile| {
        hostile.layer();
        let list = "27 GNU.sparse.realsize=100\n22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n";
        hostile.entry("pax", EntryType::XHeader, "", list.as_bytes());
        hostile.file("layers/0/upper/x", b"1\n90\n11\n");
    });
    refused(|hostile| hostile.file("session.json", b"{}"));
}

#[test]
fn a_torn_or_damaged_archive_leaves_nothing() {
    let here = tempfile::tempdir().unwrap();
    let archive = archived(&store(here.path()));
    let there = tempfile::tempdir().unwrap();
    let store = store(there.path());
    let left = || fs::read_dir(store.dir().join("sessions")).unwrap().count();
    for len in (0..archive.len()).step_by(97) {
        assert!(store.import(&archive[..len], None).is_err(), "{len} bytes");
        assert_eq!(left(), 0, "{len} bytes");
    }
    let mut plain = Vec::new();
    GzDecoder::new(archive.as_slice())
        .read_to_end(&mut plain)
        .unwrap();
    for at in (0..plain.len()).step_by(499) {
        let mut damaged = plain.clone();
        damaged[at] ^= 0x55;
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&damaged).unwrap();
        if let Ok(imported) = store.import(packed.finish().unwrap().as_slice(), None) {
            store.discard(imported.session).unwrap();
        }
        assert_eq!(left(), 0, "byte {at}");
    }
}

#[test]
fn what_a_killed_import_left_is_swept_up() {
    let here = tempfile::tempdir().unwrap();
    let store = store(here.path());
    let left = store.dir().join("sessions/unpacking.0123");
    fs::create_dir_all(left.join("layers/0/upper")).unwrap();
    assert!(store.list().unwrap().sessions.is_empty());
    assert_eq!(
        store
            .gc(&GcLimits::default(), &mut |_| false)
            .unwrap()
            .remains,
        1
    );
    assert!(!left.exists());
}
