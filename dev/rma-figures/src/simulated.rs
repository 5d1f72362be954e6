//! Channels over simulated hosts: what is counted, and takes no time. The files are those of the
//! contract that `rma-channel`'s own tests are, which check what they count.
//!
//! | command | shows |
//! |---|---|
//! | `rma-figures paper channels-table2` | Table 2 of the channels' paper, its rows beside ours |
//! | `rma-figures dead-writer` | what others see of a sender that stops with a place in a shared ring |

use core::time::Duration;
use std::collections::BTreeSet;

use rma_bench::{interrupt::Interrupt, line};
use rma_xdp::{OpType, channel::Kind};

use rma_contract::{
    hole::{Fate, KINDS, SENDERS, Scene},
    kinds::ROWS,
    measured::{measure, op_types},
};

/// The measurements of the kinds of Table 2.
#[derive(Debug, Default)]
pub struct Table2 {
    /// The kinds that are as the crate says; of some there are two forms.
    pub rows: Vec<Line>,
    /// The deviations from the crate's statements.
    pub wrong: Vec<String>,
    /// How many kinds were measured, and all of them as the crate says.
    pub right: usize,
    /// Those that were not measured.
    pub missing: Vec<Kind>,
}

/// A kind that is as the crate says.
#[derive(Debug)]
pub struct Line {
    /// The kind of channel.
    pub kind: Kind,
    /// Its cells, separated by bars.
    pub cells: String,
    /// The op types that both ends issue.
    pub op_types: Vec<OpType>,
}

impl Table2 {
    /// Measures all kinds.
    ///
    /// # Panics
    /// If a channel loses or doubles a message.
    #[must_use]
    pub fn measured() -> Self {
        let mut it = Self::default();
        let (mut seen, mut wrong) = (BTreeSet::new(), BTreeSet::new());
        for row in ROWS.iter().filter(|row| !row.prefetches && !row.is_duplex) {
            seen.insert(row.kind as u8);
            match measure(row) {
                Ok(cells) => {
                    it.rows.push(Line { kind: row.kind, cells, op_types: op_types(row) });
                }
                Err(what) => {
                    wrong.insert(row.kind as u8);
                    it.wrong.push(what);
                }
            }
        }
        it.right = seen.difference(&wrong).count();
        it.missing = Kind::ALL.into_iter().filter(|&it| !seen.contains(&(it as u8))).collect();
        it
    }
}

/// The time until others go on when a sender has stopped with what it had reserved.
#[derive(Clone, Copy, Debug)]
pub struct Recoveries {
    /// The channel.
    pub kind: Kind,
    /// The longest time, over the bound of its run.
    pub over_bound: f64,
    /// That time, and that bound.
    pub worst: (Duration, Duration),
}

/// Has a sender of each kind that reserves stop in so many runs.
///
/// # Panics
/// If a message of a living sender is lost, doubled or late, or one of a dead one comes.
#[must_use]
pub fn recoveries(seeds: u64, interrupt: &Interrupt) -> Vec<Recoveries> {
    let of_kind = |kind| {
        let mut it = Recoveries { kind, over_bound: 0.0, worst: Default::default() };
        for seed in (0..seeds).take_while(|_| !interrupt.is_set()) {
            let timeline = Scene::drawn(kind, seed).run();
            let over = timeline.took.as_secs_f64() / timeline.bound.as_secs_f64();
            if over > it.over_bound {
                (it.over_bound, it.worst) = (over, (timeline.took, timeline.bound));
            }
        }
        it
    };
    KINDS.map(of_kind).into()
}

/// How long the sender that wakes up sleeps after the recovery.
const SLEEPS: Duration = Duration::from_millis(200);

/// `rma-figures dead-writer`.
pub fn dead_writer() {
    line!(
        "messages that came of each of {SENDERS} senders, by interval of virtual time; T is 100 ms\n"
    );
    for kind in KINDS {
        for (fate, what) in [(Fate::Dies, "dies"), (Fate::Sleeps(SLEEPS), "sleeps, and wakes up")] {
            let scene = Scene::plain(kind, fate);
            let who = scene.who + 1;
            line!("{kind} ({}): sender {who} {what}\n\n{}\n", kind as u8, scene.run());
        }
    }
}
