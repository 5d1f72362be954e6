//! Region keys and what is derived from them (1RMA §4.2, figure 5).

use core::fmt;

use rma_crypto::{AeadProvider, DeriveFrom, DeriveJob, Key, KeySchedule, fastest};

use crate::{
    addr::{HostAddr, Pid},
    limits::REGION_KEY_LEN,
    op::OpType,
};

//= 1rma#4.2-keys-stay
//= type=deviation
/// K_r: 128 bits that protect one region. A party that has it can derive every K_d of the region,
/// so it stays with the region's owner. It travels in one frame only: encrypted, as the data of the
/// Rekey that installs it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RegionKey([u8; REGION_KEY_LEN]);

impl RegionKey {
    /// A key from 16 octets of a cryptographically secure random source.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; REGION_KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The key's octets: what a Rekey carries, encrypted.
    #[must_use]
    pub const fn expose(&self) -> &[u8; REGION_KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegionKey(secret)")
    }
}

/// K_d: the key of one initiating process at one responder, for one op type.
///
/// Not erased when it is dropped: commands carry it through the memory of a portal, and ops'
/// records through tables that are used again and again, so copies of it lie about as long as a NIC
/// runs. Expanded keys and those that a provider holds are erased. What a K_d opens is what its one
/// process may have, until the region's key is rotated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DerivedRegionKey([u8; 16]);

impl DerivedRegionKey {
    /// The well-known key under which a responder seals REMOTE_AUTHENTICATION_FAILURE, because it
    /// shares no key with the sender (§4.2). The request's tag, which such a notice is bound to,
    /// shows only that its sender has seen the request.
    pub const RESERVED: Self = Self(*b"1RMA reserved k.");

    /// The key with these octets.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The key that a provider has derived.
    pub(crate) const fn of(key: &Key) -> Self {
        Self(*key.expose())
    }

    /// The key, as providers take it.
    #[must_use]
    pub const fn as_key(&self) -> &Key {
        Key::from_ref(&self.0)
    }

    /// The key's octets, to be carried to the initiator over a secret channel, and to nowhere else.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for DerivedRegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivedRegionKey(secret)")
    }
}

/// The parties and the type of op that a K_d is for.
///
/// The paper names initiator, PID and op type. The responder is ours: with it, only two parties
/// ever send under one K_d, and hosts may share a K_r.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBinding {
    /// The initiator's address.
    pub initiator: HostAddr,
    /// The responder's address, of the same family.
    pub responder: HostAddr,
    /// The initiating process.
    pub pid: Pid,
    /// The only type of op that the key is good for.
    pub op_type: OpType,
}

/// The domain octet that begins what is derived from, one for each way, so that the two never meet.
mod domain {
    pub(super) const V4_BLOCK: u8 = 0x04;
    pub(super) const CMAC: u8 = 0x06;
}

/// The fields that a K_d is derived from: the fields of a [`KeyBinding`], one after the other.
///
/// Between IPv4 addresses they are one AES block, as in the paper. IPv6 addresses do not fit one
/// block: AES-CMAC (RFC 4493) over the same fields, with its own domain octet.
//= 1rma#4.2-derived-key
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindingFields {
    octets: [u8; 40],
    is_block: bool,
}

impl BindingFields {
    #[inline]
    pub(crate) fn new(binding: &KeyBinding) -> Self {
        let KeyBinding { initiator, responder, pid, op_type } = *binding;
        let mut octets = [0; 40];
        octets[1] = op_type as u8;
        octets[4..8].copy_from_slice(&pid.0.to_be_bytes());
        let is_block = initiator.is_ipv4() && responder.is_ipv4();
        let (initiator, responder) = (initiator.to_octets(), responder.to_octets());
        if is_block {
            octets[0] = domain::V4_BLOCK;
            octets[8..12].copy_from_slice(&initiator[12..]);
            octets[12..16].copy_from_slice(&responder[12..]);
            return Self { octets, is_block };
        }
        octets[0] = domain::CMAC;
        octets[8..24].copy_from_slice(&initiator);
        octets[24..40].copy_from_slice(&responder);
        Self { octets, is_block }
    }

