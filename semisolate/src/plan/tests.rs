//! Plans for recorded machines. Each fixture holds the text of a mountinfo file, a sketch of the tree, the wishes of a run, and the
//! places expected for an ordinary user (whose inherited mounts are locked) and for real root.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

/// What a fixture says about a path; directories that lead to one, and mount points, are `Readable` unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `own`: a directory of the user's.
    Own,
    /// `shared`: another's, but the user may write in it.
    Shared,
    /// `dir`: another's, with something in it, not writable.
    Readable,
    /// `empty`: the same with nothing in it.
    Empty,
    /// `closed`: another's, which the user may neither read nor search.
    Closed,
    /// `file`: no directory.
    File,
    /// `private`: the user's own FUSE mount, into which root cannot look.
    Private,
}

struct Sketch {
    kinds: BTreeMap<PathBuf, Kind>,
    root: bool,
}

impl Sketch {
    fn kind(&self, path: &Path) -> Option<Kind> {
        self.kinds.get(path).copied()
    }

    fn may_look_at(&self, path: &Path) -> bool {
        let reached = path.ancestors().skip(1).all(|dir| self.may_search(dir));
        reached && !(self.root && self.kind(path) == Some(Kind::Private))
    }

    /// The children of `dir`, directories or not.
    fn children(&self, dir: &Path) -> impl Iterator<Item = (&PathBuf, Kind)> {
        self.kinds
            .iter()
            .filter(move |(path, _)| path.parent() == Some(dir))
            .map(|(path, kind)| (path, *kind))
    }
}

impl Tree for Sketch {
    fn may_write(&self, dir: &Path) -> bool {
        match self.kind(dir) {
            Some(Kind::Own | Kind::Shared) => self.root || self.may_look_at(dir),
            Some(Kind::Private) => !self.root && self.may_look_at(dir),
            Some(_) => self.root,
            None => false,
        }
    }

    fn may_search(&self, dir: &Path) -> bool {
        match self.kind(dir) {
            Some(Kind::Closed) => self.root,
            Some(Kind::Private) => !self.root,
            Some(Kind::File) | None => false,
            Some(_) => true,
        }
    }

    fn is_foreign(&self, dir: &Path) -> bool {
        !self.root && !matches!(self.kind(dir), Some(Kind::Own | Kind::Private))
    }

    fn is_directory(&self, path: &Path) -> Option<bool> {
        let kind = self.kind(path)?;
        self.may_look_at(path).then_some(kind != Kind::File)
    }

    fn directories(&self, dir: &Path) -> Option<(Vec<OsString>, bool)> {
        let readable = self.is_directory(dir)? && self.may_search(dir);
        let names = self
            .children(dir)
            .filter(|(_, kind)| *kind != Kind::File)
            .filter_map(|(path, _)| path.file_name().map(OsStr::to_owned))
            .collect();
        readable.then_some((names, self.kind(dir) != Some(Kind::Empty)))
    }

    fn in_layer(&self, _: &Path) -> InLayer {
        InLayer::Nothing
    }
}

struct Fixture {
    name: &'static str,
    mounts: Vec<Mount>,
    kinds: BTreeMap<PathBuf, Kind>,
    wishes: Wishes,
    expected_for_user: String,
    expected_for_root: String,
}

