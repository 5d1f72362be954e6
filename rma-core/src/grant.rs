//! Grants: what an initiator must know to access a remote region (1RMA §3.1, figure 5, steps 1 to
//! 3).

use core::ops::Range;

use thiserror::Error;

use crate::{
    addr::{HostAddr, Pid},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule},
    keylog,
    op::OpType,
    region::RegionId,
};

/// The permission to run ops of one type on one remote region, for one process of one host.
///
/// It travels out of band, over a channel that keeps it secret: whoever holds the key and can send
/// from `initiator` can run such ops. It does not expire; rotating the region key ends it.
///
/// A host makes it (`Host::grant` of the crate `rma-xdp`). What is sent is [`Grant::encode`]'s
/// octets.
///
/// ```
/// # use rma_core::{addr::Pid, crypto::{DerivedRegionKey, RegionKey}, grant::Grant, op::OpType, region::RegionId};
/// # fn received() -> [u8; 72] {
/// #     let grant = Grant {
/// #         responder: [192, 0, 2, 1].into(),
/// #         region: RegionId::from_bits(5),
/// #         region_len: 4096,
/// #         initiator: [192, 0, 2, 2].into(),
/// #         pid: Pid(1234),
/// #         op_type: OpType::Read,
/// #         key: DerivedRegionKey::from_bytes([7; 16]),
/// #     };
/// #     grant.encode()
/// # }
/// let grant = Grant::decode(&received())?; // over a channel that keeps secrets
/// println!("{} bytes of region {} at {}", grant.region_len, grant.region, grant.responder);
///
/// // The owner is going to rotate the key, and makes the next grant beforehand.
/// let next_key = RegionKey::from_bytes([9; 16]);
/// let next = grant.under(&next_key);
/// assert_eq!((next.region, next.pid), (grant.region, grant.pid));
/// assert_ne!(next.key, grant.key);
/// # Ok::<(), rma_core::grant::GrantError>(())
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

/// How long an encoded grant is, in octets.
pub const GRANT_LEN: usize = 72;

/// The version of the encoding. Another one is refused.
const VERSION: u8 = 1;

/// The offsets of the fields in an encoded grant. Numbers are big-endian, IPv4 addresses are mapped
/// into IPv6.
mod field {
    use core::ops::Range;

    pub(super) const VERSION: usize = 0;
    pub(super) const OP_TYPE: usize = 1;
    /// Zero, so that what follows is aligned.
    pub(super) const RESERVED: Range<usize> = 2..4;
    pub(super) const PID: Range<usize> = 4..8;
    pub(super) const REGION: Range<usize> = 8..12;
    pub(super) const RESERVED_TOO: Range<usize> = 12..16;
    pub(super) const REGION_LEN: Range<usize> = 16..24;
    pub(super) const RESPONDER: Range<usize> = 24..40;
    pub(super) const INITIATOR: Range<usize> = 40..56;
    pub(super) const KEY: Range<usize> = 56..super::GRANT_LEN;
}

/// The reason why octets are no grant. No octet of a key is shown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantError {
    /// Too short or too long.
    #[error("{len} octets are no grant, which has {GRANT_LEN}; send what encode() gave, whole")]
    Len {
        /// How many there are.
        len: usize,
    },
    /// Another version.
    #[error("a grant of version {version}, and this is version {VERSION}; update the older side")]
    Version {
        /// Its version.
        version: u8,
    },
    /// A type of op that there is not.
    #[error(
        "a grant for op type {code}, which is undefined here; update the older side, or ask for \
         another grant"
    )]
    OpType {
        /// Its code.
        code: u8,
    },
    /// Octets that must be zero are not.
    #[error(
        "reserved octets of the grant are not zero, so it was changed or is no grant; send what \
         encode() gave, whole"
    )]
    Reserved,
    /// The two hosts cannot reach each other.
    #[error("a grant for {initiator} to {responder}: both addresses must be of one family")]
    Family {
        /// The host that the key is bound to.
        initiator: HostAddr,
        /// The host of the region.
        responder: HostAddr,
    },
}

impl Grant {
    /// The grant as octets, always the same for the same grant. They hold the key: they are for a
    /// channel that keeps secrets, and to be erased afterwards.
    #[must_use]
    pub fn encode(&self) -> [u8; GRANT_LEN] {
        let mut octets = [0; GRANT_LEN];
        octets[field::VERSION] = VERSION;
        octets[field::OP_TYPE] = self.op_type as u8;
        octets[field::PID].copy_from_slice(&self.pid.0.to_be_bytes());
        octets[field::REGION].copy_from_slice(&self.region.to_bits().to_be_bytes());
        octets[field::REGION_LEN].copy_from_slice(&self.region_len.to_be_bytes());
        octets[field::RESPONDER].copy_from_slice(&self.responder.to_octets());
        octets[field::INITIATOR].copy_from_slice(&self.initiator.to_octets());
        octets[field::KEY].copy_from_slice(self.key.expose());
        octets
    }

