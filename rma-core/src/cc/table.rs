//! The congestion windows of one CommandExecutor: one for the local NIC, and one for each remote
//! NIC and way that data moves (1RMA §6).
//!
//! The paper keeps this state in host memory, for as many remote NICs as there are. Here the table
//! has a fixed size: an entry that nobody holds keeps its window until its place is needed for
//! another (a clock hand picks one that has not been used for a while). A remote NIC that was
//! forgotten starts anew.
//!
//! Invariant: an entry that is held does not move and is not forgotten.

use thiserror::Error;

use super::{
    CcConfig, CongestionController, Controller, Feedback, OpCharge, Rtt, Window, window::Pacing,
};
use crate::{addr::HostAddr, op::Moves, time::Instant};

/// The name of a remote window that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteWindowId(u32);

impl RemoteWindowId {
    /// That of nobody, in a place that is not used.
    pub(crate) const NONE: Self = Self(NONE);

    /// The window's place in the table, below
    /// [`CcConfigBuilder::remotes`](super::CcConfigBuilder::remotes). New windows take places one
    /// behind the other, until all are taken; then those of windows that are forgotten.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) const fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// A remote window that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub id: RemoteWindowId,
    /// Whether nothing was known of the remote NIC: the window starts anew, and may have the name
    /// of one that was forgotten.
    pub is_new: bool,
}

/// No remote window is free.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "all {remotes} remote congestion windows are in use; let some transfers end and take their outcomes, or raise \
     `remotes`"
)]
pub struct AllHeld {
    /// How many there are.
    pub remotes: u32,
}

/// The congestion windows of one CommandExecutor.
//= 1rma#6-windows
#[derive(Debug)]
pub struct CongestionControl {
    config: CcConfig,
    op_charge: OpCharge,
    pacing: Pacing,
    local: Controller,
    /// Grows to its capacity, and never shrinks.
    remotes: Vec<Remote>,
    /// First entries of chains, by hash.
    buckets: Box<[u32]>,
    /// The entry that is looked at next when one must be forgotten.
    hand: u32,
    /// The entry that was asked for last: calls often go where the last one went.
    last: u32,
}

#[derive(Debug)]
struct Remote {
    controller: Controller,
    rtt: Rtt,
    addr: HostAddr,
    moves: Moves,
    holders: u32,
    used: bool,
    /// The next entry of the same bucket.
    next: u32,
}

impl Remote {
    fn is(&self, addr: HostAddr, moves: Moves) -> bool {
        self.addr == addr && self.moves == moves
    }
}

/// The end of a chain.
const NONE: u32 = u32::MAX;

impl CongestionControl {
    /// About how many bytes a remote window takes.
    pub const WINDOW_LEN: usize = size_of::<Remote>() + 2 * size_of::<u32>();

    /// Windows as they are at the start. Allocates all there will be.
    #[must_use]
    pub fn new(config: CcConfig) -> Self {
        let remotes = config.settings().remotes;
        let buckets = vec![NONE; remotes.next_power_of_two() as usize];
        Self {
            config,
            op_charge: config.op_charge(),
            pacing: config.pacing(),
            local: config.local_controller(),
            remotes: Vec::with_capacity(remotes as usize),
            buckets: buckets.into(),
            hand: 0,
            last: NONE,
        }
    }

