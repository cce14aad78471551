//! Which thread has last done something about a path: names that several threads fight over are opened by the supervisor, so
//! that the order stays exact; all others by their tasks, which is twice as fast.

use std::hash::{BuildHasher as _, RandomState};

const SLOTS: usize = 1024;
/// After this long, in nanoseconds, nobody is in anybody's way about one path.
const WINDOW: u64 = 50_000_000;
/// After this long, in nanoseconds, nobody is expected to touch another name in the same directory.
const BESIDE: u64 = 2_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: u64,
    tid: u32,
    time: u64,
    /// When a thread other than the last did something here.
    fought: Option<u64>,
}

/// The last events, by path; a newer one may push an older one out.
#[derive(Debug)]
pub(crate) struct Recent {
    slots: Vec<Slot>,
    state: RandomState,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self {
            slots: vec![Slot::default(); SLOTS],
            state: RandomState::new(),
        }
    }

    fn slot(&self, path: &[u8]) -> (usize, u64) {
        let hash = self.state.hash_one(path);
        (usize::try_from(hash % SLOTS as u64).unwrap_or(0), hash)
    }

    /// A thread does something about a path.
    pub(crate) fn note(&mut self, path: &[u8], tid: u32, time: u64) {
        self.enter(path, tid, time);
        self.enter(directory(path), tid, time);
    }

    fn enter(&mut self, path: &[u8], tid: u32, time: u64) {
        let (at, hash) = self.slot(path);
        let slot = &mut self.slots[at];
        let fought = match *slot {
            Slot {
                hash: h,
                tid: t,
                time: last,
                ..
            } if h == hash && t != tid && time.saturating_sub(last) < WINDOW => Some(time),
            Slot {
                hash: h, fought, ..
            } if h == hash => fought,
            _ => None,
        };
        *slot = Slot {
            hash,
            tid,
            time,
            fought,
        };
    }

    /// Whether another thread has just done something about the path, or a directory above it that it may have made.
    pub(crate) fn contended(&self, path: &[u8], tid: u32, now: u64) -> bool {
        let (at, hash) = self.slot(directory(path));
        let beside = &self.slots[at];
        if beside.hash == hash && beside.tid != tid && now.saturating_sub(beside.time) < BESIDE {
            return true;
        }
        let mut end = path.len();
        for _ in 0..3 {
            let (at, hash) = self.slot(&path[..end]);
            let slot = &self.slots[at];
            let recent = |time: u64| now.saturating_sub(time) < WINDOW;
            if slot.hash == hash
                && ((slot.tid != tid && recent(slot.time)) || slot.fought.is_some_and(recent))
            {
                return true;
            }
            match path[..end].iter().rposition(|byte| *byte == b'/') {
                Some(slash) if slash > 0 => end = slash,
                _ => break,
            }
        }
        false
    }
}

/// The directory of a path with the slash behind it, which no path has: what stands for activity in a directory.
fn directory(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..=slash.min(path.len().saturating_sub(1))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_never_in_its_own_way() {
        let mut recent = Recent::new();
        for time in 0..100 {
            recent.note(b"/d/f", 1, time);
            assert!(!recent.contended(b"/d/f", 1, time));
        }
    }

    #[test]
    fn two_are_for_a_while_also_through_the_directory() {
        let mut recent = Recent::new();
        recent.note(b"/d", 1, 0);
        assert!(recent.contended(b"/d/f", 2, 10));
        assert!(!recent.contended(b"/d/f", 2, WINDOW + 10));
        recent.note(b"/d", 2, 20);
        assert!(recent.contended(b"/d/f", 2, 30), "the fight is not over");
        assert!(!recent.contended(b"/e/x", 2, 30));
    }

    #[test]
    fn neighbours_count_for_a_moment() {
        let mut recent = Recent::new();
        recent.note(b"/d/a", 1, 0);
        assert!(recent.contended(b"/d/b", 2, 1000) && !recent.contended(b"/d/b", 1, 1000));
        assert!(!recent.contended(b"/d/b", 2, BESIDE + 1));
    }
}
