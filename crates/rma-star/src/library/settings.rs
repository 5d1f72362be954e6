//! The settings and the place of a [`Verbs`](super::Verbs). Nothing changes them but the engine's
//! word about its W.
//!
//! Invariant: any values work; what makes no sense makes connections end early or late.

use core::time::Duration;

use rma_core::addr::LocalAddresses;

use crate::names::Qpn;

/// Settings of a [`Verbs`](super::Verbs). Any values work.
#[derive(Clone, Copy, Debug)]
pub struct VerbsConfig {
    /// Stateless side: after what time a work request is posted again that the peer has not taken;
    /// twice that for the next time, and so on. Default: 20 ms.
    pub repost_timeout: Duration,
    /// The largest value that the timeout grows to. Default: 320 ms.
    pub repost_timeout_max: Duration,
    /// Stateless side: how often something is posted again without hearing of the peer, until the
    /// connection has failed. Default: 7.
    pub retries: u8,
    /// Stateless side: how long nothing may be heard of a peer, while there are work requests,
    /// before it is asked whether it is there. Default: 10 s.
    pub probe_interval: Duration,
    /// W of this host's engine: for how long a frame to a stateless side is valid. If the engine
    /// says, with a connection, that it is longer, that counts. Default: 16 ms.
    pub valid: Duration,
    /// How long the set-up of a connection may take. Default: 10 s.
    pub set_up_timeout: Duration,
    /// With how many connections more than this, of which it is the stateful side, this host would
    /// rather be the stateless side of the next one. Default: 768, of the 1024 that engines have
    /// room for by default.
    pub threshold: u32,
    /// Whether connections are given away at run time as well, when this host has more than the
    /// threshold: peers that have half of theirs are asked to be the stateful side instead. At most
    /// 8 at a time, and no connection twice in 10 s. Whatever role an application has asked for, it
    /// holds only until then. Default: no.
    pub rebalances: bool,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            repost_timeout: Duration::from_millis(20),
            repost_timeout_max: Duration::from_millis(320),
            retries: 7,
            probe_interval: Duration::from_secs(10),
            valid: Duration::from_millis(16),
            set_up_timeout: Duration::from_secs(10),
            threshold: 768,
            rebalances: false,
        }
    }
}

impl VerbsConfig {
    /// T_dead of the stateless side (S1): within this time after a peer has died, or after they
    /// were posted, all work requests of the connections to it have completed, RECVs among them. A
    /// connection may just have been heard of, then is quiet until it is asked, all is posted again
    /// as often as it may be, and then what the peer was told must have expired.
    #[must_use]
    pub fn ends_within(&self) -> Duration {
        let tick = self.repost_timeout / TICKS;
        let tries = (0..=self.retries).map(|tries| self.backoff(tries).saturating_add(tick));
        let tries = tries.fold(Duration::ZERO, Duration::saturating_add);
        let quiet = self.probe_interval.saturating_add(tick).saturating_mul(2);
        tries.saturating_add(quiet).saturating_add(self.valid + self.valid / 16 + tick)
    }

    /// How long is waited after something was sent `tries` times.
    pub(super) fn backoff(&self, tries: u8) -> Duration {
        let first = self.repost_timeout;
        let factor = 1_u32.checked_shl(tries.into()).unwrap_or(u32::MAX);
        first.saturating_mul(factor).min(self.repost_timeout_max.max(first))
    }
}

/// Into how many ticks of the timers the shortest time is cut.
pub(super) const TICKS: u32 = 16;

/// The place of a [`Verbs`](super::Verbs).
#[derive(Clone, Copy, Debug)]
pub struct VerbsPlace {
    /// The number of its portal at its engine.
    pub portal: u16,
    /// The host's addresses.
    pub addresses: LocalAddresses,
    /// The longest packet that the host takes, in octets.
    pub packet_len_max: u16,
}

impl VerbsPlace {
    /// At these addresses.
    pub fn new(portal: u16, addresses: impl Into<LocalAddresses>, packet_len_max: u16) -> Self {
        Self { portal, addresses: addresses.into(), packet_len_max }
    }

    /// The number of a queue pair of this portal, as it is in frames.
    pub(super) fn qpn(&self, index: u32) -> u32 {
        Qpn::new(self.portal.into(), index).map_or(0, Qpn::to_bits)
    }
}
