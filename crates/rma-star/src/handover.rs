//! The state of a connection that one side hands to the other when they change roles (ours; the
//! paper leaves changes of roles to the future, §III-E2).
//!
//! The giver has finished all that it had begun, so what is complete of a queue is all before a
//! place in it. The work requests themselves do not travel: each library has kept its own.

use crate::{
    keys::FrameKey,
    names::{Era, Nonce, PdId, Sequence},
    octets::{u16_at, u32_at, u64_at},
};

/// Octets of it, in frames and in lines of a portal.
pub const HANDOVER_LEN: usize = 56;

/// The state of a connection, as it changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The number of the switch, and of the era that it begins.
    pub era: Era,
    /// The longest packet that the giver takes, in octets.
    pub packet_len_max: u16,
    /// W of the giver, in microseconds: for how long frames to it will be valid at most.
    pub valid_micros: u32,
    /// The giver's clock when this was sealed, in microseconds.
    pub clock: u64,
    /// The giver's protection domain, which the connection will be of.
    pub pd: PdId,
    /// The nonce of the giver's queue pair: this use of its QPN.
    pub nonce: Nonce,
    /// By queue, sends and receives: where the giver's first work request is that is not complete.
    pub giver: [Sequence; 2],
    /// The same of the taker's.
    pub taker: [Sequence; 2],
    /// K_c of the era that begins.
    pub key: FrameKey,
}

impl Handover {
    /// As octets.
    #[must_use]
    pub fn to_octets(&self) -> [u8; HANDOVER_LEN] {
        let mut octets = [0; HANDOVER_LEN];
        octets[..2].copy_from_slice(&self.era.0.to_be_bytes());
        octets[2..4].copy_from_slice(&self.packet_len_max.to_be_bytes());
        octets[4..8].copy_from_slice(&self.valid_micros.to_be_bytes());
        octets[8..16].copy_from_slice(&self.clock.to_be_bytes());
        let [giver_send, giver_recv] = self.giver;
        let [taker_send, taker_recv] = self.taker;
        let numbers =
            [self.pd.0, self.nonce.0, giver_send.0, giver_recv.0, taker_send.0, taker_recv.0];
        for (to, number) in octets[16..40].chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_be_bytes());
        }
        octets[40..].copy_from_slice(self.key.expose());
        octets
    }

    /// Of any octets at all.
    #[must_use]
    pub fn from_octets(octets: &[u8; HANDOVER_LEN]) -> Self {
        let sequences = |at| [Sequence(u32_at(octets, at)), Sequence(u32_at(octets, at + 4))];
        let mut key = [0; 16];
        key.copy_from_slice(&octets[40..]);
        Self {
            era: Era(u16_at(octets, 0)),
            packet_len_max: u16_at(octets, 2),
            valid_micros: u32_at(octets, 4),
            clock: u64_at(octets, 8),
            pd: PdId(u32_at(octets, 16)),
            nonce: Nonce(u32_at(octets, 20)),
            giver: sequences(24),
            taker: sequences(32),
            key: FrameKey::from_bytes(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn octets_say_what_was_put_into_them(octets in prop::collection::vec(any::<u8>(), 56)) {
            let octets: [u8; HANDOVER_LEN] = octets.try_into().unwrap();
            let handover = Handover::from_octets(&octets);
            prop_assert_eq!(handover.to_octets(), octets);
        }
    }
}
