//! Plans laid over sessions whose own plans were other ones.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::*;
use crate::plan::{What, Wishes};

/// Directories (`d`, opaque `o`) and other things (`x`) of uppers and of the real tree.
struct Sketch(BTreeMap<PathBuf, char>);

impl Sketch {
    fn new(lines: &[(&str, char)]) -> Self {
        Self(
            lines
                .iter()
                .map(|(path, kind)| (PathBuf::from(path), *kind))
                .collect(),
        )
    }
}

impl Tree for Sketch {
    fn may_write(&self, _: &Path) -> bool {
        true
    }

    fn may_search(&self, _: &Path) -> bool {
        true
    }

    fn is_foreign(&self, _: &Path) -> bool {
        false
    }

    fn is_directory(&self, path: &Path) -> Option<bool> {
        Some(matches!(self.0.get(path), Some('d' | 'o')))
    }

    fn directories(&self, dir: &Path) -> Option<(Vec<OsString>, bool)> {
        let children = self.0.iter().filter(|(path, _)| path.parent() == Some(dir));
        let (mut names, mut others) = (Vec::new(), false);
        for (path, kind) in children {
            match kind {
                'x' => others = true,
                _ => names.extend(path.file_name().map(OsString::from)),
            }
        }
        Some((names, others))
    }

    fn in_layer(&self, path: &Path) -> InLayer {
        match self.0.get(path) {
            None => InLayer::Nothing,
            Some('x') => InLayer::Other,
            Some(kind) => InLayer::Directory {
                opaque: *kind == 'o',
            },
        }
    }
}

fn mounts(points: &[&str]) -> Vec<Mount> {
    let line = |(number, point): (usize, &&str)| {
        let parent = if number == 0 { 1 } else { 20 };
        format!(
            "{} {parent} 8:{number} / {point} rw - ext4 /dev/sda rw\n",
            number + 20
        )
    };
    let text: String = points.iter().enumerate().map(line).collect();
    mountinfo::parse(text.as_bytes()).expect("mountinfo")
}

fn session(name: &str, covers: &[(&str, &str, bool)]) -> Lower {
    let covers = covers.iter().map(|(point, upper, mounted)| LowerCover {
        mount_point: point.into(),
        upper: upper.into(),
        mounted: Some(*mounted),
        dressed: false,
    });
    Lower {
        name: name.to_owned(),
        covers: covers.collect(),
    }
}

/// Lays a run over sessions: each cover with what lies below it, or the reason why not.
fn laid(points: &[&str], sessions: &[Lower], tree: &Sketch) -> Result<Vec<String>, String> {
    let mounts = mounts(points);
    let wishes = Wishes {
        store: "/store".into(),
        ..Wishes::default()
    };
    let mut plan = Plan::new(&mounts, false, &wishes, tree).expect("a plan");
    plan.lay_over(sessions, &mounts, tree)
        .map_err(|error| error.to_string())?;
    let shown = |(path, cover): (&Path, &Cover)| {
        let layers: Vec<String> = cover
            .below
            .layers
            .iter()
            .map(|dir| dir.display().to_string())
            .collect();
        let end = if cover.below.opaque { " only" } else { "" };
        format!("{} {}{end}", path.display(), layers.join(":"))
            .trim_end()
            .to_owned()
    };
    Ok(plan.covers().map(shown).collect())
}

#[test]
fn layers_lie_in_the_order_of_the_sessions() {
    let tree = Sketch::new(&[
        ("/", 'd'),
        ("/a", 'd'),
        ("/a/f", 'x'),
        ("/b", 'd'),
        ("/b/f", 'x'),
        ("/c", 'd'),
    ]);
    let one = session("one", &[("/", "/a", true)]);
    let two = session("two", &[("/", "/b", true)]);
    let untouched = session("three", &[("/", "/c", true)]);
    assert_eq!(
        laid(&["/"], &[one, untouched, two], &tree).expect("a plan"),
        ["/ /a:/b"]
    );
}

