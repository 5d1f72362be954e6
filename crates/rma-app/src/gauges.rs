//! The gauges of a host's executors: [`ExecutorGauges`].
//!
//! An executor belongs to its application's thread, which nobody asks and who waits for nobody: it
//! stores a few numbers now and then (`EVERY`, and before a thread sleeps), in memory that it
//! alone writes, without a lock or an atomic read-modify-write. Between two such moments a poll
//! pays one comparison, and the first call and the end of the last a store or two.

use core::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rma_core::executor::{CommandExecutor, SilentPeers};

/// How often an executor that is busy tells. Looking at all its windows and calls takes some
/// microseconds.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

/// Bounds between the classes of windows, in ops.
const BOUNDS: [f64; ExecutorGauges::CWND_CLASSES.len() - 1] = [1.0, 4.0, 16.0, 64.0, 256.0];

/// The gauges of all executors of a host, by what each told last. Those of tenants are among them.
///
/// An executor that an application polls told at most a tenth of a second ago, one whose thread
/// sleeps told when that thread went to sleep, and one without calls told when the last was over.
/// An executor that has calls, and that no thread polls or sleeps for, is shown as it was at its
/// last poll, except that it is always shown with a call.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExecutorGauges {
    /// How many there are.
    pub executors: u64,
    /// Their command slots.
    pub command_slots: u64,
    /// Calls that are not over, or whose outcomes have not been taken.
    pub calls: u64,
    /// Calls with something that has not been issued: for want of a window or a slot, or as its
    /// time or the passing of a fence has not come. If calls wait and windows are large, there are
    /// too few slots.
    pub calls_waiting: u64,
    /// Futures of [`Client`](crate::Client)s that wait for a place among the calls. If they do for
    /// long, there is more to do than these executors or the remote NICs can: see
    /// [`Client::set_waiting_max`](crate::Client::set_waiting_max).
    pub transfers_waiting: u64,
    /// Ops under way.
    pub ops_outstanding: u64,
    /// Remote NICs that do not answer, of those that executors have asked. Two executors count one
    /// twice. One stays here until it is asked again and answers, or is forgotten.
    pub silent_peers: SilentPeers,
    /// Remote congestion windows, of one remote NIC in one direction each, that calls have just
    /// now: how many there are of each of [`ExecutorGauges::CWND_CLASSES`]. Two executors have two
    /// windows to one remote NIC.
    pub remote_cwnds: [u64; Self::CWND_CLASSES.len()],
    /// The smallest of these, in ops: below 1, the remote NIC or the way to it is overloaded.
    /// `None` if there is none.
    pub remote_cwnd_min: Option<f64>,
    /// The smallest local congestion window, in ops: if it is the smaller one, this host is what is
    /// too slow. `None` without an executor.
    pub local_cwnd_min: Option<f64>,
}

impl ExecutorGauges {
    /// Classes of congestion windows by their size in ops: from the first number to below the
    /// second.
    pub const CWND_CLASSES: [&str; 6] = ["0-1", "1-4", "4-16", "16-64", "64-256", "256-"];

    const NONE: Self = Self {
        executors: 0,
        command_slots: 0,
        calls: 0,
        calls_waiting: 0,
        transfers_waiting: 0,
        ops_outstanding: 0,
        silent_peers: SilentPeers { suspect: 0, dead: 0, probing: 0 },
        remote_cwnds: [0; Self::CWND_CLASSES.len()],
        remote_cwnd_min: None,
        local_cwnd_min: None,
    };
}

/// The gauges that one executor tells. Written by its thread alone.
#[derive(Debug)]
pub(crate) struct Told {
    command_slots: u64,
    calls: AtomicU64,
    calls_waiting: AtomicU64,
    transfers_waiting: AtomicU64,
    ops_outstanding: AtomicU64,
    /// Suspects, dead ones, and those that are being probed.
    silent_peers: [AtomicU64; 3],
    remote_cwnds: [AtomicU64; ExecutorGauges::CWND_CLASSES.len()],
    /// Bits of an `f64`; infinite if there is none.
    remote_cwnd_min: AtomicU64,
    local_cwnd: AtomicU64,
}

impl Told {
    /// Of `executor`, which has just been made.
    pub(crate) fn new(executor: &mut CommandExecutor) -> Self {
        let told = Self {
            command_slots: executor.portal().slots().len() as u64,
            calls: AtomicU64::default(),
            calls_waiting: AtomicU64::default(),
            transfers_waiting: AtomicU64::default(),
            ops_outstanding: AtomicU64::default(),
            silent_peers: Default::default(),
            remote_cwnds: Default::default(),
            remote_cwnd_min: AtomicU64::default(),
            local_cwnd: AtomicU64::default(),
        };
        told.tell(executor, 0);
        told
    }