impl Fixture {
    fn read(name: &'static str, text: &[u8]) -> Self {
        let section = |title: &str| -> Vec<&[u8]> {
            let heading = format!("== {title}");
            text.split(|&byte| byte == b'\n')
                .skip_while(|line| *line != heading.as_bytes())
                .skip(1)
                .take_while(|line| !line.starts_with(b"== "))
                .filter(|line| !line.is_empty())
                .collect()
        };
        let expected = |title| {
            section(title)
                .iter()
                .map(|line| format!("{}\n", std::str::from_utf8(line).expect("text")))
                .collect()
        };
        let mounts =
            mountinfo::parse(&section("mounts").join(&b'\n')).expect("the fixture's mountinfo");
        let mut kinds = BTreeMap::new();
        for line in section("tree") {
            let (word, path) = word_and_path(line);
            let kind = match word {
                "own" => Kind::Own,
                "shared" => Kind::Shared,
                "dir" => Kind::Readable,
                "empty" => Kind::Empty,
                "closed" => Kind::Closed,
                "file" => Kind::File,
                "private" => Kind::Private,
                other => panic!("{name}: {other} is no kind of path"),
            };
            kinds.insert(path, kind);
        }
        let mounted = mountinfo::reachable(&mounts)
            .into_iter()
            .map(|mount| &mount.mount_point);
        let mentioned: Vec<PathBuf> = kinds.keys().chain(mounted).cloned().collect();
        for path in mentioned.iter().flat_map(|path| path.ancestors()) {
            kinds.entry(path.to_path_buf()).or_insert(Kind::Readable);
        }
        let mut wishes = Wishes::default();
        for line in section("wishes") {
            match word_and_path(line) {
                ("cwd", path) => wishes.working_directory = path,
                ("home", path) => wishes.likely.push(path),
                ("store", path) => wishes.store = path,
                (other, _) => panic!("{name}: {other} is no wish"),
            }
        }
        Self {
            name,
            mounts,
            kinds,
            wishes,
            expected_for_user: expected("user"),
            expected_for_root: expected("root"),
        }
    }

    fn sketch(&self, root: bool) -> Sketch {
        Sketch {
            kinds: self.kinds.clone(),
            root,
        }
    }

    fn plan(&self, root: bool) -> Plan {
        self.plan_with(root, &self.wishes).expect("a plan")
    }

    fn plan_with(&self, root: bool, wishes: &Wishes) -> Result<Plan, PlanError> {
        Plan::new(&self.mounts, !root, wishes, &self.sketch(root))
    }

    fn hiding(&self, paths: &[&str]) -> Wishes {
        Wishes {
            hide: paths.iter().map(PathBuf::from).collect(),
            ..self.wishes.clone()
        }
    }

    fn read_only(&self, paths: &[&str]) -> Wishes {
        Wishes {
            read_only: paths.iter().map(PathBuf::from).collect(),
            ..self.wishes.clone()
        }
    }
}

fn word_and_path(line: &[u8]) -> (&str, PathBuf) {
    let space = line
        .iter()
        .position(|&byte| byte == b' ')
        .expect("a word and a path");
    let word = std::str::from_utf8(&line[..space]).expect("a word");
    (word, PathBuf::from(OsStr::from_bytes(&line[space + 1..])))
}

macro_rules! fixtures {
    ($($name:ident)*) => {
        fn fixtures() -> Vec<Fixture> {
            vec![$(Fixture::read(stringify!($name), include_bytes!(concat!("fixtures/", stringify!($name), ".txt"))),)*]
        }

        $(mod $name {
            #[test]
            fn is_planned_as_expected_for_an_ordinary_user() {
                super::as_expected(stringify!($name), false);
            }

            #[test]
            fn is_planned_as_expected_for_root() {
                super::as_expected(stringify!($name), true);
            }
        })*
    };
}

fixtures! {
    chroot_with_proc ci_machine debian_separate_home docker_host docker_root fedora_btrfs fuse_below_home home_in_shared_memory
    nested_binds nfs_home nixos read_only_root stacked_and_odd_names steam_deck ubuntu_snaps wsl2
}

fn fixture(name: &str) -> Fixture {
    fixtures()
        .into_iter()
        .find(|fixture| fixture.name == name)
        .expect("a fixture of that name")
}

fn as_expected(name: &str, root: bool) {
    let fixture = fixture(name);
    let expected = if root {
        &fixture.expected_for_root
    } else {
        &fixture.expected_for_user
    };
    let planned = rendered(&fixture.plan(root));
    assert!(
        planned == *expected,
        "{name}: planned\n{planned}\nexpected\n{expected}"
    );
}

