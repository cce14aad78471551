//! Calls that give things other names: rename(2) and its like.

use super::names::{look, spot};
use super::{Asked, Handled, Supervisor};
use crate::decode::Name;
use crate::move_tree;
use crate::pending::{Effect, Evidence, Expected};
use crate::sys::{self, Errno};
use effigy_journal::{Kind, Op, Outcome, Why};

impl Supervisor {
    pub(super) fn rename(&mut self, asked: &Asked, from: &Name, to: &Name, flags: u32) -> Handled {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let op = |from, to, replaced| {
            if exchange {
                Op::Exchange { path: from, to }
            } else {
                Op::Rename {
                    from,
                    to,
                    flags,
                    replaced,
                }
            }
        };
        let (a, b) = match self.places(asked, [from, to]) {
            Err(errno) => {
                return self.fail(asked, errno, [Some(from), Some(to)], |[a, b]| {
                    op(a, b, false)
                });
            }
            Ok(places) => places,
        };
        let (old, new) = (a.name(), b.name());
        if !self.covers.holds(&old) && !self.covers.holds(&new) {
            return self.go_on(asked);
        }
        self.wait_for(asked, &old);
        self.wait_for(asked, &new);
        let source = look(&a).ok();
        // A new name is free more often than not: then the kernel says so in carrying it out. Whatever else it says is found out
        // again below, with what stands there.
        let free = asked.home
            && flags == 0
            && source
                .as_ref()
                .is_some_and(|seen| !self.copies_up(&old, seen))
            && !self.covers.has_mount_below(&old);
        let mut done = false;
        if free {
            if !self.still_asks(asked)? {
                return Ok(());
            }
            let flags = libc::RENAME_NOREPLACE;
            done = sys::renameat2(a.fd(), &a.last, b.fd(), &b.last, flags).is_ok();
        }
        let target = if done { None } else { look(&b).ok() };
        let directory = [&source, &target].iter().any(|seen| {
            seen.as_ref()
                .is_some_and(|seen| seen.kind() == Kind::Directory)
        });
        // Names may mean something else afterwards, to which the way is through a directory or a link.
        let turns = [&source, &target].iter().any(|seen| {
            seen.as_ref()
                .is_some_and(|seen| matches!(seen.kind(), Kind::Directory | Kind::Symlink))
        });
        let replaced =
            target.is_some() && flags & (libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE) == 0;
        let mut same = matches!((&source, &target), (Some(a), Some(b)) if a.same(b));
        let seal = match &target {
            Some(target) if replaced && !same => {
                self.recorder.seal_name(&self.covers, &new, target)
            }
            _ => None,
        };
        let why = if done {
            // The old name would now be taken for one that is still to be copied up.
            None
        } else if !asked.home {
            Some(Why::Foreign)
        } else if exchange && directory {
            // The overlay may refuse it, and the task could do nothing about that.
            None
        } else if [(&old, &source), (&new, &target)]
            .iter()
            .any(|(path, seen)| {
                seen.as_ref().is_some_and(|seen| self.copies_up(path, seen))
                    && (exchange || *path == &old)
            })
        {
            Some(Why::CopyUp)
        } else {
            None
        };
        if let Some(why) = why {
            let (Some(source), Some(x), Some(y)) =
                (source, self.recorder.path(&old), self.recorder.path(&new))
            else {
                return self.go_on(asked);
            };
            self.touch(&old, Some(&source));
            self.touch(&new, target.as_ref());
            if turns {
                self.epoch += 1;
            }
            let evidence = if exchange {
                Evidence::Vanishes(spot(&a, &old), source)
            } else {
                Evidence::Moves(spot(&a, &old), spot(&b, &new), source)
            };
            let effect = if exchange {
                Effect::Exchanges(old, new)
            } else {
                Effect::Renames(old, new, directory)
            };
            let expected = Expected::Other {
                op: op(x, y, replaced),
                effect,
                seal,
            };
            return self.leave(asked, why, expected, evidence, Outcome::Unknown);
        }
        if !done && !self.still_asks(asked)? {
            return Ok(());
        }
        // What is mounted below a directory, to protect it say, holds for its path: it neither goes along nor is left behind. Names
        // like `/` and `.` the kernel refuses itself.
        let holds_mount = directory
            && a.is_plain()
            && b.is_plain()
            && (self.covers.has_mount_below(&old) || exchange && self.covers.has_mount_below(&new));
        let mut result = if done {
            Ok(())
        } else if holds_mount {
            Err(Errno(libc::EBUSY))
        } else {
            sys::renameat2(a.fd(), &a.last, b.fd(), &b.last, flags)
        };
        if result == Err(Errno(libc::EXDEV)) && self.closes_gap(&old, &new, directory, flags) {
            self.take_umask(asked);
            result = match &source {
                // The kernel says EXDEV before it looks whether either mount may be written.
                _ if sys::is_read_only(a.fd()) || sys::is_read_only(b.fd()) => {
                    Err(Errno(libc::EROFS))
                }
                _ if !a.is_plain() => Err(Errno(libc::EBUSY)),
                _ if !b.is_plain() && flags & libc::RENAME_NOREPLACE == 0 => {
                    Err(Errno(libc::EBUSY))
                }
                Some(_) if flags & libc::RENAME_NOREPLACE != 0 && target.is_some() => {
                    Err(Errno(libc::EEXIST))
                }
                Some(source) if exchange => match &target {
                    Some(target) => move_tree::exchange(&a, &b, source, target),
                    None => look(&b).map(drop),
                },
                Some(source) => move_tree::carry_out(&a, &b, source, target.as_ref()),
                None => look(&a).map(drop),
            };
        }
        if result == Err(Errno(libc::ESTALE)) && self.is_one_file(&old, &new) {
            result = Ok(());
            same = true;
        }
        self.answer(asked, result)?;
        self.recorder.confirm_seal(seal, result.is_ok() && !same);
        if result.is_ok() {
            self.must_have_shown(&old, source.as_ref());
            if target.is_some() {
                self.must_have_shown(&new, target.as_ref());
            } else {
                self.spoil(&new);
            }
            self.recorder
                .touch(&old, source.as_ref().map(|seen| &seen.stat));
            self.recorder
                .touch(&new, target.as_ref().map(|seen| &seen.stat));
            if exchange && directory {
                let aside = b"\0";
                self.rebase(&old, aside);
                self.rebase(&new, &old);
                self.rebase(aside, &new);
            } else if directory {
                self.rebase(&old, &new);
            }
            if same {
                // rename(2) does nothing then.
            } else if exchange {
                self.recorder.model.exchanged(&old, &new);
            } else {
                self.recorder.model.renamed(&old, &new, directory);
            }
        }
        if turns {
            // Also when it failed: a move entry by entry has moved and put back.
            self.epoch += 1;
        }
        if let (Some(x), Some(y)) = (self.recorder.path(&old), self.recorder.path(&new)) {
            self.performed(asked, Some(op(x, y, replaced)), result);
        }
        Ok(())
    }

    /// Whether two names are of one file. An unprivileged overlay takes them for two when one is older than the file's copy-up, and
    /// refuses to give one the name of the other.
    fn is_one_file(&self, old: &[u8], new: &[u8]) -> bool {
        let [a, b] = [old, new].map(|path| self.covers.in_upper(path));
        matches!((a, b), (Some(a), Some(b)) if a.same(&b))
    }

    /// Whether EXDEV is the overlay's doing and not the real filesystem's: a directory of the lower layer, or two covers that
    /// stand for parts of one mount.
    fn closes_gap(&self, old: &[u8], new: &[u8], directory: bool, flags: u32) -> bool {
        let (Some(a), Some(b)) = (self.covers.layer(old), self.covers.layer(new)) else {
            return false;
        };
        flags & libc::RENAME_WHITEOUT == 0
            && (if a.number == b.number {
                directory
            } else {
                a.filesystem == b.filesystem
            })
    }
}
