//! Random programs. Names are few, so that they meet.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::step::{Call, Data, How, Mode, Name, Step};

/// What a program may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Powers {
    /// Root: owners are changed. An ordinary user does not touch files that have several names beforehand (docs/LIMITS.md).
    pub(super) root: bool,
    /// Whether descriptors are held over several calls. Without, every call that succeeds is one event.
    pub(super) held: bool,
}

/// What makes a tree, and what changes it.
pub(super) fn case(powers: Powers) -> BoxedStrategy<(Vec<Step>, Vec<Step>)> {
    (any::<bool>(), any::<bool>(), setup(powers), program(powers))
        .prop_map(move |(own, linked, mut setup, mut steps)| {
            setup.retain(|step| can_be_there(powers, own, &step.1));
            // What is no regular file and has several names cannot be changed by root (docs/LIMITS.md).
            setup.retain(|step| match step.1 {
                Call::Link(..) | Call::LinkFollow(..) => linked,
                Call::Fifo(..) => !linked,
                _ => true,
            });
            steps.retain(|step| can_be_done(powers, own, &step.1));
            (setup, steps)
        })
        .boxed()
}

/// What cannot be the same inside (docs/LIMITS.md) is left out. Half of the programs make all directories themselves, and may hold
/// them open; the others find directories, and move them.
fn can_be_there(powers: Powers, own: bool, call: &Call) -> bool {
    match call {
        Call::Mkdir(..) | Call::Symlink(..) => !own,
        Call::Fifo(..) => !own && powers.held,
        Call::Link(..) | Call::LinkFollow(..) => !own && powers.root,
        _ => powers.root || !own,
    }
}

fn can_be_done(powers: Powers, own: bool, call: &Call) -> bool {
    match call {
        Call::Hold(..) | Call::Chdir(_) => own && powers.held,
        Call::Link(..) | Call::LinkFollow(..) => own || powers.root,
        _ => true,
    }
}

/// Makes the tree that a program finds.
fn setup(powers: Powers) -> BoxedStrategy<Vec<Step>> {
    let call = prop_oneof![
        6 => (name(), directory_mode()).prop_map(|(name, mode)| Call::Mkdir(name, mode)),
        8 => (name(), mode(powers), data()).prop_map(|(name, mode, data)| Call::Put(name, How::Creat, mode, data)),
        2 => (name(), name()).prop_map(|(target, name)| Call::Symlink(target, name)),
        1 => (name(), mode(powers)).prop_map(|(name, mode)| Call::Fifo(name, mode)),
        1 => (name(), 0..3_u8, data()).prop_map(|(name, key, data)| Call::Setxattr(name, key, data)),
        3 => (name(), name()).prop_map(|(one, other)| Call::LinkFollow(one, other)),
    ];
    vec(call.prop_map(|call| Step(0, call)), 0..40).boxed()
}

fn program(powers: Powers) -> BoxedStrategy<Vec<Step>> {
    let actor = prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(2)];
    let call = if powers.held {
        prop_oneof![70 => at_once(powers), 30 => held(powers)].boxed()
    } else {
        at_once(powers)
    };
    let step = (actor, call)
        .prop_map(|(actor, call)| Step(actor, call))
        .boxed();
    // Many are short, so that more of them are seen, and some are as long as they get.
    prop_oneof![5 => vec(step.clone(), 1..40), 2 => vec(step.clone(), 40..120), 1 => vec(step, 120..300)].boxed()
}

fn component() -> BoxedStrategy<Vec<u8>> {
    let odd: &[&[u8]] = &[b"e", b"\xff\xfex", b"n\nl"];
    let usual: &[&[u8]] = &[b"a", b"b", b"c"];
    prop_oneof![8 => select(usual), 2 => select(odd)]
        .prop_map(<[u8]>::to_vec)
        .boxed()
}