/// One line a place.
fn rendered(plan: &Plan) -> String {
    let line = |place: &Place| {
        format!(
            "{} {}\n",
            place.path.as_os_str().as_bytes().escape_ascii(),
            words(&place.what)
        )
    };
    plan.places.iter().map(line).collect()
}

fn words(what: &What) -> String {
    match what {
        What::Base => "base".to_owned(),
        What::Cover(cover) => {
            let restrictions = cover.restrictions;
            let mut words = vec![format!("cover {}", cover.layer)];
            let flags = [
                (cover.staged, "staged"),
                (restrictions.nosuid, "nosuid"),
                (restrictions.nodev, "nodev"),
                (restrictions.noexec, "noexec"),
                (restrictions.noatime, "noatime"),
            ];
            words.extend(
                flags
                    .iter()
                    .filter(|(set, _)| *set)
                    .map(|(_, word)| (*word).to_owned()),
            );
            words.extend(
                cover
                    .hidden
                    .iter()
                    .map(|name| format!("without {}", name.as_bytes().escape_ascii())),
            );
            words.join(" ")
        }
        What::Bind { reason: None } => "bind".to_owned(),
        What::Bind {
            reason: Some(reason),
        } => format!("bind: {reason}"),
        What::Devices => "devices".to_owned(),
        What::SharedMemory => "shared memory".to_owned(),
        What::Processes => "processes".to_owned(),
        What::Mask => "mask".to_owned(),
        What::ReadOnly => "read-only".to_owned(),
        What::Open => "open".to_owned(),
        What::Lock { except } => format!("lock all but {except:?}"),
        What::Denied => "denied".to_owned(),
        What::Socket => "socket".to_owned(),
    }
}

/// Every plan that the fixtures give, with what it was made from.
fn every_plan(mut check: impl FnMut(&Fixture, &Sketch, &Plan)) {
    for fixture in fixtures() {
        for root in [false, true] {
            check(&fixture, &fixture.sketch(root), &fixture.plan(root));
        }
    }
}

/// What shows at `path`: the last place at or above it.
fn shown<'p>(plan: &'p Plan, path: &Path) -> Option<&'p Place> {
    plan.places
        .iter()
        .rfind(|place| path.starts_with(&place.path))
}

/// The reachable mount that holds `path`.
fn mount_of<'m>(mounts: &'m [Mount], path: &Path) -> &'m Mount {
    let reachable = mountinfo::reachable(mounts);
    reachable
        .into_iter()
        .rfind(|mount| path.starts_with(&mount.mount_point))
        .expect("a mount at the root")
}

fn is_made_anew(path: &Path) -> bool {
    ["/proc", "/dev", "/sys"]
        .iter()
        .any(|dir| path.starts_with(dir))
}

#[test]
fn what_can_be_written_outside_is_captured_or_named() {
    every_plan(|fixture, tree, plan| {
        for path in tree
            .kinds
            .keys()
            .filter(|path| tree.may_write(path) && !is_made_anew(path))
        {
            let mount = mount_of(&fixture.mounts, path);
            let pseudo = mount.is_read_only() || PSEUDO.contains(&mount.kind.as_str());
            if pseudo
                || tree.is_directory(path).is_none()
                || path.starts_with(&fixture.wishes.store)
            {
                continue;
            }
            let place = shown(plan, path).expect("a place at the root");
            let captured = match &place.what {
                What::Cover(cover) => {
                    place.path.starts_with(&mount.mount_point)
                        && (!cover.staged || place.path == *path)
                }
                What::Bind { reason } => reason.is_some(),
                What::SharedMemory => true,
                _ => false,
            };
            // An ordinary user may not touch the root directory of most machines; root in a container may.
            assert!(
                captured,
                "{}: {} shows {}",
                fixture.name,
                path.display(),
                words(&place.what)
            );
        }
    });
}