    /// Names the window to `addr` for ops whose data `moves` so, and keeps it until as many
    /// [`CongestionControl::release`]s.
    ///
    /// Two windows of one remote NIC in both directions are two; the ops of all transfers that have
    /// one in common share it.
    ///
    /// # Errors
    /// If all windows are held.
    #[inline]
    pub fn hold(&mut self, addr: HostAddr, moves: Moves) -> Result<Held, AllHeld> {
        if let Some(remote) = self.remotes.get_mut(self.last as usize)
            && remote.is(addr, moves)
        {
            remote.holders += 1;
            return Ok(Held { id: RemoteWindowId(self.last), is_new: false });
        }
        let bucket = self.bucket(addr, moves);
        let mut at = self.buckets[bucket];
        while at != NONE {
            let remote = &mut self.remotes[at as usize];
            if remote.is(addr, moves) {
                remote.holders += 1;
                self.last = at;
                return Ok(Held { id: RemoteWindowId(at), is_new: false });
            }
            at = remote.next;
        }
        let remote = Remote {
            controller: self.config.remote_controller(moves),
            rtt: Rtt::new(self.config.rtt(moves)),
            addr,
            moves,
            holders: 1,
            used: true,
            next: NONE,
        };
        let at = self.place(remote)?;
        // Now, not before: making place may have changed this chain.
        self.remotes[at as usize].next = self.buckets[bucket];
        self.buckets[bucket] = at;
        self.last = at;
        Ok(Held { id: RemoteWindowId(at), is_new: true })
    }

    /// The window to `addr` for ops whose data `moves` so, held or remembered, if there is one.
    pub(crate) fn find(&self, addr: HostAddr, moves: Moves) -> Option<RemoteWindowId> {
        let mut at = self.buckets[self.bucket(addr, moves)];
        while at != NONE {
            let remote = &self.remotes[at as usize];
            if remote.is(addr, moves) {
                return Some(RemoteWindowId(at));
            }
            at = remote.next;
        }
        None
    }

    /// The address of the remote NIC that `id` names.
    pub(crate) fn addr(&self, id: RemoteWindowId) -> HostAddr {
        self.remotes[id.0 as usize].addr
    }

    /// The remote NIC that `id` names answers again, after a silence in which no completion was
    /// told here: halves its window so many times, but to no less than one op, if it is above that.
    /// What was right before may be too much now, and silence is no measure of a queue.
    pub fn on_return(&mut self, id: RemoteWindowId, now: Instant, halvings: u32) {
        let remote = &mut self.remotes[id.0 as usize];
        remote.controller.on_return(now, 1.0 / f64::from(1_u32 << halvings.min(31)));
    }

    /// Ends one [`CongestionControl::hold`]. The window is remembered while there is room.
    ///
    /// # Panics
    /// If the window is not held.
    #[inline]
    pub fn release(&mut self, id: RemoteWindowId) {
        let remote = &mut self.remotes[id.0 as usize];
        remote.holders = remote.holders.checked_sub(1).expect("a window is released once per hold");
        remote.used = true;
    }

    /// Reacts to the completion of an op to the remote NIC that `id` names. `outstanding`: the sum
    /// of what ops to it were charged when this one had been issued, itself among them, in bytes.
    ///
    /// A window of which less than half was used does not grow: that nothing was congested says
    /// nothing about it.
    //= 1rma#6-additive-increase
    //= type=deviation
    // For every op of an executor, and for the last one of calls that publish: a call costs more.
    #[inline(always)]
    pub fn on_completion(&mut self, id: RemoteWindowId, feedback: &Feedback, outstanding: u64) {
        let remote = &mut self.remotes[id.0 as usize];
        remote.rtt.on_completion(feedback);
        let used = 2.0 * outstanding as f64 / f64::from(self.config.settings().op_size);
        for controller in [&mut self.local, &mut remote.controller] {
            if used >= controller.cwnd() {
                controller.on_completion(feedback, remote.rtt);
            } else {
                controller.on_completion_unused(feedback, remote.rtt);
            }
        }
    }

    /// Returns the window of the remote NIC that `id` names, and how fast ops may follow each
    /// other.
    ///
    /// The local window bounds every remote one by itself, not their sum: the rate of each transfer
    /// follows from the more restrictive of its two windows. Transfers to several remote NICs that
    /// compete for the local one so have equal shares as soon as its window is the smaller one.
    //= 1rma#6-smaller-window-rules
    #[must_use]
    #[inline]
    pub fn window(&self, id: RemoteWindowId) -> Window {
        let remote = &self.remotes[id.0 as usize];
        Window {
            cwnd: self.local.cwnd().min(remote.controller.cwnd()),
            rtt: remote.rtt,
            op_charge: self.op_charge,
            pacing: self.pacing,
        }
    }

