//! How long packets may be on the way to a host: found by losses, where nobody tells.
//!
//! A router that cannot pass a packet on says so, if it does, to the kernel. Many say nothing. So
//! what counts is how ops end: those with long packets die on a way that short ones live on. How
//! long a packet was the NIC knows of a long op alone: short ops share packets. So losses that come
//! together, a *burst*, count as one, of a packet as long as all of them could have shared.
//!
//! ```text
//!             a loss               2 in a row
//! (nothing) ----------> Lossy -----------------> Short { mtu: the next plateau }
//!     ^                   | the length lives        |  ^ 2 losses in a row: the next plateau,
//!     |<------------------+                         |  |  and below the last: Silent
//!     |                                             v  |
//!     |   full length lives           SETTLED without a loss, and something lives
//!     |<--------------------- Asking <--------------+  | not asked yet: Asking
//!     |                          |                     | asked: it is told as narrow, and Asking
//!     |                          | full length dies    |  comes again after NARROW_FOR
//!     |                          +-------------------> Short { asked }
//!     |  anything lives
//!     +------------------ Silent
//! ```
//!
//! In *Short* nothing longer than `mtu` is sent, in all others what the kernel says that the way
//! carries. Full length is asked about once, as the other host may only have stood still. A way is
//! *narrow* if that dies and the shorter length lives before it and behind. It stays so for
//! [`NARROW_FOR`], the kernel's own time for what ICMP told it; then full length is asked about
//! again, at the price of what is under way within one timeout. *Asking* of a way that is not known
//! to be narrow ends after [`SUSPECTED_FOR`]: a host that stood still twice is no narrow way.
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

/// Bursts of losses in a row before a shorter length is tried. Fewer: each lost frame is a
/// suspicion. More: an op that is retried twice, as executors do, fails before a length is tried
/// that passes.
const LOSSES: u8 = 2;

/// Within which time losses are one burst: ops that were issued together end so, and may have
/// shared packets. Longer: the second burst may be taken for the first. Shorter: the other way.
const BURST: Duration = Duration::from_millis(20);

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

/// How long a loss is remembered, a host is left alone that did not answer at any length, and a
/// loss at full length tells of a way on which less than that has lived. Longer: a host that stands
/// still twice is taken for a narrow way. Shorter: one that is asked for little is not found.
const SUSPECTED_FOR: Duration = Duration::from_secs(30);

/// How often it is looked what was heard of hosts that are searched.
const LOOK: Duration = Duration::from_millis(100);

/// The state of the way to one host, and its end.
#[derive(Clone, Copy, Debug)]
struct Way {
    state: State,
    until: Duration,
    burst: Burst,
}

/// Losses that came together.
#[derive(Clone, Copy, Debug)]
struct Burst {
    until: Duration,
    /// The longest packet that those so far may have been in.
    len: u32,
    /// The state before them.
    before: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bursts of losses in a row, the last of packets of `len`.
    Lossy { bursts: u8, len: u32 },
    /// Nothing longer than `mtu` is sent.
    Short {
        mtu: u32,
        bursts: u8,
        /// When that began, or something was lost last.
        since: Duration,
        /// Full length was sent after this had worked, and was lost.
        asked: bool,
        /// It was told that nothing longer passes.
        is_narrow: bool,
    },
    /// `mtu` works, and full length is sent to see what becomes of it.
    Asking { mtu: u32, is_narrow: bool },
    /// Nothing passed, however short.
    Silent,
}

impl State {
    /// Nothing is suspected.
    const CLEAR: Self = Self::Lossy { bursts: 0, len: 0 };

    /// No more than `mtu` from `now` on, or, if that has no plateau, nothing to be tried.
    fn below(peer: HostAddr, mtu: u32, now: Duration) -> Self {
        match below(peer, mtu) {
            Some(mtu) => Self::Short { mtu, bursts: 0, since: now, asked: false, is_narrow: false },
            None => Self::Silent,
        }
    }

    /// For how long this is kept if nothing else is told.
    const fn kept_for(self) -> Duration {
        match self {
            // Whoever stands still a second time may do so at any time: that full length dies
            // counts only soon after less than that has lived.
            Self::Lossy { .. } | Self::Silent | Self::Asking { is_narrow: false, .. } => {
                SUSPECTED_FOR
            }
            Self::Short { .. } | Self::Asking { is_narrow: true, .. } => NARROW_FOR,
        }
    }

    /// The longest packet that is sent.
    const fn limit(self) -> Option<u32> {
        match self {
            Self::Short { mtu, .. } => Some(mtu),
            Self::Lossy { .. } | Self::Asking { .. } | Self::Silent => None,
        }
    }