#[test]
fn every_reachable_mount_shows_itself() {
    every_plan(|fixture, tree, plan| {
        for mount in mountinfo::reachable(&fixture.mounts) {
            let path = &mount.mount_point;
            if path.starts_with("/proc")
                || path.starts_with("/dev")
                || tree.is_directory(path) != Some(true)
            {
                continue;
            }
            let place = shown(plan, path).expect("a place at the root");
            // A base or a bind of a directory above shows the mounts below it too when mounts are locked.
            let shows = place.path == *path
                || (plan.locked && matches!(place.what, What::Base | What::Bind { .. }));
            assert!(
                shows,
                "{}: {} is hidden by {} {}",
                fixture.name,
                path.display(),
                place.path.display(),
                words(&place.what)
            );
        }
    });
}

#[test]
fn parents_come_before_children() {
    every_plan(|fixture, _, plan| {
        for (index, place) in plan.places.iter().enumerate() {
            let early = plan.places[..index].iter().find(|earlier| {
                earlier.path != place.path && earlier.path.starts_with(&place.path)
            });
            assert!(
                early.is_none(),
                "{}: {:?} comes before {}",
                fixture.name,
                early,
                place.path.display()
            );
        }
    });
}

#[test]
fn a_path_is_placed_once() {
    every_plan(|fixture, _, plan| {
        for pair in plan.places.windows(2) {
            let on_purpose = pair[0].what == What::Base || pair[1].what == What::Devices;
            let twice = pair[0].path == pair[1].path && !on_purpose;
            assert!(!twice, "{}: {:?}", fixture.name, pair);
        }
    });
}

#[test]
fn no_cover_of_a_user_holds_a_locked_mount() {
    every_plan(|fixture, _, plan| {
        for (path, cover) in plan.covers() {
            if cover.staged {
                assert!(
                    plan.locked,
                    "{}: {} is staged without need",
                    fixture.name,
                    path.display()
                );
                continue;
            }
            let mount = mount_of(&fixture.mounts, path);
            let below = mountinfo::attached(&fixture.mounts, mount)
                .into_iter()
                .find(|point| point.starts_with(path));
            assert!(
                !plan.locked || below.is_none(),
                "{}: {} holds {below:?}",
                fixture.name,
                path.display()
            );
        }
    });
}

#[test]
fn a_staged_directory_leaves_no_directory_empty() {
    every_plan(|fixture, tree, plan| {
        for (staged, _) in plan.covers().filter(|(_, cover)| cover.staged) {
            for (child, kind) in tree.children(staged) {
                let placed = plan.places.iter().any(|place| place.path == *child);
                assert!(
                    placed || kind == Kind::File,
                    "{}: nothing shows at {}",
                    fixture.name,
                    child.display()
                );
            }
        }
    });
}

#[test]
fn layers_are_numbered_in_order() {
    every_plan(|fixture, _, plan| {
        let numbers: Vec<u32> = plan.covers().map(|(_, cover)| cover.layer).collect();
        let expected: Vec<u32> = (0..).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "{}", fixture.name);
    });
}

#[test]
fn directories_of_others_that_a_user_may_write_to_get_covers_of_their_own() {
    every_plan(|fixture, tree, plan| {
        if !plan.locked {
            return;
        }
        for (root, _) in plan.covers().filter(|(_, cover)| !cover.staged) {
            for (child, kind) in tree
                .children(root)
                .filter(|(_, kind)| *kind == Kind::Shared)
            {
                let own = plan.covers().any(|(path, _)| path == child);
                assert!(
                    own,
                    "{}: {} ({kind:?}) has no cover of its own",
                    fixture.name,
                    child.display()
                );
            }
        }
    });
}

