//! Waits for other events of a queue pair than the end of a work request: set-ups, for the next
//! step and for the end of their time; others, for the end of a connection.

use core::task::{Context, Waker};

use rma_core::time::Instant;
use rma_star::library::{Qp, QpState};

use crate::{polling::shared::After, star::verbs::StarVerbs};

/// The visible state of a queue pair: its state, and whether there is a message to its peer.
type Seen = (Option<QpState>, bool);

fn look(verbs: &StarVerbs, qp: Qp) -> Seen {
    (verbs.state(qp), verbs.has_message(qp))
}

#[derive(Debug)]
struct Watcher {
    number: u64,
    qp: Qp,
    /// Of a set-up: when its time is over. `None`: waits for the end of a connection.
    until: Option<Instant>,
    seen: Seen,
    /// Until it is woken.
    waker: Option<Waker>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Watches {
    all: Vec<Watcher>,
    /// The number of the next watch.
    next: u64,
    /// How many queue pairs had ended when ends were last looked for.
    ends: u64,
}

impl Watches {
    /// Another, whose future is to renew it.
    pub(super) fn add(&mut self, qp: Qp, until: Option<Instant>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.push(Watcher { number, qp, until, seen: (None, false), waker: None });
        number
    }

    /// The future with this `context` looks now, and is woken when there is something else to see.
    /// `false` if its time is over.
    pub(super) fn renew(
        &mut self,
        verbs: &StarVerbs,
        number: u64,
        context: &Context<'_>,
        after: &mut After,
    ) -> bool {
        let Some(watch) = self.all.iter_mut().find(|it| it.number == number) else { return true };
        watch.seen = look(verbs, watch.qp);
        after.unused.extend(watch.waker.replace(context.waker().clone()));
        watch.until.is_none_or(|until| verbs.now() < until)
    }

    pub(super) fn end(&mut self, number: u64, after: &mut After) {
        self.all.retain_mut(|watch| {
            let stays = watch.number != number;
            if !stays {
                after.unused.extend(watch.waker.take());
            }
            stays
        });
    }

    /// Wakes who has something to see. `is_gone`: the engine, so all have.
    pub(super) fn wake(&mut self, verbs: &StarVerbs, is_gone: bool, after: &mut After) {
        if self.all.is_empty() {
            return;
        }
        let now = verbs.now();
        let has_ends = core::mem::replace(&mut self.ends, verbs.ends()) != verbs.ends();
        for watch in &mut self.all {
            let has_news = match watch.until {
                Some(until) => now >= until || look(verbs, watch.qp) != watch.seen,
                None => has_ends && look(verbs, watch.qp) != watch.seen,
            };
            if is_gone || has_news {
                after.wakers.extend(watch.waker.take());
            }
        }
    }

    /// When the time of the next one is over that has not been woken.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.all.iter().filter(|it| it.waker.is_some()).filter_map(|it| it.until).min()
    }
}
