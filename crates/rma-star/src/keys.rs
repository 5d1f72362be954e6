//! Keys that Z derives from a frame's header, so that it keeps none per connection (ours; the
//! paper authenticates nothing).
//!
//! Each protection domain of Z has a secret K_p. Under it Z derives, by AES-CMAC over names, the
//! key of every frame, and a right tag *is* the permission:
//!
//! | key | of | its frames prove | seals |
//! |---|---|---|---|
//! | K_c | the connection | Z set up this connection | WQEP, CQEP, EA, STATE |
//! | K_w | a WQE of Z | Z posted this WQE: this span, this direction | RD, RDA, GD, GDA of it |
//! | K_m | an MR or MW and an op | Z shared it with this connection | those of F's own ops |
//!
//! Of a connection both of whose sides are stateful (RC), K_c is derived by the side that connects,
//! and seals nothing. Each way there is a half of the connection, in which one side asks and the
//! other answers; the key K_h of a half is derived under K_c.
//!
//! F has no K_p: it gets K_c when the connection is set up, K_w within each WQE, K_m when it is
//! told of an MR.
//!
//! Invariant of whoever uses this: no name comes twice under one K_p, as a name that is used again
//! would bring the old key back. What is secret here does not show in `Debug`.

use core::fmt;

use rma_core::addr::HostAddr;
use rma_crypto::{AeadProvider, CMAC_MESSAGE_MAX, DeriveFrom, DeriveJob, Key, KeySchedule};

use crate::{
    names::{ConnectionName, Generation, MrId, MrName, Slot},
    verbs::WqeOp,
};

/// Octets of each key.
pub const KEY_LEN: usize = rma_crypto::KEY_LEN;

/// K_p: 128 bits that all keys of one protection domain of Z are derived from. It never leaves Z.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PdKey([u8; KEY_LEN]);

impl PdKey {
    /// A key from 16 octets of a cryptographically secure random source: new ones for each life of
    /// Z, so that nothing that was sealed before is authentic after.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for PdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PdKey(secret)")
    }
}

/// K_p ready for derivation, as it lies in the table of protection domains.
#[derive(Clone)]
pub struct PdKeySchedule(KeySchedule);

impl PdKeySchedule {
    /// Expands `key` for `aead`. Another provider would begin from the key each time.
    #[must_use]
    pub fn new(aead: &dyn AeadProvider, key: &PdKey) -> Self {
        Self(aead.schedule(Key::from_ref(&key.0)))
    }

    /// The key that is derived from `message`, alone: a batch derives all its keys together, by
    /// [`KeyMessage::job`].
    #[must_use]
    pub fn derive(&self, aead: &dyn AeadProvider, message: &KeyMessage) -> FrameKey {
        let mut key = [Key::default()];
        aead.derive(&[message.job(self)], &mut key);
        FrameKey(*key[0].expose())
    }
}

impl fmt::Debug for PdKeySchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PdKeySchedule(secret)")
    }
}

/// A key that frames are sealed under: a K_c, K_w or K_m.
///
/// Not erased when it is dropped: WQEs carry it through an application's memory, and F keeps it in
/// tables that are used again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameKey([u8; KEY_LEN]);

impl FrameKey {
    /// The key of nothing, where none is known or needed: no side takes what is under it.
    pub const NONE: Self = Self([0; 16]);

    /// The key with these octets.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The key, as providers take it.
    #[must_use]
    pub const fn as_key(&self) -> &Key {
        Key::from_ref(&self.0)
    }

    /// K_h: under this K_c, the key of the half in which `half` says who asks, as F, and who
    /// answers, as Z.
    //= star#ours-key-of-half
    #[must_use]
    pub fn of_half(&self, aead: &dyn AeadProvider, half: &Binding) -> Self {
        let schedule = PdKeySchedule::new(aead, &PdKey(self.0));
        schedule.derive(aead, &KeyMessage::of_half(half))
    }

    /// The key's octets: what goes to F over a secret channel, or encrypted.
    #[must_use]
    pub const fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for FrameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameKey(secret)")
    }
}

/// The facts that all keys of a connection are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The connection's names.
    pub connection: ConnectionName,
    /// The address of F.
    pub f: HostAddr,
    /// The address of Z, of the same family.
    pub z: HostAddr,
}