    /// The window of the local NIC, in ops.
    #[must_use]
    pub fn local_cwnd(&self) -> f64 {
        self.local.cwnd()
    }

    /// The window of the remote NIC that `id` names, in ops.
    #[must_use]
    pub fn remote_cwnd(&self, id: RemoteWindowId) -> f64 {
        self.remotes[id.0 as usize].controller.cwnd()
    }

    /// The windows that are held, in ops.
    pub fn remote_cwnds(&self) -> impl Iterator<Item = f64> {
        let held = self.remotes.iter().filter(|remote| remote.holders > 0);
        held.map(|remote| remote.controller.cwnd())
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &CcConfig {
        &self.config
    }

    /// Puts `remote` into a new entry, or into that of another that is then forgotten.
    fn place(&mut self, remote: Remote) -> Result<u32, AllHeld> {
        let capacity = self.config.settings().remotes;
        let count = self.remotes.len() as u32;
        if count < capacity {
            self.remotes.push(remote);
            return Ok(count);
        }
        // Twice around at most: the first time may only find that all have been used.
        for _ in 0..2 * u64::from(capacity) {
            let at = self.hand;
            self.hand = if at + 1 == capacity { 0 } else { at + 1 };
            let old = &mut self.remotes[at as usize];
            if old.holders == 0 && !core::mem::take(&mut old.used) {
                self.unchain(at);
                self.remotes[at as usize] = remote;
                return Ok(at);
            }
        }
        Err(AllHeld { remotes: capacity })
    }

    fn unchain(&mut self, at: u32) {
        let Remote { addr, moves, next, .. } = self.remotes[at as usize];
        let bucket = self.bucket(addr, moves);
        if self.buckets[bucket] == at {
            self.buckets[bucket] = next;
            return;
        }
        let mut before = self.buckets[bucket];
        while self.remotes[before as usize].next != at {
            before = self.remotes[before as usize].next;
        }
        self.remotes[before as usize].next = next;
    }

    /// Addresses come from the application itself: nothing is to be gained by choosing ones that
    /// collide. But those of one network differ in a few bits only, wherever these are.
    fn bucket(&self, addr: HostAddr, moves: Moves) -> usize {
        let octets = u128::from_le_bytes(addr.to_octets());
        let (low, high) = (octets as u64, (octets >> 64) as u64);
        mix(mix(low ^ moves as u64) ^ high) as usize & (self.buckets.len() - 1)
    }
}

/// Every bit of the result depends on many of `bits`, whether high or low.
const fn mix(bits: u64) -> u64 {
    let product = bits as u128 * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CcConfigBuilder;

    #[test]
    fn hosts_of_one_network_do_not_share_a_bucket() {
        let config = CcConfigBuilder::default().build().unwrap();
        let v4 = |at: u16| HostAddr::from([10, 1, (at >> 8) as u8, at as u8]);
        let far = |at: u16| HostAddr::from([at as u8, (at >> 8) as u8, 0, 1]);
        let v6 =
            |at: u16| HostAddr::from(core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, at, 0, 0, 0, 1));
        for addr in [v4, far, v6] {
            let cc = CongestionControl::new(config);
            let mut lengths = vec![0; cc.buckets.len()];
            for at in 0..cc.buckets.len() as u16 / 2 {
                lengths[cc.bucket(addr(at), Moves::In)] += 1;
                lengths[cc.bucket(addr(at), Moves::Out)] += 1;
            }
            assert!(lengths.iter().all(|&length| length <= 8), "{:?}", lengths.iter().max());
        }
    }
}
