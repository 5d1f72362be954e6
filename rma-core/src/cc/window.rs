//! The advice of congestion control to the CommandExecutor: how much may be outstanding, and how
//! fast (1RMA §6).

use super::Rtt;

/// The charge of an op on a window.
///
/// The paper counts ops, and cuts transfers into ops of one size. Ops of other sizes take a share
/// of a window: by their bytes, but not less than a minimum, since every op costs a request and a
/// place in queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpCharge {
    charge_min: u32,
    ops_per_byte: f64,
    op_size: f64,
}

impl OpCharge {
    pub(super) fn new(op_size: u32, charge_min: u32) -> Self {
        let op_size = f64::from(op_size);
        Self { charge_min, ops_per_byte: 1.0 / op_size, op_size }
    }

    /// Returns the bytes that an op of `op_size` bytes takes from a window while it is outstanding.
    #[must_use]
    pub fn bytes(&self, op_size: u32) -> u32 {
        op_size.max(self.charge_min)
    }

    /// The same in ops.
    #[must_use]
    pub fn ops(&self, op_size: u32) -> f64 {
        f64::from(self.bytes(op_size)) * self.ops_per_byte
    }
}

/// The window to one remote NIC, for data that moves one way, at one moment: the more restrictive
/// of the local and the remote.
///
/// Windows change with every completion; ask for a new one for each op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub(super) cwnd: f64,
    pub(super) rtt: Rtt,
    pub(super) op_charge: OpCharge,
    pub(super) pacing: Pacing,
}

/// When ops are spread over the round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pacing {
    /// Always (1RMA).
    Always,
    /// When less than one op may be outstanding (Swift).
    BelowOneOp,
}

impl Window {
    /// CWND: ops that may be outstanding.
    #[must_use]
    pub const fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// The round-trip time that the pacing goes by.
    #[must_use]
    pub const fn rtt(&self) -> Rtt {
        self.rtt
    }

    /// The window in bytes: OpSize × CWND.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.op_charge.op_size * self.cwnd
    }

    /// Returns the bytes that an op of `op_size` bytes adds to the outstanding bytes, until it
    /// completes.
    #[must_use]
    pub fn charge(&self, op_size: u32) -> u32 {
        self.op_charge.bytes(op_size)
    }

    /// Whether an op of `op_size` bytes may be issued beside `outstanding` bytes, the sum of what
    /// ops to this remote NIC that move data this way were charged.
    ///
    /// A single op always may, however small the window: [`Window::pacing_interval_nanos`] is what
    /// keeps windows below one op, so the time since the last op must be heeded as well.
    //= 1rma#6-outstanding-ops
    #[must_use]
    pub fn admits(&self, outstanding: u64, op_size: u32) -> bool {
        let after = outstanding + u64::from(self.charge(op_size));
        outstanding == 0 || after as f64 <= self.bytes()
    }

    /// How long after an op of `op_size` bytes the next one may be issued at the earliest, in
    /// nanoseconds: the op's charge at the rate of OpSize × CWND / RTT.
    ///
    /// For Swift and fixed windows: zero, unless the window is below one op.
    //= 1rma#6-issue-rate
    #[must_use]
    pub fn pacing_interval_nanos(&self, op_size: u32) -> u64 {
        if self.pacing == Pacing::BelowOneOp && self.cwnd >= 1.0 {
            return 0;
        }
        // Rounded down by less than a nanosecond; a cast saturates.
        (self.op_charge.ops(op_size) * self.rtt.best_nanos() / self.cwnd) as u64
    }
}
