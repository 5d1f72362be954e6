//! How long packets may be on the way to a host: found by losses, where nobody tells.
//!
//! A router that cannot pass a packet on says so, if it does, to the kernel. Many say nothing. So
//! what counts is how ops end: those with long frames die on a way that short ones live on. After
//! [`LOSSES`] in a row of one length the next shorter [`PLATEAUS`] is tried. What works is asked
//! about once more at full length, as the other host may only have stood still: if that is lost
//! while the shorter ones live, the way is *narrow*, and stays so for [`NARROW_FOR`], the kernel's
//! own time for what ICMP told it. Then full length is asked about again, at the price of what is
//! under way within one timeout.
//!
//! It is a state machine without clock and without I/O: who drives it knows what the kernel says of
//! the way, tells it of losses and of what was heard, and sends no longer packets than
//! [`Search::limit`].
//!
//! Invariants: a limit is never below the smallest MTU of its family, so whoever drops packets on
//! purpose takes no more throughput than that. There are no more entries than [`DESTINATIONS_MAX`],
//! and none of a host that answers at full length.

use core::time::Duration;
use std::{collections::BTreeMap, net::IpAddr};

use rma_core::addr::HostAddr;

use super::paths::DESTINATIONS_MAX;

/// Losses in a row before a shorter length is tried. Fewer: each lost frame is a suspicion. More:
/// an op that is retried twice, as executors do, fails before a length is tried that passes.
const LOSSES: u8 = 2;

/// Lengths of packets that are tried: jumbo frames, Ethernet, and the smallest that IPv6 and IPv4
/// may rely on. Few, as each costs two timeouts. What lies between costs a part of the throughput.
const PLATEAUS: [u32; 4] = [9000, 1500, MTU_MIN_V6, MTU_MIN_V4];
const MTU_MIN_V4: u32 = 576;
const MTU_MIN_V6: u32 = 1280;

/// For how long a way is known to be narrow before full length is asked about again: as the kernel
/// (`net.ipv4.route.mtu_expires`). Longer: a way that became wider is used later. Shorter: ops are
/// lost more often on one that did not.
pub(super) const NARROW_FOR: Duration = Duration::from_secs(600);

/// How long a shorter length must have worked before full length is asked about: by then whatever
/// was lost before is known to be. Longer than any usual timeout of an op.
const SETTLED: Duration = Duration::from_secs(1);

/// How long a loss is remembered, and a host is left alone that did not answer at any length.
const SUSPECTED_FOR: Duration = Duration::from_secs(30);

/// How often it is looked what was heard of hosts that are searched.
const LOOK: Duration = Duration::from_millis(100);

/// The state of the way to one host, and its end.
#[derive(Clone, Copy, Debug)]
struct Way {
    state: State,
    until: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many losses in a row, the last of packets of `len`.
    Lossy { losses: u8, len: u32 },
    /// Nothing longer than `mtu` is sent, since `since`.
    Trying { mtu: u32, losses: u8, since: Duration },
    /// `mtu` works, and full length is sent to see what becomes of it. `again`: the way was narrow.
    Asking { mtu: u32, again: bool },
    /// Nothing longer than `mtu` passes.
    Narrow { mtu: u32, losses: u8 },
    /// Nothing passed, however short.
    Silent,
}

impl State {
    /// This, as known from `now` on.
    fn since(self, now: Duration) -> Way {
        let holds = match self {
            Self::Lossy { .. } | Self::Silent => SUSPECTED_FOR,
            Self::Trying { .. } | Self::Asking { .. } | Self::Narrow { .. } => NARROW_FOR,
        };
        Way { state: self, until: now + holds }
    }
}

/// The finding about a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Longer packets than `mtu` do not pass.
    Narrow { mtu: u32 },
    /// Those of full length pass again.
    Wide,
}

/// An op that was lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    /// Its longest packet, IP header included.
    pub(super) len: u32,
    /// The longest that came from its peer since that was last told.
    pub(super) heard: u32,
    /// The size that the way carries by the kernel's word.
    pub(super) full: u32,
}

/// The ways on which something was lost.
#[derive(Debug, Default)]
pub(super) struct Search {
    ways: BTreeMap<HostAddr, Way>,
}

impl Search {
    /// The longest packet, IP header included, that should be sent to `peer` or asked of it.
    pub(super) fn limit(&self, peer: HostAddr) -> Option<u32> {
        match self.ways.get(&peer)?.state {
            State::Trying { mtu, .. } | State::Narrow { mtu, .. } => Some(mtu),
            State::Lossy { .. } | State::Asking { .. } | State::Silent => None,
        }
    }

    /// Returns the size that the way to `peer` is known to carry, if it is narrow.
    pub(super) fn known(&self, peer: HostAddr) -> Option<u32> {
        match self.ways.get(&peer)?.state {
            State::Narrow { mtu, .. } | State::Asking { mtu, again: true } => Some(mtu),
            _ => None,
        }
    }