    /// This after a burst of losses of packets of up to `len`.
    fn after_loss(self, peer: HostAddr, len: u32, now: Duration) -> Self {
        match self {
            // Short ones pass everywhere: their loss tells only that nothing does.
            _ if len <= mtu_min(peer) && self.limit() != Some(mtu_min(peer)) => self,
            Self::Lossy { bursts, .. } if bursts + 1 < LOSSES => {
                Self::Lossy { bursts: bursts + 1, len }
            }
            Self::Lossy { .. } => Self::below(peer, len, now),
            Self::Short { mtu, bursts, asked, is_narrow, .. } if bursts + 1 < LOSSES => {
                Self::Short { mtu, bursts: bursts + 1, since: now, asked, is_narrow }
            }
            Self::Short { mtu, .. } => Self::below(peer, mtu, now),
            Self::Asking { mtu, is_narrow } if len > mtu => {
                Self::Short { mtu, bursts: 0, since: now, asked: true, is_narrow }
            }
            Self::Asking { .. } | Self::Silent => self,
        }
    }
}

impl Way {
    const fn new(state: State, now: Duration) -> Self {
        let burst = Burst { until: Duration::ZERO, len: 0, before: state };
        Self { state, until: now.saturating_add(state.kept_for()), burst }
    }

    /// The state is this from `now` on. That full length is asked about again is not put off by
    /// losses.
    fn set(&mut self, state: State, now: Duration) {
        let told = |it: State| (it.limit(), matches!(it, State::Short { is_narrow: true, .. }));
        if self.state.limit().is_none() || told(self.state) != told(state) {
            self.until = now + state.kept_for();
        }
        self.state = state;
    }

    /// An op was lost.
    fn lose(&mut self, peer: HostAddr, Lost { len, full, .. }: Lost, now: Duration) {
        if now >= self.burst.until {
            self.burst = Burst { until: now + BURST, len: 0, before: self.state };
        }
        let Burst { before, len: together, .. } = &mut self.burst;
        let most = before.limit().unwrap_or(u32::MAX);
        // What is longer was sent before.
        if len <= most {
            *together = together.saturating_add(len).min(most).min(full);
            let next = before.after_loss(peer, *together, now);
            if next != *before {
                self.set(next, now);
            }
        }
        if self.state == State::CLEAR {
            // Nothing is suspected unless more of the same burst is lost.
            self.until = self.burst.until;
        }
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
    /// The packet that its longest frame would make by itself, IP header included.
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
        self.ways.get(&peer)?.state.limit()
    }

    /// Returns the size that the way to `peer` is known to carry, if it is narrow.
    pub(super) fn known(&self, peer: HostAddr) -> Option<u32> {
        match self.ways.get(&peer)?.state {
            State::Short { mtu, is_narrow: true, .. } | State::Asking { mtu, is_narrow: true } => {
                Some(mtu)
            }
            _ => None,
        }
    }

    /// Whether nothing is suspected or known of any way.
    pub(super) fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// An op with `peer` was lost.
    pub(super) fn lost(&mut self, peer: HostAddr, lost: Lost, now: Duration) -> Option<Finding> {
        let finding = self.heard(peer, lost.heard, now);
        if self.ways.contains_key(&peer) || !self.is_full() {
            let way = self.ways.entry(peer).or_insert(Way::new(State::CLEAR, now));
            way.lose(peer, lost, now);
        }
        finding
    }

    /// Ops with `peer` were OK whose longest packet had `len` bytes, IP header included; 0 if there
    /// was none.
    pub(super) fn heard(&mut self, peer: HostAddr, len: u32, now: Duration) -> Option<Finding> {
        let way = self.ways.get_mut(&peer).filter(|_| len > 0)?;
        let (next, finding) = match way.state {
            State::Lossy { len: lost, .. } if len < lost => return None,
            State::Short { mtu, bursts, since, asked, is_narrow } if len <= mtu => {
                let is_settled = now >= since + SETTLED;
                if is_settled && !asked {
                    (State::Asking { mtu, is_narrow }, None)
                } else if is_settled && !is_narrow {
                    let found = State::Short { mtu, bursts: 0, since, asked, is_narrow: true };
                    (found, Some(Finding::Narrow { mtu }))
                } else if bursts > 0 && says_of(peer, len, mtu) {
                    (State::Short { mtu, bursts: 0, since, asked, is_narrow }, None)
                } else {
                    return None;
                }
            }
            State::Asking { mtu, .. } if len <= mtu => return None,
            State::Lossy { .. } | State::Short { .. } | State::Asking { .. } | State::Silent => {
                // The other host had stood still, or its way is wide again.
                let was_narrow = self.known(peer).is_some();
                self.ways.remove(&peer);
                return was_narrow.then_some(Finding::Wide);
            }
        };
        way.set(next, now);
        // What is lost from now on says something of this.
        way.burst.until = Duration::ZERO;
        finding
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
            let State::Short { mtu, is_narrow: true, .. } = way.state else { return false };
            *way = Way::new(State::Asking { mtu, is_narrow: true }, now);
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

/// Whether a host in this state may be heard of before the next loss, and that would matter.
const fn is_watched(state: State) -> bool {
    match state {
        State::Lossy { .. } | State::Short { is_narrow: true, .. } => false,
        State::Short { .. } | State::Asking { .. } | State::Silent => true,
    }
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
