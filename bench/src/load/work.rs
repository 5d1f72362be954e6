//! Work that a load's loop gives ops to: a portal's ops of up to 4 KiB, an executor's calls of any
//! size.

use rma_core::time::Instant;
use rma_xdp::OpStatus;

use crate::{error::PairError, failures::Failures};

/// Issues ops, and tells how they end.
pub(crate) trait Work {
    /// Issues an op for each that `take` gives, as long as there is room. `take` is asked at the
    /// time at which the op is issued, and answers when it was due.
    ///
    /// # Errors
    /// If an op is refused.
    fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError>;

    /// Lets the engine do what there is to do. Returns whether there was anything.
    fn turn(&mut self) -> bool;

    /// The next op that has ended.
    fn poll(&mut self) -> Option<Ended>;

    /// The failures in a row, which end a run at some point.
    fn failures(&mut self) -> &mut Failures;
}

/// The time at which an op was due, and that at which it is issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) due: Instant,
    pub(crate) issued: Instant,
}

/// An op that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Its index in the mix of ops.
    pub(crate) kind: usize,
    pub(crate) at: Due,
    pub(crate) status: OpStatus,
    /// Bytes of payload that it moved, if it is OK.
    pub(crate) bytes: u64,
    /// Ops that were issued again for it.
    pub(crate) retries: u32,
    /// The place where a byte is not what it should be.
    pub(crate) wrong: Option<u64>,
}
