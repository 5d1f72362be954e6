//! The NIC's supply of counter values: blocks that the host has reserved for it (P4).
//!
//! Each frame that is sealed takes one value. When there is none, no frame is sealed: ops time out,
//! requests go unanswered, and it is counted. The NIC does not reserve blocks and does not know
//! where they come from.

use super::Nic;
use crate::crypto::CounterBlock;

impl Nic {
    /// Gives the NIC the block of counter values to go on with when the present one is used up.
    ///
    /// # Errors
    /// The block comes back if the NIC has one to go on with already, or if it might repeat a
    /// value.
    pub fn add_counter_block(&mut self, block: CounterBlock) -> Result<(), CounterBlock> {
        self.security.counter_mut().add(block)
    }

    /// Whether the present block is half used up, and there is none to go on with.
    #[must_use]
    pub const fn wants_counter_block(&self) -> bool {
        self.security.counter().wants_block()
    }

    /// How many frames can be sealed with the counter values that are left.
    #[must_use]
    pub const fn counter_values_left(&self) -> u64 {
        self.security.counter().left()
    }

    /// Whether a frame can be sealed. Counts it if one waits in vain.
    pub(super) fn may_seal(&self) -> bool {
        let may = self.security.can_seal();
        if !may && self.output() > 0 {
            self.counters.seals_refused.add(1);
        }
        may
    }

    /// About how many frames wait to be sent, if they can be sealed. 0 only if there is none.
    pub(super) fn output(&self) -> usize {
        self.responder.frames_waiting(&self.window) + self.initiator.frames_waiting(&self.window)
    }
}
