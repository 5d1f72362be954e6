//! New keys of regions on their way from the engine that is a region's *home* to the other engines
//! of its host (not in the paper, whose NIC has one table).
//!
//! Every Rekey of a region happens at its home, so all engines see a region's keys in one order.
//! The home puts a key into a ring for each other engine before it changes its own row. An engine
//! takes the keys in its rings after it has fetched frames and before it handles any of them. So a
//! Rekey is over when no living engine has the key in its ring any longer
//! ([`KeyRings::are_taken`]): an engine does nothing between taking a key and changing its row. And
//! a frame that is fetched after the key was put is handled under the new key, however long its
//! engine stood still.
//!
//! The key of an engine that has ended goes nowhere: it serves nothing.
//!
//! While an engine stands still keys wait for it, and the rings fill. Half of the lines are for
//! whoever comes first; of the other half each tenant has one. So a tenant that rekeys without end
//! holds up no other tenant's Rekey (P13): whoever has no key waiting finds room.
//!
//! A host with one engine has none of this.

use rma_shm::{
    Flags, Line,
    spsc::{Consumer, Producer, ring},
};

use crate::{
    crypto::RegionKey,
    region::RegionId,
    seat::{FIRST_KEY_BIT, Seat, pairs},
    tenant::TenantIndex,
};

/// How many keys may wait for one engine before a tenant with a key among them gets no line more.
/// Fewer: while an engine stands still, Rekeys of its host's regions are refused sooner.
const FIRST_COME: usize = 64;

/// How many keys may wait for one engine, with one more of each tenant.
const KEYS_MAX: usize = FIRST_COME + TenantIndex::COUNT;

/// The ring to another engine.
#[derive(Debug)]
struct Out {
    ring: Producer,
    to: Seat,
}

/// An engine's rings for keys, to and from each other engine of its host.
#[derive(Debug)]
pub struct KeyRings {
    out: Vec<Out>,
    /// From each other engine, with the bit by which it tells.
    from: Vec<(u32, Consumer)>,
    /// This engine's bit at the others.
    bit: u32,
    /// This engine's own word.
    news: Flags,
    /// How many keys were put, into each ring.
    put: u64,
    /// The tenants of the last of them, by their numbers.
    tenants: [TenantIndex; KEYS_MAX],
}

impl KeyRings {
    /// The rings of engines that are reached at `seats`, in their order. At most 32.
    #[must_use]
    pub fn connect(seats: &[Seat]) -> Vec<Self> {
        let mut all: Vec<Self> = (0..seats.len() as u32)
            .zip(seats)
            .map(|(index, seat)| Self {
                bit: FIRST_KEY_BIT + index,
                news: seat.news.clone(),
                out: Vec::new(),
                from: Vec::new(),
                put: 0,
                tenants: [TenantIndex::HOST; KEYS_MAX],
            })
            .collect();
        for (from, to) in pairs(seats.len()) {
            let (producer, consumer) = ring(KEYS_MAX).expect("a power of two");
            all[from].out.push(Out { ring: producer, to: seats[to].clone() });
            all[to].from.push((FIRST_KEY_BIT + from as u32, consumer));
        }
        all
    }

    /// Puts the new key of a tenant's region into all rings, before anything is changed here.
    /// Returns its number, for [`KeyRings::are_taken`]; `None` if a ring has no room for this
    /// tenant, and then it is in none.
    pub(super) fn put(
        &mut self,
        region: RegionId,
        tenant: TenantIndex,
        key: &RegionKey,
    ) -> Option<u64> {
        let waiting = self.waiting();
        if waiting >= FIRST_COME && self.has_waiting(tenant, waiting) {
            return None;
        }
        let Self { out, bit, put, .. } = self;
        if !out.iter_mut().all(|out| out.to.has_ended() || out.ring.has_room_for(1)) {
            return None;
        }
        self.tenants[*put as usize % KEYS_MAX] = tenant;
        let line = encode(region, key);
        for out in out.iter_mut().filter(|out| !out.to.has_ended()) {
            // There is room, and no room that was seen is lost.
            let _ = out.ring.push(&line);
            out.to.tell(*bit);
        }
        *put += 1;
        Some(*put)
    }

    /// How many of the last keys some engine has not taken.
    fn waiting(&self) -> usize {
        let living = self.out.iter().filter(|out| !out.to.has_ended());
        living.map(|out| out.ring.len()).max().unwrap_or(0)
    }

    /// Whether one of so many last keys is this tenant's.
    fn has_waiting(&self, tenant: TenantIndex, waiting: usize) -> bool {
        let mut last = (0..self.put).rev().take(waiting);
        last.any(|number| self.tenants[number as usize % KEYS_MAX] == tenant)
    }

    /// Whether every other engine that has not ended has taken the key with this number, and those
    /// before it.
    pub(super) fn are_taken(&self, number: u64) -> bool {
        let after = self.put - number;
        self.out.iter().all(|out| out.to.has_ended() || out.ring.len() as u64 <= after)
    }

