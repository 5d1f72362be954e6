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
//! A host with one engine has none of this.

use rma_shm::{
    Flags, Line,
    spsc::{Consumer, Producer, ring},
};

use crate::{
    crypto::RegionKey,
    region::RegionId,
    seat::{FIRST_KEY_BIT, Seat, pairs},
};

/// How many keys may wait for one engine. Fewer: while an engine stands still, Rekeys of its
/// host's regions are refused sooner.
const KEYS_MAX: usize = 64;

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
            })
            .collect();
        for (from, to) in pairs(seats.len()) {
            let (producer, consumer) = ring(KEYS_MAX).expect("a power of two");
            all[from].out.push(Out { ring: producer, to: seats[to].clone() });
            all[to].from.push((FIRST_KEY_BIT + from as u32, consumer));
        }
        all
    }

    /// Puts a region's new key into all rings, before anything is changed here. Returns its number,
    /// for [`KeyRings::are_taken`]; `None` if a ring has no room, and then it is in none.
    pub(super) fn put(&mut self, region: RegionId, key: &RegionKey) -> Option<u64> {
        let Self { out, bit, put, .. } = self;
        if !out.iter_mut().all(|out| out.to.has_ended() || out.ring.has_room_for(1)) {
            return None;
        }
        let line = encode(region, key);
        for out in out.iter_mut().filter(|out| !out.to.has_ended()) {
            // There is room, and no room that was seen is lost.
            let _ = out.ring.push(&line);
            out.to.tell(*bit);
        }
        *put += 1;
        Some(*put)
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
        let first = rings[1].put(region, &key(1)).unwrap();
        let second = rings[1].put(region, &key(2)).unwrap();
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
        for _ in 0..KEYS_MAX {
            rings[0].put(region, &key(1)).unwrap();
            assert_eq!(taken(&mut rings[1]).len(), 1);
        }
        assert_eq!(rings[0].put(region, &key(2)), None);
        assert!(taken(&mut rings[1]).is_empty());
        seats[2].ended.store(true, SeqCst);
        assert!(
            rings[0].put(region, &key(3)).is_some(),
            "an engine that has ended holds up nobody"
        );
    }
}