#[test]
fn the_sessions_are_masked_and_nothing_is_placed_among_them() {
    every_plan(|fixture, _, plan| {
        let within: Vec<&Place> = plan
            .places
            .iter()
            .filter(|place| place.path.starts_with(&fixture.wishes.store))
            .collect();
        assert!(
            matches!(
                &within[..],
                [Place {
                    what: What::Mask,
                    ..
                }]
            ),
            "{}: {within:?}",
            fixture.name
        );
    });
    let fixture = fixture("fuse_below_home");
    let wishes = Wishes {
        store: PathBuf::from("/home/alice/remote"),
        ..fixture.wishes.clone()
    };
    let plan = fixture.plan_with(false, &wishes).expect("a plan");
    let within = plan
        .places
        .iter()
        .filter(|place| place.path.starts_with("/home/alice/remote"));
    assert_eq!(
        within.map(|place| &place.what).collect::<Vec<_>>(),
        [&What::Mask]
    );
}

#[test]
fn a_hidden_name_is_missing_from_the_cover_of_its_parent() {
    for (root, machine) in [
        (false, "debian_separate_home"),
        (true, "debian_separate_home"),
        (true, "ubuntu_snaps"),
    ] {
        let fixture = fixture(machine);
        let plan = fixture
            .plan_with(
                root,
                &fixture.hiding(&["/home/alice/.ssh", "/home/alice/.gnupg"]),
            )
            .expect("a plan");
        let (_, cover) = plan
            .covers()
            .find(|(path, _)| *path == Path::new("/home/alice"))
            .expect("a cover of the home");
        assert_eq!(cover.hidden, [".ssh", ".gnupg"], "{machine}, root: {root}");
        assert_eq!(
            plan.covers()
                .filter(|(_, cover)| !cover.hidden.is_empty())
                .count(),
            1
        );
        let numbers: Vec<u32> = plan.covers().map(|(_, cover)| cover.layer).collect();
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "{numbers:?}"
        );
    }
}

#[test]
fn a_hidden_mount_is_not_placed() {
    let fixture = fixture("fuse_below_home");
    for root in [false, true] {
        let plan = fixture
            .plan_with(root, &fixture.hiding(&["/home/alice/remote"]))
            .expect("a plan");
        let below: Vec<&Place> = plan
            .places
            .iter()
            .filter(|place| place.path.starts_with("/home/alice/remote"))
            .collect();
        assert!(below.is_empty(), "root: {root}: {below:?}");
        let (_, cover) = plan
            .covers()
            .find(|(path, _)| *path == Path::new("/home/alice"))
            .expect("a cover of the home");
        assert_eq!(cover.hidden, ["remote"]);
    }
}

#[test]
fn what_is_hidden_with_its_parent_needs_no_cover_of_its_own() {
    let fixture = fixture("debian_separate_home");
    let outer = fixture.plan_with(true, &fixture.hiding(&["/home/alice"]));
    assert!(outer.is_err(), "the working directory lies in it");
    for order in [["/srv", "/srv/secret"], ["/srv/secret", "/srv"]] {
        let plan = fixture
            .plan_with(true, &fixture.hiding(&order))
            .expect("a plan");
        assert!(
            !plan
                .places
                .iter()
                .any(|place| place.path.starts_with("/srv")),
            "{order:?}"
        );
        let (_, cover) = plan.covers().next().expect("a cover of the root");
        assert_eq!(cover.hidden, ["srv"]);
    }
}

