//! Calls that change what is known about a task, and the one that is refused.

use super::{Asked, Handled, Supervisor};
use crate::decode::{self, Request};
use crate::listener::{Answer, Notification};
use crate::syscalls::{Abi, Call, Decode};
use effigy_journal::Note;

impl Supervisor {
    /// io_uring would do every call here without a system call.
    pub(super) fn refuse(&mut self, asked: &Asked) -> Handled {
        self.send(asked.id, Answer::Error(libc::ENOSYS))?;
        if self.refused_uring.insert(asked.pid) {
            self.recorder.note(Note::IoUringRefused {
                process: asked.who.process,
            });
        }
        Ok(())
    }

    pub(super) fn change_of_state(
        &mut self,
        asked: &Asked,
        notification: &Notification,
        abi: Abi,
        call: &Call,
    ) -> Handled {
        match call.decode {
            // Always succeeds.
            Decode::Umask => {
                if let Ok(Request::Umask { mask }) = decode::decode(notification, abi, call)
                    && let Some(process) = self.tasks.process_mut(asked.pid)
                {
                    process.umask = mask;
                }
            }
            // Entered before it is known to succeed: what may be confined is not performed for.
            Decode::Landlock => self.tasks.landlock(asked.who.tid),
            decode => {
                if decode == Decode::Mount {
                    // What is held would keep a filesystem busy.
                    self.parents.clear();
                }
                self.tasks.doubt(asked.who.tid);
                // Looked at once the call is over: at the thread's next one.
                self.doubted.insert(asked.who.tid, decode);
            }
        }
        self.go_on(asked)
    }

    /// A thread is back from a call that changed something about it.
    pub(super) fn resolve_doubt(&mut self, tid: u32) {
        let Some(decode) = self.doubted.remove(&tid) else {
            return;
        };
        match decode {
            // Root and namespaces belong to all threads that share them.
            Decode::Root | Decode::Namespaces | Decode::Mount => {
                self.epoch += 1;
                if decode == Decode::Mount {
                    self.covers.reload(self.tasks.proc());
                }
                self.tasks.doubt_all_like(tid);
            }
            _ => self.tasks.doubt(tid),
        }
    }
}