    /// The grant that these octets are.
    ///
    /// # Errors
    /// If they are none, or of another version.
    pub fn decode(octets: &[u8]) -> Result<Self, GrantError> {
        let Some(octets) = octets.as_array::<GRANT_LEN>() else {
            return Err(GrantError::Len { len: octets.len() });
        };
        let version = octets[field::VERSION];
        if version != VERSION {
            return Err(GrantError::Version { version });
        }
        let code = octets[field::OP_TYPE];
        let op_type = OpType::from_code(code).ok_or(GrantError::OpType { code })?;
        if octets[field::RESERVED] != [0; 2] || octets[field::RESERVED_TOO] != [0; 4] {
            return Err(GrantError::Reserved);
        }
        let [responder, initiator] =
            [field::RESPONDER, field::INITIATOR].map(|it| HostAddr::from_octets(part(octets, it)));
        if responder.is_ipv4() != initiator.is_ipv4() {
            return Err(GrantError::Family { initiator, responder });
        }
        Ok(Self {
            responder,
            region: RegionId::from_bits(u32::from_be_bytes(part(octets, field::REGION))),
            region_len: u64::from_be_bytes(part(octets, field::REGION_LEN)),
            initiator,
            pid: Pid(u32::from_be_bytes(part(octets, field::PID))),
            op_type,
            key: DerivedRegionKey::from_bytes(part(octets, field::KEY)),
        }
        .logged())
    }

    /// The same permission under another region key: what its holder needs once a Rekey has
    /// installed `key`. Handed out before, it makes the rotation cost one round trip (§5.2).
    //= 1rma#5.2-predistributed
    #[must_use]
    pub fn under(&self, key: &RegionKey) -> Self {
        let Self { responder, initiator, pid, op_type, .. } = *self;
        let binding = KeyBinding { initiator, responder, pid, op_type };
        let key = RegionKeySchedule::new(key).derive(&binding);
        Self { key, ..*self }.logged()
    }

    /// Tells the key log of K_d, in builds that have one: of a grant that was made here, or came
    /// here. Returns the grant.
    #[must_use]
    #[inline]
    pub fn logged(self) -> Self {
        let Self { initiator, responder, pid, op_type, region, key, .. } = &self;
        let (op, region) = (*op_type as u8, region.to_bits());
        keylog::line(format_args!(
            "1RMA_KD {initiator} {responder} {} {op} {region} {}",
            pid.0,
            keylog::Hex(key.expose())
        ));
        self
    }
}

fn part<const LEN: usize>(octets: &[u8; GRANT_LEN], field: Range<usize>) -> [u8; LEN] {
    octets[field].try_into().expect("a field has the length of its type")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> Grant {
        Grant {
            responder: [192, 0, 2, 2].into(),
            region: RegionId::from_bits(5),
            region_len: 4096,
            initiator: [192, 0, 2, 1].into(),
            pid: Pid(7),
            op_type: OpType::Write,
            key: DerivedRegionKey::from_bytes(*b"0123456789abcdef"),
        }
    }

    #[test]
    fn the_octets_of_a_grant_are_golden() {
        let hex: String = example().encode().iter().map(|it| format!("{it:02x}")).collect();
        let golden = concat!(
            "0102000000000007",
            "0000000500000000",
            "0000000000001000",
            "00000000000000000000ffffc0000202",
            "00000000000000000000ffffc0000201",
            "30313233343536373839616263646566",
        );
        assert_eq!(hex, golden);
    }

    #[test]
    fn octets_that_are_no_grant_are_refused_by_name() {
        let good = example().encode();
        let with = |at: usize, octet: u8| {
            let mut octets = good;
            octets[at] = octet;
            Grant::decode(&octets)
        };
        assert_eq!(Grant::decode(&good), Ok(example()));
        for len in 0..good.len() {
            assert_eq!(Grant::decode(&good[..len]), Err(GrantError::Len { len }));
        }
        let long = [good.as_slice(), &[0]].concat();
        assert_eq!(Grant::decode(&long), Err(GrantError::Len { len: 73 }));
        assert_eq!(with(0, 2), Err(GrantError::Version { version: 2 }));
        for code in [0, 9, 255] {
            assert_eq!(with(1, code), Err(GrantError::OpType { code }));
        }
        for at in [2, 3, 12, 15] {
            assert_eq!(with(at, 1), Err(GrantError::Reserved));
        }
        let error = with(24, 0x20).unwrap_err();
        assert!(matches!(error, GrantError::Family { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn a_grant_is_decoded_as_it_was_encoded(octets: [u8; GRANT_LEN]) {
            if let Ok(grant) = Grant::decode(&octets) {
                prop_assert_eq!(grant.encode(), octets);
            }
            // As most octets are of another version:
            let mut octets = octets;
            let op_type = 1 + octets[field::OP_TYPE] % 8;
            octets[..4].copy_from_slice(&[VERSION, op_type, 0, 0]);
            octets[field::RESERVED_TOO].fill(0);
            if let Ok(grant) = Grant::decode(&octets) {
                prop_assert_eq!(grant.encode(), octets);
            }
        }
    }
}
