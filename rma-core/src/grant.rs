//! What an initiator must know to access a remote region (1RMA §3.1, figure 5, steps 1 to 3).

use crate::{
    addr::{HostAddr, Pid},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule},
    op::OpType,
    region::RegionId,
};

/// The permission to run ops of one type on one remote region, for one process of one host.
///
/// It travels out of band, over a channel that keeps it secret: whoever holds the key and can send from
/// `initiator` can run such ops. It does not expire; rotating the region key ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The host that the region is registered at: the responder.
    pub responder: HostAddr,
    /// The region's name there.
    pub region: RegionId,
    /// The region's length in bytes when the grant was made. For the holder's information: the
    /// responder checks bounds itself.
    pub region_len: u64,
    /// The host that the key is bound to.
    pub initiator: HostAddr,
    /// The process that the key is bound to.
    pub pid: Pid,
    /// The type of op that the key is bound to.
    pub op_type: OpType,
    /// K_d.
    pub key: DerivedRegionKey,
}

impl Grant {
    /// The same permission under another region key: what its holder needs once a Rekey has installed `key`. Handed
    /// out before, it makes the rotation cost one round trip (§5.2).
    //= 1rma#5.2-predistributed
    #[must_use]
    pub fn under(&self, key: &RegionKey) -> Self {
        let Self { responder, initiator, pid, op_type, .. } = *self;
        let binding = KeyBinding { initiator, responder, pid, op_type };
        Self { key: RegionKeySchedule::new(key).derive(&binding), ..*self }
    }
}