#[test]
fn a_cover_that_only_the_session_had_is_added() {
    let tree = Sketch::new(&[
        ("/", 'd'),
        ("/var/tmp", 'd'),
        ("/a", 'd'),
        ("/a/f", 'x'),
        ("/e", 'd'),
    ]);
    let one = session("one", &[("/", "/e", true), ("/var/tmp", "/a", false)]);
    assert_eq!(
        laid(&["/"], &[one], &tree).expect("a plan"),
        ["/", "/var/tmp /a"]
    );
    let gone = session("one", &[("/srv", "/a", false)]);
    let refused = laid(&["/"], &[gone], &tree).expect_err("nothing to cover");
    assert_eq!(
        refused,
        "show what session one wrote in /srv: the real directory is gone"
    );
}

#[test]
fn a_mount_that_came_or_went_is_told() {
    let tree = Sketch::new(&[
        ("/", 'd'),
        ("/m", 'd'),
        ("/a", 'd'),
        ("/a/m", 'd'),
        ("/a/m/f", 'x'),
    ]);
    let had = session("one", &[("/", "/none", true), ("/m", "/a", true)]);
    let refused = laid(&["/"], &[had], &tree).expect_err("a mount is missing");
    assert!(
        refused.ends_with("the filesystem that was mounted there is not mounted now"),
        "{refused}"
    );
    let lacked = session("one", &[("/", "/a", true)]);
    let refused = laid(&["/", "/m"], &[lacked], &tree).expect_err("a mount hides it");
    assert!(
        refused.ends_with("another filesystem has been mounted there since"),
        "{refused}"
    );
    let beside = session("one", &[("/", "/a/m", true)]);
    assert_eq!(
        laid(&["/", "/m"], &[beside], &tree).expect("a plan"),
        ["/ /a/m", "/m"]
    );
}

#[test]
fn a_cover_that_the_session_lacked_takes_its_part() {
    let tree = Sketch::new(&[
        ("/", 'd'),
        ("/w", 'd'),
        ("/one", 'd'),
        ("/one/f", 'x'),
        ("/two", 'd'),
        ("/two/w", 'o'),
        ("/three", 'd'),
        ("/three/w", 'd'),
        ("/four", 'd'),
        ("/four/w", 'x'),
    ]);
    let with = session("with", &[("/", "/none", true), ("/w", "/one", false)]);
    let without = |upper: &str| session("without", &[("/", upper, true)]);
    let merged = laid(&["/"], &[with.clone(), without("/three")], &tree);
    assert_eq!(merged.expect("a plan"), ["/ /three", "/w /one:/three/w"]);
    let opaque = laid(
        &["/"],
        &[with.clone(), without("/two"), without("/three")],
        &tree,
    );
    assert_eq!(
        opaque.expect("a plan"),
        ["/ /two:/three", "/w /one:/two/w only"]
    );
    let removed = laid(&["/"], &[with.clone(), without("/four")], &tree).expect_err("it is gone");
    assert!(
        removed.contains("session without wrote in /w: it removed the directory"),
        "{removed}"
    );
    // Removed by the upper one: what is made there anew is made in the cover around it.
    let removed = laid(&["/"], &[without("/four"), with], &tree);
    assert_eq!(removed.expect("a plan"), ["/ /four"]);
}

#[test]
fn a_session_that_goes_on_keeps_its_layers() {
    let tree = Sketch::new(&[
        ("/", 'd'),
        ("/w", 'd'),
        ("/a", 'd'),
        ("/a/w", 'd'),
        ("/b", 'd'),
        ("/b/f", 'x'),
    ]);
    let mounts = mounts(&["/", "/m"]);
    let wishes = Wishes {
        store: "/store".into(),
        ..Wishes::default()
    };
    let mut plan = Plan::new(&mounts, false, &wishes, &tree).expect("a plan");
    let own = session("own", &[("/", "/a", true), ("/w", "/b", false)]);
    let layers = [("/".into(), 3), ("/w".into(), 7)];
    plan.go_on(&own, &layers, &[], &mounts, &tree)
        .expect("it can");
    let shown: Vec<(&Path, u32, bool)> = plan
        .covers()
        .map(|(path, cover)| (path, cover.layer, cover.resumed))
        .collect();
    assert_eq!(
        shown,
        [(Path::new("/"), 3, true), (Path::new("/w"), 7, true)]
    );
    assert!(
        plan.places
            .iter()
            .all(|place| !matches!(&place.what, What::Cover(cover) if cover.staged))
    );
}