fn name() -> BoxedStrategy<Name> {
    let base = prop_oneof![9 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    let depth = prop_oneof![10 => Just(1_usize), 7 => Just(2), 2 => Just(3)];
    let path = depth.prop_flat_map(|depth| vec(component(), depth));
    (base, path)
        .prop_map(|(base, path)| Name {
            base,
            path: path.join(&b'/'),
        })
        .boxed()
}

fn directory_mode() -> BoxedStrategy<Mode> {
    select(vec![0o755, 0o755, 0o755, 0o700, 0o777, 0o1777])
        .prop_map(Mode)
        .boxed()
}

fn mode(powers: Powers) -> BoxedStrategy<Mode> {
    // A write by root leaves set-user-id bits alone outside and clears them inside (docs/LIMITS.md).
    let special = if powers.root || !powers.held {
        0o755
    } else {
        0o4755
    };
    let closed = if powers.root { 0 } else { 0o400 };
    prop_oneof![
        8 => select(vec![0o644, 0o600, 0o755, 0o666]),
        1 => select(vec![0o711, 0o444, 0o500, special, closed]),
    ]
    .prop_map(Mode)
    .boxed()
}

/// Like `mode`, for what may be a directory.
fn changed_mode(powers: Powers) -> BoxedStrategy<Mode> {
    match powers.root {
        true => mode(powers),
        false => select(vec![0o644, 0o600, 0o755, 0o666, 0o711, 0o700])
            .prop_map(|mode| Mode(mode | 0o700))
            .boxed(),
    }
}

fn data() -> BoxedStrategy<Data> {
    let len = prop_oneof![200 => 0..40_u32, 30 => 4000..9000_u32, 10 => Just(70_000), 1 => Just(1_100_000)];
    (b'a'..=b'z', len)
        .prop_map(|(byte, len)| Data(byte, len))
        .boxed()
}

fn how() -> BoxedStrategy<How> {
    select(vec![
        How::Creat,
        How::Creat,
        How::Append,
        How::Append,
        How::Exclusive,
        How::NoFollow,
        How::Update,
        How::Empty,
    ])
    .boxed()
}

fn owner() -> BoxedStrategy<Option<u32>> {
    option::of(select(vec![0, 1, 1000, 65534])).boxed()
}

fn time() -> BoxedStrategy<i64> {
    (1_000_000_000..1_000_000_009_i64, 0..3_i64)
        .prop_map(|(sec, nsec)| sec * 1_000_000_000 + nsec)
        .boxed()
}

/// Calls that are over when they return.
fn at_once(powers: Powers) -> BoxedStrategy<Call> {
    let two = || (name(), name());
    let names = prop_oneof![
        9 => (name(), directory_mode()).prop_map(|(name, mode)| Call::Mkdir(name, mode)),
        3 => name().prop_map(Call::Rmdir),
        6 => name().prop_map(Call::Unlink),
        14 => two().prop_map(|(one, other)| Call::Rename(one, other)),
        2 => two().prop_map(|(one, other)| Call::RenameNoreplace(one, other)),
        5 => two().prop_map(|(one, other)| Call::Exchange(one, other)),
        6 => two().prop_map(|(one, other)| Call::Link(one, other)),
        1 => two().prop_map(|(one, other)| Call::LinkFollow(one, other)),
        3 => two().prop_map(|(target, name)| Call::Symlink(target, name)),
        1 => (name(), mode(powers)).prop_map(|(name, mode)| Call::Fifo(name, mode)),
        1 => (name(), mode(powers)).prop_map(|(name, mode)| Call::Node(name, mode)),
    ];
    let attributes = prop_oneof![
        4 => (name(), changed_mode(powers)).prop_map(|(name, mode)| Call::Chmod(name, mode)),
        2 => (name(), time()).prop_map(|(name, time)| Call::Utimens(name, time)),
        1 => (name(), time()).prop_map(|(name, time)| Call::Lutimens(name, time)),
        3 => (name(), 0..3_u8, data()).prop_map(|(name, key, data)| Call::Setxattr(name, key, Data(data.0, data.1 % 900))),
        1 => (name(), 0..3_u8).prop_map(|(name, key)| Call::Removexattr(name, key)),
        2 => (name(), owner(), owner()).prop_map(move |(name, uid, gid)| match powers.root {
            true => Call::Chown(name, uid, gid),
            false => Call::Chown(name, None, None),
        }),
        1 => (name(), owner(), owner()).prop_map(move |(name, uid, gid)| match powers.root {
            true => Call::Lchown(name, uid, gid),
            false => Call::Lchown(name, None, None),
        }),
    ];
    let contents = prop_oneof![
        9 => (name(), how(), mode(powers), data()).prop_map(|(name, how, mode, data)| Call::Put(name, how, mode, data)),
        2 => (name(), 0..100_u32).prop_map(|(name, len)| Call::Truncate(name, len)),
    ];
    let place = prop_oneof![
        2 => (0..2_u8, name()).prop_map(|(slot, name)| Call::Hold(slot, name)),
        1 => option::of(name()).prop_map(Call::Chdir),
        1 => Just(Call::Chdir(None)),
        1 => select(vec![0o022, 0o077, 0o002, 0]).prop_map(|mask| Call::Umask(Mode(mask))),
    ];
    prop_oneof![10 => names, 3 => attributes, 5 => contents, 1 => place].boxed()
}

/// Calls on descriptors that are held meanwhile.
fn held(powers: Powers) -> BoxedStrategy<Call> {
    let slot = || 0..3_u8;
    let nameless = || 3..5_u8;
    let far = || prop_oneof![9 => 0..100_u32, 1 => Just(100_000_u32)];
    let near = || (0..2000_u32, 1..1500_u32);
    prop_oneof![
        8 => (slot(), name(), how(), mode(powers)).prop_map(|(slot, name, how, mode)| Call::Open(slot, name, how, mode)),
        6 => (slot(), data()).prop_map(|(slot, data)| Call::Write(slot, data)),
        2 => (slot(), far(), data()).prop_map(|(slot, at, data)| Call::WriteAt(slot, at, data)),
        1 => (slot(), 0..100_u32).prop_map(|(slot, len)| Call::Ftruncate(slot, len)),
        1 => (slot(), near()).prop_map(|(slot, (at, len))| Call::Fallocate(slot, at, len)),
        1 => (slot(), near()).prop_map(|(slot, (at, len))| Call::PunchHole(slot, at, len)),
        1 => (slot(), mode(powers)).prop_map(|(slot, mode)| Call::Fchmod(slot, mode)),
        1 => (slot(), 0..3_u8, data()).prop_map(|(slot, key, data)| Call::Fsetxattr(slot, key, Data(data.0, data.1 % 900))),
        1 => (slot(), 0..100_u32, b'A'..=b'Z').prop_map(|(slot, at, byte)| Call::Map(slot, at, byte)),
        3 => slot().prop_map(Call::Close),
        2 => (nameless(), name(), mode(powers), data()).prop_map(|(slot, name, mode, data)| Call::Tmpfile(slot, name, mode, data)),
        1 => (nameless(), mode(powers), data())
            .prop_map(|(slot, mode, data)| Call::Tmpfile(slot, Name { base: None, path: b".".to_vec() }, mode, data)),
        3 => (nameless(), name()).prop_map(|(slot, name)| Call::NameTmpfile(slot, name)),
        1 => (slot(), name()).prop_map(|(slot, name)| Call::NameTmpfile(slot, name)),
    ].boxed()
}
