//! The stage of the channels' tests: one host that both ends are on, whose engine is in the test's
//! hands. The test says in which order the engine applies the ops under way, or that it does not.

use core::time::Duration;

use rma_core::{
    addr::{HostAddr, Pid},
    executor::{CommandExecutor, ExecutorConfig},
    gate::Peer,
    op::OpStatus,
    time::Instant,
};
use rma_lab::{FakeEngine, FakeHost, FakeHosts};

use crate::link::Link;

pub(crate) const PEER: Peer = Peer {
    address: HostAddr::from_octets([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 1]),
    pid: Pid(7),
};

/// Somebody else, who has grants for the same.
pub(crate) const OTHER: Peer = Peer { pid: Pid(8), ..PEER };

/// A process of the host: its link, and what that has under way.
pub(crate) struct Process {
    pub(crate) link: Link,
    pub(crate) engine: FakeEngine,
}

impl Process {
    fn new(host: FakeHost, calls: u16) -> Self {
        let (portal, engine) = FakeEngine::new(host, 64);
        let mut config = ExecutorConfig::default();
        config.calls = calls;
        Self { link: Link::new(CommandExecutor::new(portal, config).unwrap()), engine }
    }

    fn turn(&mut self, now: Instant) {
        self.link.poll(now);
        self.engine.take();
    }

    /// Applies the op that is under way at this place.
    pub(crate) fn apply(&mut self, at: usize) -> OpStatus {
        self.engine.apply(at, Instant::ZERO)
    }

    /// Ends the op that is under way at this place with `status`, without applying it.
    pub(crate) fn fail(&mut self, at: usize, status: OpStatus) {
        self.engine.fail(at, status);
    }

    fn apply_all(&mut self) {
        while !self.engine.taken.is_empty() {
            self.apply(0);
        }
    }
}

/// The host, and two processes of it.
pub(crate) struct Bench {
    pub(crate) host: FakeHost,
    pub(crate) us: Process,
    pub(crate) other: Process,
    /// It goes on with each turn.
    pub(crate) now: Instant,
}

impl Bench {
    /// Links of so many calls.
    pub(crate) fn new(calls: u16) -> Self {
        let hosts = FakeHosts::default();
        let [us, other] = [PEER, OTHER].map(|peer| Process::new(hosts.host(peer), calls));
        Self { host: hosts.host(PEER), us, other, now: Instant::from_nanos(1_000_000) }
    }

    /// Time goes on, and what can be issued is.
    pub(crate) fn turn(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        self.us.turn(self.now);
        self.other.turn(self.now);
    }

    /// So much time goes by.
    pub(crate) fn later(&mut self, time: Duration) {
        self.now = self.now + time;
        self.turn();
    }

    /// Applies our op that is under way at this place.
    pub(crate) fn apply(&mut self, at: usize) -> OpStatus {
        let status = self.us.apply(at);
        self.turn();
        status
    }

    /// All that is under way is applied, in the order that it was issued in, and all that follows.
    pub(crate) fn apply_all(&mut self) {
        self.turn();
        while !self.us.engine.taken.is_empty() || !self.other.engine.taken.is_empty() {
            self.us.apply_all();
            self.other.apply_all();
            self.turn();
        }
    }

    /// Ends our op that is under way at this place with `status`, without applying it.
    pub(crate) fn fail(&mut self, at: usize, status: OpStatus) {
        self.us.fail(at, status);
        self.turn();
    }
}
