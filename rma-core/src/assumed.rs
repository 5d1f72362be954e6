//! Assumptions of NIC and software about a network where nobody says otherwise.

use core::time::Duration;

/// The round trip of a frame and its answer.
pub(crate) const RTT: Duration = Duration::from_micros(10);

/// How long an op in service may wait for its data: several time slices of a loaded two-core
/// machine.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(100);