    /// Whether some may have come.
    #[inline]
    pub(super) fn have_some(&self) -> bool {
        self.news.raised() >> FIRST_KEY_BIT != 0
    }

    /// Takes the next key that has come. It is in the rings no longer, in no form.
    pub(super) fn take(&mut self) -> Option<(RegionId, RegionKey)> {
        for (bit, ring) in &mut self.from {
            if self.news.raised() >> *bit & 1 == 0 {
                continue;
            }
            if !ring.has_line() {
                // Down first: what comes from then on raises it again.
                self.news.lower(*bit);
                if !ring.has_line() {
                    continue;
                }
                // Several may have come meanwhile, and the flag that told of them is down.
                self.news.raise(*bit);
            }
            if let Some(line) = ring.pop_and_wipe_if(|_| true) {
                return Some(decode(&line));
            }
        }
        None
    }
}

fn encode(region: RegionId, key: &RegionKey) -> Line {
    let mut line = Line::ZERO;
    let key = u128::from_le_bytes(*key.expose());
    line.0[0] = region.to_bits().into();
    (line.0[1], line.0[2]) = (key as u64, (key >> 64) as u64);
    line
}

fn decode(Line(words): &Line) -> (RegionId, RegionKey) {
    let key = u128::from(words[1]) | u128::from(words[2]) << 64;
    (RegionId::from_bits(words[0] as u32), RegionKey::from_bytes(key.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::SeqCst;
    use std::sync::Arc;

    fn engines(count: usize) -> (Vec<Seat>, Vec<KeyRings>) {
        let seats: Vec<_> = (0..count).map(|_| Seat::new(None, Arc::default())).collect();
        let rings = KeyRings::connect(&seats);
        (seats, rings)
    }

    const TENANT: TenantIndex = TenantIndex::HOST;

    fn key(octet: u8) -> RegionKey {
        RegionKey::from_bytes([octet; 16])
    }

    fn taken(rings: &mut KeyRings) -> Vec<(RegionId, [u8; 16])> {
        let mut taken = Vec::new();
        while let Some((region, key)) = rings.take() {
            taken.push((region, *key.expose()));
        }
        taken
    }

    #[test]
    fn a_key_is_everywhere_once_each_living_engine_has_taken_it() {
        let (seats, mut rings) = engines(4);
        let region = RegionId::from_bits(0x0102_0304);
        let first = rings[1].put(region, TENANT, &key(1)).unwrap();
        let second = rings[1].put(region, TENANT, &key(2)).unwrap();
        for engine in [0, 2] {
            assert_eq!(taken(&mut rings[engine]), [(region, [1; 16]), (region, [2; 16])]);
            assert!(!rings[1].are_taken(first));
        }
        seats[3].ended.store(true, SeqCst);
        assert!(rings[1].are_taken(first) && rings[1].are_taken(second));
        assert!(taken(&mut rings[1]).is_empty(), "its own comes to nobody");
    }

    #[test]
    fn a_full_ring_takes_a_key_for_nobody() {
        let (seats, mut rings) = engines(3);
        let region = RegionId::from_bits(7);
        for _ in 0..FIRST_COME {
            rings[0].put(region, TENANT, &key(1)).unwrap();
            assert_eq!(taken(&mut rings[1]).len(), 1);
        }
        assert_eq!(rings[0].put(region, TENANT, &key(2)), None);
        assert!(taken(&mut rings[1]).is_empty());
        seats[2].ended.store(true, SeqCst);
        assert!(
            rings[0].put(region, TENANT, &key(3)).is_some(),
            "an engine that has ended holds up nobody"
        );
    }

    #[test]
    fn whoever_has_no_key_waiting_finds_room_however_others_rekey_while_an_engine_stands_still() {
        let (_, mut rings) = engines(3);
        let mut waiting = std::collections::VecDeque::new();
        let (mut refused, mut longest) = (0, 0);
        for step in 0..20_000_usize {
            // One of them rekeys all the time, the others now and then.
            let tenant = if step.is_multiple_of(3) { step / 3 % TenantIndex::COUNT } else { 0 };
            let (region, tenant) = (RegionId::from_bits(tenant as u32), TenantIndex::of(tenant));
            let may = waiting.len() < FIRST_COME || !waiting.contains(&region);
            assert_eq!(rings[0].put(region, tenant, &key(0)).is_some(), may, "step {step}");
            taken(&mut rings[1]);
            waiting.extend(may.then_some(region));
            (refused, longest) = (refused + u32::from(!may), longest.max(waiting.len()));
            if step % 500 == 499 {
                for _ in 0..step % 130 {
                    assert_eq!(rings[2].take().map(|(it, _)| it), waiting.pop_front());
                }
            }
        }
        assert!(refused > 1000 && longest > FIRST_COME + 40, "{refused} refused, {longest} waited");
    }
}