/// The further facts that a K_w is bound to: one use of a slot, and the span that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenSpan {
    /// The op that Z posted.
    pub op: WqeOp,
    /// The WQE's slot: never [`Slot::NONE`].
    pub slot: Slot,
    /// The use of the slot.
    pub generation: Generation,
    /// The memory region of Z that data lands in, or comes from.
    pub mr: MrId,
    /// The offset in it at which the span begins, in octets.
    pub mr_offset: u64,
    /// How long the span is, in octets.
    pub len: u32,
}

/// The octets that messages begin with, one for each kind of key, so that no message is two keys'.
mod domain {
    pub(super) const CONNECTION: u8 = b'C';
    pub(super) const WQE: u8 = b'W';
    pub(super) const MR: u8 = b'M';
    pub(super) const HALF: u8 = b'H';
}

/// Octets of the longest message: a K_w's, between IPv6 addresses.
const MESSAGE_MAX: usize = 77;

const _: () = assert!(MESSAGE_MAX <= CMAC_MESSAGE_MAX, "providers take all messages");

/// The message that a key is derived from: the domain octet, the binding, and what the key is bound
/// to besides, one behind the other. Domain and family tell how long each part is, so no two names
/// share a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMessage {
    octets: [u8; MESSAGE_MAX],
    len: u8,
}

impl KeyMessage {
    /// Of K_c.
    //= star#ours-key-of-connection
    #[must_use]
    pub fn of_connection(binding: &Binding) -> Self {
        Self::begin(domain::CONNECTION, binding)
    }

    /// Of the K_w of the WQE that opens `span`.
    //= star#ours-key-of-wqe
    #[must_use]
    pub fn of_wqe(binding: &Binding, span: &OpenSpan) -> Self {
        let mut message = Self::begin(domain::WQE, binding);
        message.push(&[span.op.code()]);
        message.push(&span.slot.0.to_be_bytes());
        message.push(&span.generation.0.to_be_bytes());
        message.push(&span.mr.0.to_be_bytes());
        message.push(&span.mr_offset.to_be_bytes());
        message.push(&span.len.to_be_bytes());
        message
    }

    /// Of the K_m of F's WRITEs or READs of `mr`.
    //= star#ours-key-of-mr
    #[must_use]
    pub fn of_mr(binding: &Binding, op: WqeOp, mr: MrName) -> Self {
        let mut message = Self::begin(domain::MR, binding);
        message.push(&[op.code()]);
        message.push(&mr.0.to_be_bytes());
        message
    }

    /// Of the K_h of a half of an RC connection, under its K_c.
    //= star#ours-key-of-half
    #[must_use]
    pub fn of_half(half: &Binding) -> Self {
        Self::begin(domain::HALF, half)
    }

    fn begin(domain: u8, binding: &Binding) -> Self {
        let Binding { connection, f, z } = binding;
        let is_v4 = f.is_ipv4() && z.is_ipv4();
        let mut message = Self { octets: [0; MESSAGE_MAX], len: 0 };
        message.push(&[domain, if is_v4 { 4 } else { 6 }]);
        message.push(&connection.pd.0.to_be_bytes());
        message.push(&connection.qpn_z.to_bits().to_be_bytes());
        message.push(&connection.qpn_f.to_bits().to_be_bytes());
        message.push(&connection.nonce.0.to_be_bytes());
        message.push(&connection.era.0.to_be_bytes());
        for address in [f, z] {
            let octets = address.to_octets();
            message.push(if is_v4 { &octets[12..] } else { &octets });
        }
        message
    }

    fn push(&mut self, part: &[u8]) {
        let end = usize::from(self.len) + part.len();
        self.octets[usize::from(self.len)..end].copy_from_slice(part);
        self.len = end as u8;
    }

    /// The message.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// The derivation under `pd`.
    #[must_use]
    pub fn job<'a>(&'a self, pd: &'a PdKeySchedule) -> DeriveJob<'a> {
        DeriveJob { schedule: &pd.0, from: DeriveFrom::Cmac(self.octets()) }
    }
}

#[cfg(test)]
mod tests;
