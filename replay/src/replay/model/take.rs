//! What each effect does to names and objects, and what it rests on.

use super::*;

impl Model {
    fn make(&mut self, at: At, path: PathId, kind: Kind, paths: &Paths) -> Fact {
        let slot = self.slot(path, paths);
        let mut needs = Vec::new();
        self.chain(slot.dir, &mut needs);
        let room = self.known(slot).0.vacated_by;
        let obj = self.add(Born::Made(at), Some(kind));
        self.object_mut(obj).effects = 1;
        self.bind(slot, obj, at);
        Fact {
            act: Act::Bind { to: slot, obj },
            needs,
            room,
        }
    }

    fn set(&mut self, path: PathId, paths: &Paths) -> Fact {
        let slot = self.slot(path, paths);
        let mut needs = Vec::new();
        self.chain(slot.dir, &mut needs);
        let obj = if slot.dir == ROOT && self.name(slot).is_empty() {
            ROOT
        } else {
            self.occupant(slot)
        };
        needs.extend(self.entry(slot).bound_by);
        self.object_mut(obj).effects += 1;
        Fact {
            act: Act::Set { obj },
            needs,
            room: None,
        }
    }

    fn content(&mut self, fact: &Fact, version: Option<VersionId>) {
        let (Act::Set { obj } | Act::Bind { obj, .. }) = fact.act else {
            return;
        };
        if let Some(version) = version {
            self.object_mut(obj).version = Some(version);
            self.holders.insert(version, obj);
        }
    }

    fn remove(&mut self, at: At, path: PathId, paths: &Paths) -> Fact {
        let slot = self.slot(path, paths);
        let mut needs = Vec::new();
        self.chain(slot.dir, &mut needs);
        let obj = self.occupant(slot);
        needs.extend(self.entry(slot).bound_by);
        self.vacate(slot, obj, at);
        Fact {
            act: Act::Unbind { from: slot, obj },
            needs,
            room: None,
        }
    }

    /// Takes in what the session found at a path when it first met it: of what is there at this moment, and not of what comes to
    /// have that path later.
    pub(crate) fn met(&mut self, path: PathId, stat: Stat, paths: &Paths) {
        let slot = self.slot(path, paths);
        self.before.entry(slot).or_insert(stat);
    }

    /// Takes the next effect in.
    pub(crate) fn take(&mut self, at: At, op: &Op, paths: &Paths) -> Fact {
        let nothing = Fact {
            act: Act::Nothing,
            needs: Vec::new(),
            room: None,
        };
        match *op {
            Op::Open {
                path,
                created: true,
                version,
                ..
            } => {
                let fact = self.make(at, path, Kind::File, paths);
                self.content(&fact, version);
                fact
            }
            Op::Open {
                path,
                version: version @ Some(_),
                ..
            }
            | Op::Truncate { path, version, .. } => {
                let fact = self.set(path, paths);
                self.content(&fact, version);
                fact
            }
            Op::Open { .. } => nothing,
            Op::Mkdir { path, .. } => self.make(at, path, Kind::Directory, paths),
            Op::Symlink { path, .. } => self.make(at, path, Kind::Symlink, paths),
            Op::Bind { path, .. } => self.make(at, path, Kind::Socket, paths),
            Op::Mknod { path, mode, .. } => {
                let kind = Kind::of_mode(mode).unwrap_or(Kind::File);
                self.make(at, path, kind, paths)
            }
            Op::Rmdir { path } | Op::Unlink { path } => self.remove(at, path, paths),
            Op::Chmod { path, .. }
            | Op::Chown { path, .. }
            | Op::Utimens { path, .. }
            | Op::Setxattr { path, .. }
            | Op::Removexattr { path, .. } => self.set(path, paths),
            Op::Rename {
                from, to, replaced, ..
            } => self.rename(at, (from, to), replaced, paths),
            Op::Exchange { path, to } => self.exchange(at, (path, to), paths),
            Op::Link { from, to } => {
                let source = self.slot(from, paths);
                let slot = self.slot(to, paths);
                let mut needs = Vec::new();
                self.chain(source.dir, &mut needs);
                self.chain(slot.dir, &mut needs);
                let obj = self.occupant(source);
                needs.extend(self.entry(source).bound_by);
                let room = self.known(slot).0.vacated_by;
                let object = self.object_mut(obj);
                object.effects += 1;
                object.kind.get_or_insert(Kind::File);
                self.bind(slot, obj, at);
                Fact {
                    act: Act::Bind { to: slot, obj },
                    needs,
                    room,
                }
            }
            Op::Settle {
                path,
                ref state,
                version,
            } => match state.as_deref() {
                None => self.remove(at, path, paths),
                Some(stat) => {
                    let slot = self.slot(path, paths);
                    let fact = if self.entry(slot).now.is_some() {
                        self.set(path, paths)
                    } else {
                        self.make(at, path, stat.kind, paths)
                    };
                    self.content(&fact, version);
                    fact
                }
            },
            _ => nothing,
        }
    }

    fn rename(
        &mut self,
        at: At,
        (from, to): (PathId, PathId),
        replaced: bool,
        paths: &Paths,
    ) -> Fact {
        let source = self.slot(from, paths);
        let target = self.slot(to, paths);
        let mut needs = Vec::new();
        self.chain(source.dir, &mut needs);
        self.chain(target.dir, &mut needs);
        let obj = self.occupant(source);
        needs.extend(self.entry(source).bound_by);
        let over = if replaced {
            Some(self.occupant(target))
        } else {
            self.known(target).0.now
        };
        if over == Some(obj) {
            return Fact {
                act: Act::Nothing,
                needs: Vec::new(),
                room: None,
            };
        }
        let room = self.entry(target).vacated_by;
        self.vacate(source, obj, at);
        if let Some(over) = over {
            self.vacate(target, over, at);
        }
        self.bind(target, obj, at);
        let act = Act::Move {
            from: source,
            to: target,
            obj,
            over,
        };
        Fact { act, needs, room }
    }

    fn exchange(&mut self, at: At, (one, other): (PathId, PathId), paths: &Paths) -> Fact {
        let first = self.slot(one, paths);
        let second = self.slot(other, paths);
        let mut needs = Vec::new();
        self.chain(first.dir, &mut needs);
        self.chain(second.dir, &mut needs);
        let x = self.occupant(first);
        let y = self.occupant(second);
        needs.extend(self.entry(first).bound_by);
        needs.extend(self.entry(second).bound_by);
        if x == y {
            return Fact {
                act: Act::Nothing,
                needs: Vec::new(),
                room: None,
            };
        }
        self.vacate(first, x, at);
        self.vacate(second, y, at);
        self.bind(second, x, at);
        self.bind(first, y, at);
        let act = Act::Swap {
            one: first,
            other: second,
            x,
            y,
        };
        Fact {
            act,
            needs,
            room: None,
        }
    }
}
