//! Packets that wait for a path. The first one to a host is a request, mostly, and its op would
//! wait for a whole timeout if it were lost; the way is found within a millisecond.
//!
//! What is held was written by an engine for whom its application named, or who has proved who it
//! is: no stranger can fill this. It is short: a packet with payload of its own is not held, as it
//! is never the first to a host that answers.
//!
//! The tenants of a host share the places: who goes to many new hosts takes none that another
//! needs.
//!
//! Invariant: fixed memory, and nothing is held for longer than [`HELD_FOR`].

use core::time::Duration;

use rma_core::{backend::Transmit, nic::Shares, time::Instant};

/// The most packets that are held. More: more memory. Fewer: of many that go to new hosts at once,
/// some are lost.
const PACKETS: usize = 64;

/// The longest packet that is held: any request, and several of a packet. Longer: more memory.
/// Shorter: packets with several requests are lost.
const LEN_MAX: usize = 512;

/// For how long. Longer: what comes late, for an op that is over. Shorter: neighbours that answer
/// late are as if they did not.
const HELD_FOR: Duration = Duration::from_millis(50);

/// One of them.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) transmit: Transmit,
    pub(super) frames: usize,
    /// When it was first looked at after the turn in which it was written.
    since: Option<Instant>,
    octets: [u8; LEN_MAX],
}

impl Packet {
    /// Returns its payload.
    pub(super) fn payload(&self) -> &[u8] {
        &self.octets[..self.transmit.len]
    }

    /// Whether it may wait on at `now`.
    pub(super) fn has_time(&mut self, now: Instant) -> bool {
        now.since(*self.since.get_or_insert(now)) < HELD_FOR
    }
}

/// The packets that wait, in the order in which they were written.
#[derive(Debug)]
pub(super) struct Held {
    packets: Vec<Packet>,
    shares: Shares,
}

impl Held {
    pub(super) fn new() -> Self {
        let shares = Shares::new(PACKETS as u32, HELD_FOR.as_nanos() as u64);
        Self { packets: Vec::with_capacity(PACKETS), shares }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether it was taken: there was room.
    pub(super) fn push(&mut self, transmit: &Transmit, payload: &[u8], frames: usize) -> bool {
        let Self { packets, shares } = self;
        let tenant = transmit.tenant;
        // None while they are lent.
        let has_room = packets.len() < packets.capacity()
            && payload.len() <= LEN_MAX
            && shares.admits(tenant, 1);
        if has_room {
            let mut octets = [0; LEN_MAX];
            octets[..payload.len()].copy_from_slice(payload);
            packets.push(Packet { transmit: *transmit, frames, since: None, octets });
            shares.take(tenant, 1);
        }
        has_room
    }

    /// Lends all packets, for [`Held::keep`]. Until then there is room for none.
    pub(super) fn lend(&mut self, now: Instant) -> Vec<Packet> {
        self.shares.note_time(now);
        core::mem::take(&mut self.packets)
    }

    /// One that was lent does not come back.
    pub(super) fn let_go(&mut self, packet: &Packet) {
        self.shares.give_back(packet.transmit.tenant, 1);
    }

    /// Takes back what was lent, without those that were let go.
    pub(super) fn keep(&mut self, packets: Vec<Packet>) {
        self.packets = packets;
    }
}

#[cfg(test)]
mod tests {
    use rma_core::{nic::TenantIndex, op::ClassOfService, port::Port};

    use super::*;

    fn transmit(tenant: usize) -> Transmit {
        let ends = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let transmit = Transmit::new(ends, Port::ONE_RMA, ClassOfService::Latency, 4);
        Transmit { tenant: TenantIndex::of(tenant), ..transmit }
    }

    #[test]
    fn a_tenant_that_goes_to_many_new_hosts_leaves_places_for_another() {
        let mut held = Held::new();
        while held.push(&transmit(1), b"many", 1) {}
        assert_eq!(held.packets.len(), PACKETS - PACKETS / 4, "alone it leaves a floor");
        assert!(held.push(&transmit(2), b"some", 1), "which whoever comes next has at once");
        let mut lent = held.lend(Instant::ZERO);
        assert!(!held.push(&transmit(1), b"more", 1), "no memory is taken for more");
        lent.drain(..).for_each(|packet| held.let_go(&packet));
        held.keep(lent);
        assert!(held.is_empty() && held.push(&transmit(2), b"some", 1));
        while held.push(&transmit(1), b"many", 1) {}
        let floor = PACKETS / 2 / 3;
        assert!((1..floor).all(|_| held.push(&transmit(2), b"some", 1)));
    }
}
