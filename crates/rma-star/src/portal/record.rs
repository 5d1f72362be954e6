//! The application's record of a connection for its engine: enough to write a frame to its peer
//! (the paper's "copy in local host memory", §III-C1).

use rma_core::addr::HostAddr;

/// One connection, as the engine needs to know it to write a frame. 64 octets of the portal's
/// memory for each QP, and the only place where this host has it as long as it is the stateless
/// side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpRecord {
    /// The host of the peer.
    pub peer: HostAddr,
    /// The protection domain of the stateless side, by its number there. From when the connection
    /// is ready on `local_pd` at both sides: of the connection as it is when this host is the
    /// stateless side, now or after a change of roles.
    pub pd: u32,
    /// The protection domain of this host that the QP is of: what it may touch here. At the
    /// stateless side the same as `pd`.
    pub local_pd: u32,
    /// The QPN of the peer.
    pub peer_qpn: u32,
    /// The nonce of the connection: this use of the stateless side's QPN. Chosen by that side.
    /// Later, as `pd`, of this host's QPN.
    pub nonce: u32,
    /// The era of the roles when the connection begins; engines know it from then on. Later, for
    /// the library alone: the highest number of a change of roles that it has seen.
    pub era: u16,
    /// The longest packet that the peer takes, in octets.
    pub packet_len_max: u16,
    /// Z's clock when the connection was set up, in microseconds, as its library told over the
    /// secret channel. Frames carry half of a time: this says which the other half is, until the
    /// first of them has come. Within half an hour is good enough. Of no meaning at the stateless
    /// side. Later, for the library alone: when its roles have changed last, or 0.
    pub z_clock: u64,
    /// K_c, which the stateful side was given when the connection was set up. Zero at the
    /// stateless side, whose engine derives it.
    pub key: [u8; 16],
}

impl QpRecord {
    /// Words that a record takes.
    pub(super) const WORDS: usize = 8;

    pub(super) fn to_words(self) -> [u64; Self::WORDS] {
        let peer = u128::from_be_bytes(self.peer.to_octets());
        let key = u128::from_be_bytes(self.key);
        [
            (peer >> 64) as u64,
            peer as u64,
            u64::from(self.pd) << 32 | u64::from(self.peer_qpn),
            u64::from(self.nonce) << 32
                | u64::from(self.era) << 16
                | u64::from(self.packet_len_max),
            (key >> 64) as u64,
            key as u64,
            u64::from(self.local_pd) << 32,
            self.z_clock,
        ]
    }

    /// Of any words at all: the engine checks what it uses.
    pub(super) fn from_words(words: [u64; Self::WORDS]) -> Self {
        let whole = |high: u64, low: u64| (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Self {
            peer: HostAddr::from_octets(whole(words[0], words[1])),
            pd: (words[2] >> 32) as u32,
            local_pd: (words[6] >> 32) as u32,
            peer_qpn: words[2] as u32,
            nonce: (words[3] >> 32) as u32,
            era: (words[3] >> 16) as u16,
            packet_len_max: words[3] as u16,
            z_clock: words[7],
            key: whole(words[4], words[5]),
        }
    }
}
