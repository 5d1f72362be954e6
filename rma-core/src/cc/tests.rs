//! Congestion control, from outside: what each rule of the paper says, laws that hold for any
//! feedback, and curves.

mod curves;
mod laws;
mod own;
mod remotes;
mod rules;

use core::time::Duration;

use super::*;
use crate::op::Moves;

/// The paper's round-trip time.
const RTT: u64 = 5_000;

/// Outstanding bytes that are more than half of any window.
const USED: u64 = u64::MAX;

fn micros(micros: f64) -> u64 {
    (micros * 1e3) as u64
}

/// A completion of a 4 KiB op; delays in microseconds.
fn feedback(now: u64, status: OpStatus, issue_delay: f64, remote_delay: f64) -> Feedback {
    Feedback {
        now: Instant::from_nanos(now),
        op_size: 4096,
        status,
        issue_delay_nanos: micros(issue_delay),
        total_delay_nanos: micros(issue_delay) + micros(remote_delay),
    }
}

/// One local window and one remote, with the paper's settings but for what `change` changes.
struct Pair {
    cc: CongestionControl,
    remote: RemoteWindowId,
}

impl Pair {
    fn new(change: impl FnOnce(&mut CcConfigBuilder)) -> Self {
        let mut builder = CcConfigBuilder::default();
        change(&mut builder);
        let mut cc = CongestionControl::new(builder.build().unwrap());
        let remote = cc.hold([192, 0, 2, 7].into(), Moves::In).unwrap().id;
        Self { cc, remote }
    }

    fn of(algorithm: Algorithm) -> Self {
        Self::new(|builder| builder.algorithm = algorithm)
    }

    fn give(&mut self, feedback: &Feedback) {
        self.cc.on_completion(self.remote, feedback, USED);
    }

    /// The local and the remote window.
    fn cwnds(&self) -> (f64, f64) {
        (self.cc.local_cwnd(), self.cc.remote_cwnd(self.remote))
    }

    fn window(&self) -> Window {
        self.cc.window(self.remote)
    }
}

/// Equal but for rounding.
#[track_caller]
fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9 * expected.abs(), "{value} is not {expected}");
}
