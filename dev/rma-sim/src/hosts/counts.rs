//! The counts of a host, by type of op: the paper's *requests*, and their cost.

use rma_core::op::OpType;

/// The counts of one type of op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Ops that the host has issued, first attempts and others.
    pub issued: u64,
    /// Those of them that have ended with OK.
    pub done: u64,
    /// Frames that the host has sent for such ops, its own and those of others.
    pub frames: u64,
    /// Octets of these frames, without the headers of their packets.
    pub octets: u64,
}

/// The counts of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    by_type: [OpCounts; OpType::ALL.len()],
    /// SETTLEs that the host has issued. Their frames count with the type of op they ask about.
    pub settles: u64,
    /// Packets that the host has sent.
    pub packets: u64,
}

impl Counts {
    /// Returns the counts of ops of this type.
    #[must_use]
    pub const fn of(&self, op_type: OpType) -> OpCounts {
        self.by_type[op_type.index()]
    }

    pub(super) const fn of_mut(&mut self, op_type: OpType) -> &mut OpCounts {
        &mut self.by_type[op_type.index()]
    }

    /// Of ops of all types.
    #[must_use]
    pub fn total(&self) -> OpCounts {
        let mut total = OpCounts::default();
        for OpCounts { issued, done, frames, octets } in self.by_type {
            total.issued += issued;
            total.done += done;
            total.frames += frames;
            total.octets += octets;
        }
        total
    }

    /// Returns the counts since these were `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (now, before) in since.by_type.iter_mut().zip(&earlier.by_type) {
            now.issued -= before.issued;
            now.done -= before.done;
            now.frames -= before.frames;
            now.octets -= before.octets;
        }
        since.settles -= earlier.settles;
        since.packets -= earlier.packets;
        since
    }
}