    /// The derivation of K_d under `region_key`.
    pub(crate) fn job<'a>(&'a self, region_key: &'a RegionKeySchedule) -> DeriveJob<'a> {
        let from = match self.octets.first_chunk() {
            Some(block) if self.is_block => DeriveFrom::Block(block),
            _ => DeriveFrom::Cmac(&self.octets),
        };
        DeriveJob { schedule: &region_key.0, from }
    }
}

/// K_r ready for derivation: its AES key schedule, kept in the registered region table.
#[derive(Clone)]
pub struct RegionKeySchedule(KeySchedule);

impl RegionKeySchedule {
    /// Expands `key`, for the fastest provider that the processor can run.
    #[must_use]
    pub fn new(key: &RegionKey) -> Self {
        Self::with(fastest(), key)
    }

    /// Expands `key` for `aead`. Another provider would begin from the key each time, which costs
    /// it time.
    #[must_use]
    pub fn with(aead: &dyn AeadProvider, key: &RegionKey) -> Self {
        Self(aead.schedule(Key::from_ref(&key.0)))
    }

    /// K_d for `binding`.
    #[must_use]
    pub fn derive(&self, binding: &KeyBinding) -> DerivedRegionKey {
        self.derive_with(fastest(), binding)
    }

    /// K_d for `binding`, computed by `aead`.
    pub(crate) fn derive_with(
        &self,
        aead: &dyn AeadProvider,
        binding: &KeyBinding,
    ) -> DerivedRegionKey {
        let mut key = [Key::default()];
        aead.derive(&[BindingFields::new(binding).job(self)], &mut key);
        DerivedRegionKey::of(&key[0])
    }
}

impl fmt::Debug for RegionKeySchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegionKeySchedule(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> RegionKeySchedule {
        RegionKeySchedule::new(&RegionKey::from_bytes(core::array::from_fn(|i| i as u8)))
    }

    fn binding(initiator: &str, responder: &str, pid: u32) -> KeyBinding {
        KeyBinding {
            initiator: initiator.parse().unwrap(),
            responder: responder.parse().unwrap(),
            pid: Pid(pid),
            op_type: OpType::Read,
        }
    }

    //= 1rma#4.2-derived-key
    //= type=test
    #[test]
    fn every_field_of_the_binding_changes_the_key_in_both_families() {
        let schedule = schedule();
        let all = [
            binding("192.0.2.1", "192.0.2.2", 7),
            binding("192.0.2.2", "192.0.2.1", 7),
            binding("192.0.2.1", "192.0.2.3", 7),
            binding("192.0.2.1", "192.0.2.2", 8),
            binding("2001:db8::1", "2001:db8::2", 7),
            binding("2001:db8::2", "2001:db8::1", 7),
            binding("2001:db8::1", "2001:db8::3", 7),
            binding("2001:db8::1", "2001:db8::2", 8),
            KeyBinding { op_type: OpType::Write, ..binding("192.0.2.1", "192.0.2.2", 7) },
            KeyBinding { op_type: OpType::Rekey, ..binding("192.0.2.1", "192.0.2.2", 7) },
            KeyBinding { op_type: OpType::Write, ..binding("2001:db8::1", "2001:db8::2", 7) },
        ]
        .map(|binding| *schedule.derive(&binding).expose());
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b), "binding {i} repeats a key");
        }
    }

    #[test]
    fn another_region_key_gives_another_derived_key() {
        let other = RegionKeySchedule::new(&RegionKey::from_bytes([9; 16]));
        let binding = binding("192.0.2.1", "192.0.2.2", 7);
        assert_ne!(schedule().derive(&binding), other.derive(&binding));
    }

    #[test]
    fn debug_output_does_not_show_keys() {
        let key = DerivedRegionKey::from_bytes([0x5a; 16]);
        let text = format!("{key:?} {:?} {:?}", schedule(), RegionKey::from_bytes([0x5a; 16]));
        assert!(!text.contains("5a") && !text.contains("90"), "{text}");
    }
}