#[test]
fn what_cannot_be_hidden_is_refused_with_the_reason() {
    let fixture = fixture("ubuntu_snaps");
    let cases = [
        ("/", "root directory"),
        ("/proc/1", "made anew"),
        ("/dev/null", "made anew"),
        ("/sys/kernel/debug", "not overlaid"),
        ("/snap/core22/1122/bin", "not overlaid"),
        ("/home/alice/project", "is to run in it"),
        ("/home/alice", "sessions"),
        ("/home/alice/.local/state/effigy/x", "sessions"),
    ];
    for (path, why) in cases {
        for root in [false, true] {
            let error = fixture
                .plan_with(root, &fixture.hiding(&[path]))
                .expect_err(path)
                .to_string();
            assert!(
                error.contains(path) && error.contains(why),
                "{path}: {error}"
            );
        }
    }
    let error = fixture
        .plan_with(false, &fixture.hiding(&["/boot"]))
        .expect_err("/boot")
        .to_string();
    assert!(
        error.contains("/boot") && error.contains("mounts beside it"),
        "{error}"
    );
}

#[test]
fn what_makes_a_tree_read_only_comes_after_all_that_is_laid_into_it() {
    for name in ["debian_separate_home", "steam_deck"] {
        let fixture = fixture(name);
        for root in [false, true] {
            let plan = fixture
                .plan_with(root, &fixture.read_only(&["/var", "/home/alice"]))
                .expect("a plan");
            let (before, last) = plan.places.split_at(plan.places.len() - 2);
            let last: Vec<_> = last
                .iter()
                .map(|place| (place.path.as_path(), &place.what))
                .collect();
            assert_eq!(
                last,
                [
                    (Path::new("/home/alice"), &What::ReadOnly),
                    (Path::new("/var"), &What::ReadOnly)
                ],
                "{name}, root: {root}"
            );
            assert!(before.iter().all(|place| place.what != What::ReadOnly));
            assert!(before.iter().any(
                |place| place.path.starts_with("/var") && matches!(place.what, What::Cover(_))
            ));
        }
    }
}

#[test]
fn a_working_directory_in_shared_memory_is_covered() {
    let fixture = fixture("debian_separate_home");
    let mut kinds = fixture.kinds.clone();
    kinds.insert("/dev/shm".into(), Kind::Shared);
    kinds.insert("/dev/shm/work".into(), Kind::Own);
    for root in [false, true] {
        let wishes = Wishes {
            working_directory: "/dev/shm/work".into(),
            ..fixture.wishes.clone()
        };
        let tree = Sketch {
            kinds: kinds.clone(),
            root,
        };
        let plan = Plan::new(&fixture.mounts, !root, &wishes, &tree).expect("a plan");
        assert!(
            plan.covers().any(|(path, _)| path == Path::new("/dev/shm")),
            "root: {root}"
        );
        assert!(
            !plan
                .places
                .iter()
                .any(|place| place.what == What::SharedMemory),
            "root: {root}"
        );
    }
    // For temporary files a private one serves as well.
    let wishes = Wishes {
        likely: vec!["/dev/shm".into()],
        ..fixture.wishes.clone()
    };
    let plan = fixture.plan_with(false, &wishes).expect("a plan");
    assert!(
        plan.places
            .iter()
            .any(|place| place.what == What::SharedMemory)
    );
}

#[test]
fn a_foreign_working_directory_is_covered_with_the_directories_in_it() {
    let fixture = fixture("debian_separate_home");
    let mut kinds = fixture.kinds.clone();
    for path in [
        "/srv/team",
        "/srv/team/site",
        "/srv/team/site/pages",
        "/srv/team/site/pages/en",
    ] {
        kinds.insert(path.into(), Kind::Shared);
    }
    kinds.insert("/srv".into(), Kind::Readable);
    kinds.insert("/srv/team/site/vendor".into(), Kind::Readable);
    let tree = Sketch { kinds, root: false };
    let wishes = Wishes {
        working_directory: "/srv/team/site".into(),
        ..fixture.wishes.clone()
    };
    let plan = Plan::new(&fixture.mounts, true, &wishes, &tree).expect("a plan");
    let covers: Vec<&Path> = plan
        .covers()
        .map(|(path, _)| path)
        .filter(|path| path.starts_with("/srv"))
        .collect();
    let expected = [
        "/srv",
        "/srv/team",
        "/srv/team/site",
        "/srv/team/site/pages",
        "/srv/team/site/pages/en",
    ];
    assert_eq!(covers, expected.map(Path::new));
}

