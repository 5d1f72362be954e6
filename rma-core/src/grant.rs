//! What an initiator must know to access a remote region (1RMA §3.1, figure 5, steps 1 to 3).

use crate::{
    addr::{HostAddr, Pid},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule},
    op::OpType,
    region::RegionId,
};

/// The permission to run ops of one type on one remote region, for one process of one host.
///
/// It travels out of band, over a channel that keeps it secret: whoever holds the key and can send
/// from `initiator` can run such ops. It does not expire; rotating the region key ends it.
///
/// A host makes it (`Host::grant` of the crate `rma-xdp`). What is sent is the fields: the
/// addresses and the key as octets, the rest as numbers.
///
/// ```
/// # use rma_core::{addr::Pid, crypto::{DerivedRegionKey, RegionKey}, grant::Grant, op::OpType, region::RegionId};
/// # fn received() -> Grant {
/// #     Grant {
/// #         responder: [192, 0, 2, 1].into(),
/// #         region: RegionId::from_bits(5),
/// #         region_len: 4096,
/// #         initiator: [192, 0, 2, 2].into(),
/// #         pid: Pid(1234),
/// #         op_type: OpType::Read,
/// #         key: DerivedRegionKey::from_bytes([7; 16]),
/// #     }
/// # }
/// let grant: Grant = received(); // over a channel that keeps secrets
/// println!("{} bytes of region {} at {}", grant.region_len, grant.region, grant.responder);
///
/// // The owner is going to rotate the key, and makes the next grant beforehand.
/// let next_key = RegionKey::from_bytes([9; 16]);
/// let next = grant.under(&next_key);
/// assert_eq!((next.region, next.pid), (grant.region, grant.pid));
/// assert_ne!(next.key, grant.key);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The host that the region is registered at: the responder.
    pub responder: HostAddr,
    /// The region's name there.
    pub region: RegionId,
    /// The region's length in bytes when the grant was made; of a receive queue, the length of each
    /// of its buffers, and so the longest message; of a circular region, twice its length, so that
    /// an op may begin anywhere and go on past the end. For the holder's information: the responder
    /// checks bounds itself, and refuses an op that is longer than a circular region. That two
    /// pieces of a call write the same bytes of one, a length apart, nobody notices.
    pub region_len: u64,
    /// The host that the key is bound to.
    pub initiator: HostAddr,
    /// The process that the key is bound to.
    pub pid: Pid,
    /// The type of op that the key is bound to.
    pub op_type: OpType,
    /// K_d, which proves that the initiator may do such ops.
    pub key: DerivedRegionKey,
}

impl Grant {
    /// The same permission under another region key: what its holder needs once a Rekey has
    /// installed `key`. Handed out before, it makes the rotation cost one round trip (§5.2).
    //= 1rma#5.2-predistributed
    #[must_use]
    pub fn under(&self, key: &RegionKey) -> Self {
        let Self { responder, initiator, pid, op_type, .. } = *self;
        let binding = KeyBinding { initiator, responder, pid, op_type };
        Self { key: RegionKeySchedule::new(key).derive(&binding), ..*self }
    }
}
