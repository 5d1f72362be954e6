//! For tests: hosts whose engine is in the test's hands. Ops are carried out in the order that it
//! says, at once and whole, under the keys that regions have then; or not, or their answers are
//! lost.

use core::time::Duration;

use rma_core::{
    addr::{HostAddr, Pid},
    command::CommandOp,
    executor::{CommandExecutor, ExecutorConfig},
    gate::Peer,
    op::OpStatus,
    outcome::Verdict,
    time::Instant,
};
use rma_lab::{FakeEngine, FakeHost, FakeHosts};

use crate::link::Link;

/// A process of a host of its own.
pub(crate) fn host(hosts: &FakeHosts, number: u8) -> FakeHost {
    hosts.host(Peer { address: HostAddr::from([192, 0, 2, number]), pid: Pid(7) })
}

/// A process with a link, and the ops that it has under way.
pub(crate) struct Station {
    pub(crate) host: FakeHost,
    pub(crate) link: Link,
    pub(crate) engine: FakeEngine,
    /// Of ops whose answers were lost: whether they were applied, and what they found.
    records: Vec<(bool, u64)>,
}

impl Station {
    pub(crate) fn new(host: FakeHost) -> Self {
        Self::with_calls(host, 256)
    }

    /// One whose link has room for so many calls.
    pub(crate) fn with_calls(host: FakeHost, calls: u16) -> Self {
        let (portal, engine) = FakeEngine::new(host.clone(), 64);
        let mut config = ExecutorConfig::default();
        config.calls = calls;
        let link = Link::new(CommandExecutor::new(portal, config).unwrap());
        Self { host, link, engine, records: Vec::new() }
    }

    /// Polls the link, and takes what it issues.
    pub(crate) fn poll(&mut self, now: Instant) {
        self.link.poll(now);
        self.engine.take();
    }

    /// Carries out an op that is under way, and answers.
    pub(crate) fn apply(&mut self, index: usize) {
        let CommandOp::Settle { name, .. } = self.engine.taken[index].op else {
            self.engine.apply(index, Instant::ZERO);
            return;
        };
        let command = self.engine.taken.remove(index);
        if let Err(status) = self.host.admit(&command) {
            return self.engine.end(&command, (status, None));
        }
        let (applied, result) = self.records[name.counter as usize - 1];
        let verdict = if applied { Verdict::Applied } else { Verdict::NotApplied };
        self.engine.settle(&command, verdict, result);
    }

    /// Carries out all that is under way, oldest first.
    pub(crate) fn apply_all(&mut self) {
        while !self.engine.taken.is_empty() {
            self.apply(0);
        }
    }

    /// Ends an op so, which is not carried out.
    pub(crate) fn fail(&mut self, index: usize, status: OpStatus) {
        self.engine.fail(index, status);
    }

    /// A recorded op is carried out, or not, and its answer is lost.
    pub(crate) fn lose_answer(&mut self, index: usize, applied: bool) {
        let command = self.engine.taken.remove(index);
        let (status, result) = if applied {
            self.host.carry_out(&command, Instant::ZERO)
        } else {
            (OpStatus::Timeout, None)
        };
        self.records.push((status == OpStatus::Ok, result.unwrap_or(0)));
        self.engine.lose(&command, self.records.len() as u64);
    }
}

/// When a test begins.
pub(crate) const BEGIN: Instant = Instant::from_nanos(1_000_000);

/// A clock of a test's own, which goes on with each look.
pub(crate) struct Ticks(pub(crate) Instant);

impl Ticks {
    pub(crate) fn next(&mut self, by: Duration) -> Instant {
        self.0 = self.0 + by;
        self.0
    }
}

/// A message that nobody confuses with others.
pub(crate) fn message(number: u64, len: usize) -> Vec<u8> {
    let first = number.to_le_bytes();
    (0..len)
        .map(|at| first.get(at).map_or((number as usize * 31 + at * 7) as u8, |&it| it))
        .collect()
}
