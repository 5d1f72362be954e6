//! The findings about the server's machine, for a client that asks: looked for by a thread of its
//! own, as that takes longer than an engine may wait.

use core::fmt;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    thread::{self, JoinHandle},
};

use rma_doctor::{Finding, Look, Wanted, check, page::Count};
use serde::{Deserialize, Serialize};

/// Octets of findings in one message, and of a text in one: a message holds 16 KiB.
const PART: usize = 8 << 10;
const TEXT_MAX: usize = 1 << 10;

/// Looks at the machine, which takes a second.
pub(crate) type Examine = Arc<dyn Fn() -> Vec<Finding> + Send + Sync>;

/// Looks at an interface, for a client of a server, whose own the ports are.
pub(crate) fn examine(interface: Option<String>) -> Examine {
    Arc::new(move || {
        let snapshot = Look::at(interface.as_deref()).snapshot();
        let mut findings = check(&snapshot, &Wanted::default());
        findings.retain(|it| !["port", "session_port"].contains(&it.id.as_str()));
        findings
    })
}

/// One line about an interface, for the start of a server: none if nothing is to be said. Counters
/// are not read, as that takes a second; and ports are the server's own by then.
pub(crate) fn in_a_line(interface: &str) -> Option<String> {
    let mut look = Look::at(Some(interface));
    look.twice = false;
    let findings = check(&look.snapshot(), &Wanted::default());
    let is_told = |it: &&Finding| !["port", "session_port"].contains(&it.id.as_str());
    let Count { note, mend, .. } = Count::of(findings.iter().filter(is_told));
    let notes = if note == 1 { "1 note".to_owned() } else { format!("{note} notes") };
    (mend > 0).then(|| format!("{notes}, {mend} to mend: rma-bench doctor {interface}"))
}

/// The findings that a client has not yet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WantedFindings {
    /// How many it has.
    pub(super) from: usize,
}

/// Some of the findings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Findings {
    /// How many there are; null as long as it is looked for them.
    pub(super) all: Option<usize>,
    /// Some of them.
    pub(super) part: Vec<Finding>,
}

/// The findings of a server. One look at a time, for all that ask meanwhile.
#[derive(Default)]
pub(super) struct Doctor {
    examine: Option<Examine>,
    running: Option<JoinHandle<Vec<Finding>>>,
    /// Connections that wait for the look that is under way.
    waiting: BTreeSet<u64>,
    found: BTreeMap<u64, Arc<[Finding]>>,
}

impl Doctor {
    pub(super) fn new(examine: Examine) -> Self {
        Self { examine: Some(examine), ..Self::default() }
    }

    /// Answers a connection. Never waits.
    pub(super) fn answer(&mut self, connection: u64, wanted: WantedFindings) -> Findings {
        let Self { examine, running, waiting, found } = self;
        if let Some(thread) = running.take_if(|it| it.is_finished()) {
            let all: Arc<[Finding]> = thread.join().unwrap_or_default().into();
            found.extend(core::mem::take(waiting).into_iter().map(|it| (it, Arc::clone(&all))));
        }
        if let Some(all) = found.get(&connection) {
            let mut len = 0;
            let rest = all.get(wanted.from..).unwrap_or_default().iter().map(told);
            let part = rest.take_while(|it| {
                len += serde_json::to_string(it).map_or(PART, |it| it.len());
                len <= PART
            });
            return Findings { all: Some(all.len()), part: part.collect() };
        }
        let Some(examine) = examine else {
            return Findings { all: Some(0), part: Vec::new() };
        };
        waiting.insert(connection);
        if running.is_none() {
            let examine = Arc::clone(examine);
            *running =
                thread::Builder::new().name("doctor".to_owned()).spawn(move || examine()).ok();
        }
        Findings::default()
    }

    pub(super) fn forget(&mut self, connection: u64) {
        self.waiting.remove(&connection);
        self.found.remove(&connection);
    }
}

/// A finding as it is told: of a length that a message holds, and without what would set anything.
fn told(it: &Finding) -> Finding {
    let short = |text: &str| text.chars().take(TEXT_MAX / 4).collect::<String>();
    let mut told = it.clone();
    told.settings.clear();
    let texts = [&mut told.id, &mut told.found, &mut told.why];
    let options = [&mut told.interface, &mut told.wanted, &mut told.command];
    for text in texts.into_iter().chain(options.into_iter().flatten()) {
        if text.len() > TEXT_MAX {
            *text = short(text);
        }
    }
    told
}

impl fmt::Debug for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiting, found, .. } = self;
        f.debug_struct("Doctor").field("waiting", waiting).field("found", found).finish()
    }
}