#[test]
fn own_directories_below_a_foreign_one_get_covers_on_the_way_to_where_the_user_works() {
    let fixture = fixture("debian_separate_home");
    let mut kinds = fixture.kinds.clone();
    for path in ["/var/www", "/var/www/sites", "/var/www/other"] {
        kinds.insert(path.into(), Kind::Readable);
    }
    for path in [
        "/var/www/sites/mine",
        "/var/www/sites/mine/pages",
        "/var/www/sites/too",
        "/home/physics/alice",
        "/home/physics/alice/in",
    ] {
        kinds.insert(path.into(), Kind::Own);
    }
    kinds.insert("/home/physics".into(), Kind::Readable);
    let tree = Sketch { kinds, root: false };
    let wishes = Wishes {
        working_directory: "/var/www/sites/mine/pages".into(),
        likely: vec!["/home/physics/alice".into()],
        ..fixture.wishes.clone()
    };
    let plan = Plan::new(&fixture.mounts, true, &wishes, &tree).expect("a plan");
    let covers: Vec<&Path> = plan
        .covers()
        .map(|(path, _)| path)
        .filter(|path| path.starts_with("/var/www") || path.starts_with("/home"))
        .collect();
    let expected = [
        "/home",
        "/home/physics/alice",
        "/var/www/sites/mine",
        "/var/www/sites/too",
    ];
    assert_eq!(covers, expected.map(Path::new));
}

#[test]
fn a_socket_is_placed_over_what_covers_its_directory() {
    let fixture = fixture("ubuntu_snaps");
    let socket = Path::new("/run/user/1000/bus");
    let wishes = Wishes {
        sockets: vec![socket.to_path_buf()],
        ..fixture.wishes.clone()
    };
    for root in [false, true] {
        let plan = fixture.plan_with(root, &wishes).expect("a plan");
        let place = plan.places.iter().find(|place| place.path == socket);
        assert_eq!(place.map(|place| &place.what), Some(&What::Socket));
        let above = shown(&plan, Path::new("/run/user/1000")).expect("a place");
        assert!(matches!(above.what, What::Cover(_)), "{above:?}");
    }
}

#[test]
fn without_a_root_mount_there_is_no_plan() {
    let fixture = fixture("ci_machine");
    let rootless: Vec<Mount> = fixture
        .mounts
        .iter()
        .filter(|mount| mount.mount_point != Path::new("/"))
        .cloned()
        .collect();
    let error =
        Plan::new(&rootless, true, &fixture.wishes, &fixture.sketch(false)).expect_err("no root");
    assert!(matches!(error, PlanError::NoRoot));
}

#[test]
fn what_confines_comes_last_and_in_its_order() {
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    for name in ["debian_separate_home", "steam_deck"] {
        let fixture = fixture(name);
        for root in [true, false] {
            let wishes = Wishes {
                write: paths(&["/home", "/tmp"]),
                read_only: paths(&["/home/alice"]),
                deny_read: paths(&["/etc/shadow"]),
                ..fixture.read_only(&[])
            };
            let plan = fixture.plan_with(root, &wishes).expect("a plan");
            let confining = plan
                .places
                .iter()
                .skip_while(|place| !place.what.confines());
            let found: Vec<(&Path, &What)> = confining
                .map(|place| (place.path.as_path(), &place.what))
                .collect();
            let except = wishes.write.clone();
            assert_eq!(
                found,
                [
                    (Path::new("/home"), &What::Open),
                    (Path::new("/tmp"), &What::Open),
                    (Path::new("/"), &What::Lock { except }),
                    (Path::new("/home/alice"), &What::ReadOnly),
                    (Path::new("/etc/shadow"), &What::Denied),
                ],
                "{name}, root: {root}"
            );
        }
    }
}
