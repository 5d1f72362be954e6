//! Settings of a CommandExecutor.

use core::time::Duration;

use thiserror::Error;

use crate::{
    assumed,
    backend::ReceiveLenMax,
    cc::{CcConfig, CcConfigBuilder, CcConfigError},
    limits::{OP_SIZE_MAX, TIMEOUT_MAX, TIMEOUT_MIN},
    wire::OVERHEAD_MAX,
};

/// Settings of one CommandExecutor. Nothing is believed until it is made.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct ExecutorConfig {
    /// How many calls there can be that are not over, or whose outcomes have not been taken. 1
    /// to 65535. Default: 1024, about 0.2 KiB each.
    pub calls: u16,
    /// The largest payload of one frame, in bytes, with IPv4 and with IPv6: transfers are cut by
    /// it. Default: what an MTU of 1500 leaves.
    pub payload_len_max: PayloadLenMax,
    /// The largest op that a transfer is cut into, in bytes; 64 to 4096, and what the frame makes
    /// of it. Default: 4096. Smaller: other transfers wait for less, and each byte costs more.
    pub op_size_max: u32,
    /// How long an op in service may wait for its data, by the NIC's
    /// [`Timing`](crate::nic::Timing). Default: 100 ms. What the executor does about remote NICs
    /// that do not answer goes by it.
    pub timeout: Duration,
    /// How long a call without a deadline of its own may take from one op that was OK to the next,
    /// and to the first: after that it ends with
    /// [`CallStatus::DeadlineExceeded`](super::CallStatus::DeadlineExceeded). At least `timeout`.
    /// Default: 10 s, or four timeouts if that is longer. A call whose
    /// [`RetryPolicy::outlast`](super::RetryPolicy::outlast) is longer may take that long.
    pub stall: Duration,
    /// Congestion control.
    pub cc: CcConfigBuilder,
}

/// The largest payload of one frame, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLenMax {
    /// In an IPv4 datagram.
    pub ipv4: u32,
    /// In an IPv6 datagram.
    pub ipv6: u32,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self::new(ReceiveLenMax::default(), assumed::TIMEOUT, assumed::RTT)
    }
}

impl ExecutorConfig {
    /// Makes settings that suit a NIC that receives frames of this length and ends ops with this
    /// timeout, on a network with this round trip.
    pub fn new(receive: ReceiveLenMax, timeout: Duration, rtt: Duration) -> Self {
        let payload =
            |frame: usize| frame.saturating_sub(OVERHEAD_MAX).min(OP_SIZE_MAX as usize) as u32;
        Self {
            calls: 1024,
            payload_len_max: PayloadLenMax {
                ipv4: payload(receive.ipv4),
                ipv6: payload(receive.ipv6),
            },
            op_size_max: OP_SIZE_MAX,
            timeout,
            stall: timeout.saturating_mul(4).max(STALL),
            cc: CcConfigBuilder::software(rtt),
        }
    }

    pub(super) fn build(self) -> Result<CcConfig, ExecutorConfigError> {
        if self.calls == 0 || self.calls == u16::MAX {
            return Err(ExecutorConfigError::Calls { calls: self.calls });
        }
        if !(OP_SIZE_MIN..=OP_SIZE_MAX).contains(&self.op_size_max) {
            return Err(ExecutorConfigError::OpSizeMax { op_size_max: self.op_size_max });
        }
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&self.timeout) {
            return Err(ExecutorConfigError::Timeout { timeout: self.timeout });
        }
        if self.stall < self.timeout {
            return Err(ExecutorConfigError::Stall { stall: self.stall, timeout: self.timeout });
        }
        Ok(self.cc.build()?)
    }
}

/// How long a call without a deadline may go without a success, by default. Shorter: a peer that is
/// overloaded for a while fails calls that it would have served. Longer: an application that forgot
/// a deadline waits longer for what never comes.
const STALL: Duration = Duration::from_secs(10);

/// Below a granule, ops would be all request.
const OP_SIZE_MIN: u32 = crate::limits::GRANULE;

/// A setting that cannot work.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ExecutorConfigError {
    /// There must be a call, and the largest number marks the end of a list.
    #[error("`calls` is {calls}: it must be in 1..={}", u16::MAX - 1)]
    Calls {
        /// The refused value.
        calls: u16,
    },
    /// Ops have 64 to 4096 bytes.
    #[error("`op_size_max` is {op_size_max}: it must be in {OP_SIZE_MIN}..={OP_SIZE_MAX}")]
    OpSizeMax {
        /// The refused value.
        op_size_max: u32,
    },
    /// No NIC has such a timeout.
    #[error(
        "`timeout` is {timeout:?}: it must be in {TIMEOUT_MIN:?}..={TIMEOUT_MAX:?}, as the NIC's"
    )]
    Timeout {
        /// The refused value.
        timeout: Duration,
    },
    /// Calls would end before an op can.
    #[error("`stall` is {stall:?}: it must be at least `timeout`, {timeout:?}")]
    Stall {
        /// The refused value.
        stall: Duration,
        /// The NIC's timeout.
        timeout: Duration,
    },
    /// Congestion control has a setting that cannot work.
    #[error(transparent)]
    Cc(#[from] CcConfigError),
}

settings!(ExecutorConfig);