    /// Stores the gauges of `executor`, which has `calls` whose outcomes the application has not
    /// taken.
    pub(crate) fn tell(&self, executor: &mut CommandExecutor, calls: usize) {
        let mut classes = [0; ExecutorGauges::CWND_CLASSES.len()];
        let mut min = f64::INFINITY;
        // No call has a window then, and nothing is under way.
        let busy = executor.calls() > 0;
        if busy {
            for cwnd in executor.congestion_control().remote_cwnds() {
                classes[BOUNDS.partition_point(|&bound| bound <= cwnd)] += 1;
                min = min.min(cwnd);
            }
        }
        let waiting = if busy { executor.calls_waiting() } else { 0 };
        self.calls.store(calls as u64, Relaxed);
        self.calls_waiting.store(waiting as u64, Relaxed);
        self.ops_outstanding.store(executor.ops_outstanding() as u64, Relaxed);
        let SilentPeers { suspect, dead, probing } = executor.silent_peers();
        for (told, count) in self.silent_peers.iter().zip([suspect, dead, probing]) {
            told.store(count as u64, Relaxed);
        }
        for (told, count) in self.remote_cwnds.iter().zip(classes) {
            told.store(count, Relaxed);
        }
        self.remote_cwnd_min.store(min.to_bits(), Relaxed);
        self.local_cwnd.store(executor.congestion_control().local_cwnd().to_bits(), Relaxed);
    }

    /// Stores how many calls there are, of which nothing has been issued and no window told.
    pub(crate) fn tell_calls(&self, calls: u64) {
        self.calls.store(calls, Relaxed);
        self.calls_waiting.store(calls, Relaxed);
    }

    /// Stores how many futures of a client wait for a place. The thread that has the lock of that
    /// client stores it.
    pub(crate) fn tell_transfers_waiting(&self, waiting: usize) {
        self.transfers_waiting.store(waiting as u64, Relaxed);
    }

    fn add_to(&self, sum: &mut ExecutorGauges) {
        let smaller = |min: &mut Option<f64>, bits: &AtomicU64| {
            let cwnd = f64::from_bits(bits.load(Relaxed));
            if cwnd.is_finite() {
                *min = Some(min.map_or(cwnd, |min| min.min(cwnd)));
            }
        };
        sum.executors += 1;
        sum.command_slots += self.command_slots;
        sum.calls += self.calls.load(Relaxed);
        sum.calls_waiting += self.calls_waiting.load(Relaxed);
        sum.transfers_waiting += self.transfers_waiting.load(Relaxed);
        sum.ops_outstanding += self.ops_outstanding.load(Relaxed);
        let SilentPeers { suspect, dead, probing } = &mut sum.silent_peers;
        for (sum, told) in [suspect, dead, probing].into_iter().zip(&self.silent_peers) {
            *sum += told.load(Relaxed) as usize;
        }
        for (sum, told) in sum.remote_cwnds.iter_mut().zip(&self.remote_cwnds) {
            *sum += told.load(Relaxed);
        }
        smaller(&mut sum.remote_cwnd_min, &self.remote_cwnd_min);
        smaller(&mut sum.local_cwnd_min, &self.local_cwnd);
    }
}

/// One executor, as its portal's maker sees it: what it told last.
#[derive(Clone, Debug)]
pub struct ExecutorWatch(Weak<Told>);

impl ExecutorWatch {
    /// Of the executor that tells this.
    pub(crate) fn new(told: &Arc<Told>) -> Self {
        Self(Arc::downgrade(told))
    }

    /// Whether the executor is gone, and tells nothing any longer.
    fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// The executors over portals of one maker. Clones are the same list. Its lock is taken when an
/// executor is made, and when somebody asks for the gauges.
#[derive(Clone, Debug, Default)]
pub struct Executors(Arc<Mutex<Vec<ExecutorWatch>>>);

impl Executors {
    /// Takes note of one that was just made.
    pub fn add(&self, executor: ExecutorWatch) {
        let mut all = self.lock();
        all.retain(|watched| !watched.is_gone());
        all.push(executor);
    }

    /// Returns the sum of all executors' gauges.
    #[must_use]
    pub fn gauges(&self) -> ExecutorGauges {
        let mut sum = ExecutorGauges::NONE;
        for told in self.lock().iter().filter_map(|watched| watched.0.upgrade()) {
            told.add_to(&mut sum);
        }
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExecutorWatch>> {
        // Nothing under it can leave the list half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