    /// Whether nothing is suspected or known of any way.
    pub(super) fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// An op with `peer` was lost. `full` is what the kernel says that the way carries.
    pub(super) fn lost(
        &mut self,
        peer: HostAddr,
        Lost { len, heard, full }: Lost,
        now: Duration,
    ) -> Option<Finding> {
        let before = self.heard(peer, heard, now);
        let least = mtu_min(peer);
        let is_least = |way: &Way| matches!(way.state, State::Trying { mtu, .. } if mtu == least);
        // Short ones pass everywhere: their loss tells only that nothing does.
        let says_nothing = len <= least && !self.ways.get(&peer).is_some_and(is_least);
        if says_nothing || (!self.ways.contains_key(&peer) && self.is_full()) {
            return before;
        }
        let unknown = State::Lossy { losses: 0, len };
        let (state, until) = match self.ways.get(&peer) {
            Some(way) => (way.state, way.until),
            None => (unknown, Duration::ZERO),
        };
        let mut finding = before;
        let next = match state {
            State::Lossy { losses, .. } if losses + 1 < LOSSES => {
                State::Lossy { losses: losses + 1, len }.since(now)
            }
            State::Lossy { .. } => shorter(peer, full.min(len), now),
            // It was sent before.
            State::Trying { mtu, .. } | State::Narrow { mtu, .. } if len > mtu => return before,
            State::Trying { losses, mtu, since } if losses + 1 < LOSSES => {
                Way { state: State::Trying { losses: losses + 1, mtu, since }, until }
            }
            State::Narrow { losses, mtu } if losses + 1 < LOSSES => {
                Way { state: State::Narrow { losses: losses + 1, mtu }, until }
            }
            State::Trying { mtu, .. } | State::Narrow { mtu, .. } => shorter(peer, mtu, now),
            State::Asking { mtu, .. } if len > mtu => {
                finding = Some(Finding::Narrow { mtu });
                State::Narrow { mtu, losses: 0 }.since(now)
            }
            State::Asking { .. } | State::Silent => return before,
        };
        self.ways.insert(peer, next);
        finding
    }

    /// Ops with `peer` were OK whose longest packet had `len` bytes, IP header included; 0 if there
    /// was none.
    pub(super) fn heard(&mut self, peer: HostAddr, len: u32, now: Duration) -> Option<Finding> {
        let way = self.ways.get_mut(&peer).filter(|_| len > 0)?;
        match &mut way.state {
            State::Lossy { len: lost, .. } if len < *lost => {}
            State::Trying { mtu, .. } if len <= *mtu && !says_of(peer, len, *mtu) => {}
            State::Trying { mtu, losses, since } if len <= *mtu => {
                *losses = 0;
                if now >= *since + SETTLED {
                    *way = State::Asking { mtu: *mtu, again: false }.since(now);
                }
            }
            State::Asking { mtu, .. } if len <= *mtu => {}
            State::Narrow { mtu, .. } if !says_of(peer, len, *mtu) => {}
            State::Narrow { losses, .. } => *losses = 0,
            state => {
                // The other host had stood still, or its way is wide again.
                let was_narrow = matches!(state, State::Asking { again: true, .. });
                self.ways.remove(&peer);
                return was_narrow.then_some(Finding::Wide);
            }
        }
        None
    }

    /// Whether something was lost on the way to `peer`: what gets through on it then counts.
    pub(super) fn has(&self, peer: HostAddr) -> bool {
        self.ways.contains_key(&peer)
    }

    /// The ways of which it should be looked what was heard.
    pub(super) fn watched(&self) -> Vec<HostAddr> {
        let is_watched = |way: &Way| is_watched(way.state);
        self.ways.iter().filter(|(_, way)| is_watched(way)).map(|(peer, _)| *peer).collect()
    }

    /// Does what is due. Returns the ways whose limit has changed.
    pub(super) fn handle_timeout(&mut self, now: Duration) -> Vec<HostAddr> {
        let mut lifted = Vec::new();
        self.ways.retain(|peer, way| {
            if now < way.until {
                return true;
            }
            lifted.push(*peer);
            let State::Narrow { mtu, .. } = way.state else { return false };
            *way = State::Asking { mtu, again: true }.since(now);
            true
        });
        lifted
    }

    /// When there is something to do or to look at, if it was looked at `now`.
    pub(super) fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        let due = |way: &Way| {
            if is_watched(way.state) { way.until.min(now + LOOK) } else { way.until }
        };
        self.ways.values().map(due).min()
    }

    fn is_full(&self) -> bool {
        self.ways.len() >= DESTINATIONS_MAX
    }
}

/// The state of a way after so many losses of packets of `mtu` bytes.
fn shorter(peer: HostAddr, mtu: u32, now: Duration) -> Way {
    let state = match below(peer, mtu) {
        Some(mtu) => State::Trying { mtu, losses: 0, since: now },
        None => State::Silent,
    };
    state.since(now)
}

/// Whether a host in this state may be heard of before the next loss, and that would matter.
const fn is_watched(state: State) -> bool {
    matches!(state, State::Trying { .. } | State::Asking { .. } | State::Silent)
}

/// Whether a packet of `len` bytes that came tells that those of `mtu` do: what is cut to whole
/// granules is somewhat shorter, and anything is that would have passed at the next plateau.
fn says_of(peer: HostAddr, len: u32, mtu: u32) -> bool {
    len > below(peer, mtu).unwrap_or(0)
}

/// The next plateau below `mtu`.
fn below(peer: HostAddr, mtu: u32) -> Option<u32> {
    PLATEAUS.into_iter().find(|&plateau| plateau < mtu && plateau >= mtu_min(peer))
}

/// The smallest MTU that every way of this family has.
fn mtu_min(peer: HostAddr) -> u32 {
    match peer.ip() {
        IpAddr::V4(_) => MTU_MIN_V4,
        IpAddr::V6(_) => MTU_MIN_V6,
    }
}

#[cfg(test)]
mod tests;
