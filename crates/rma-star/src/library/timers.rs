//! A wheel of timers, at most one for each queue pair: 12 bytes each, whatever they do.
//!
//! Time goes in ticks. The timers of a tick are in one list of 4096, together with those that are
//! due some rounds of the wheel later.

use core::time::Duration;

use rma_core::time::Instant;

const BUCKETS: usize = 4096;
const WORDS: usize = BUCKETS / 64;
/// The list of those that are due and were not taken yet.
const DUE: u32 = BUCKETS as u32;
/// No entry.
const NONE: u32 = u32::MAX;

/// One timer: where it is in its list.
#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    /// The one before it; of the first, the list: counted down from [`NONE`], which is no list.
    before: u32,
    /// The tick when it is due, modulo 2^32.
    due: u32,
}

const IDLE: Link = Link { next: NONE, before: NONE, due: 0 };

/// Returns the word by which the first of a list names its list.
const fn head_of(list: u32) -> u32 {
    NONE - 1 - list
}

/// Timers of entries that are named by numbers from 0 on.
#[derive(Debug)]
pub(super) struct Wheel {
    tick_nanos: u64,
    /// All ticks up to this one are over.
    at: u64,
    heads: Box<[u32]>,
    /// The lists that are not empty.
    bits: [u64; WORDS],
    links: Box<[Link]>,
    armed: u32,
}

impl Wheel {
    /// Bytes that each timer takes.
    pub(super) const ENTRY_LEN: usize = size_of::<Link>();

    /// Bytes that its lists take, beside itself and its timers.
    pub(super) const FIXED_LEN: usize = (BUCKETS + 1) * size_of::<u32>();

    pub(super) fn new(entries: u32, tick: Duration) -> Self {
        Self {
            tick_nanos: (tick.as_nanos() as u64).max(1),
            at: 0,
            heads: vec![NONE; BUCKETS + 1].into(),
            bits: [0; WORDS],
            links: vec![IDLE; entries as usize].into(),
            armed: 0,
        }
    }

    const fn is_armed(&self, entry: u32) -> bool {
        self.links[entry as usize].before != NONE
    }

    fn push(&mut self, list: u32, entry: u32) {
        let head = core::mem::replace(&mut self.heads[list as usize], entry);
        let link = &mut self.links[entry as usize];
        (link.next, link.before) = (head, head_of(list));
        if head != NONE {
            self.links[head as usize].before = entry;
        }
        if list != DUE {
            self.bits[list as usize / 64] |= 1 << (list % 64);
        }
        self.armed += 1;
    }

    /// The timer of an entry is off.
    pub(super) fn disarm(&mut self, entry: u32) {
        if !self.is_armed(entry) {
            return;
        }
        let Link { next, before, due } = core::mem::replace(&mut self.links[entry as usize], IDLE);
        self.links[entry as usize].due = due;
        if next != NONE {
            self.links[next as usize].before = before;
        }
        match self.links.get_mut(before as usize) {
            Some(link) => link.next = next,
            None => {
                let list = head_of(before);
                self.heads[list as usize] = next;
                if next == NONE && list != DUE {
                    self.bits[list as usize / 64] &= !(1 << (list % 64));
                }
            }
        }
        self.armed -= 1;
    }

    /// The timer of an entry goes off `delay` after `now`, not earlier, and one tick later at most.
    pub(super) fn arm(&mut self, entry: u32, now: Instant, delay: Duration) {
        self.disarm(entry);
        let now = now.as_nanos();
        if self.armed == 0 {
            self.at = self.at.max(now / self.tick_nanos);
        }
        let nanos = now.saturating_add(delay.as_nanos().min(u64::MAX.into()) as u64);
        let due = nanos.div_ceil(self.tick_nanos).max(self.at + 1).min(self.at + (1 << 30));
        self.links[entry as usize].due = due as u32;
        self.push((due % BUCKETS as u64) as u32, entry);
    }

    /// The same, unless it is armed for an earlier time.
    pub(super) fn arm_before(&mut self, entry: u32, now: Instant, delay: Duration) -> bool {
        if self.is_armed(entry) {
            let nanos = now.as_nanos().saturating_add(delay.as_nanos() as u64);
            let due = nanos.div_ceil(self.tick_nanos) as u32;
            if due.wrapping_sub(self.links[entry as usize].due).cast_signed() >= 0 {
                return false;
            }
        }
        self.arm(entry, now, delay);
        true
    }

    /// Looks for timers that are due at `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        let tick = now.as_nanos() / self.tick_nanos;
        let passed = tick.saturating_sub(self.at).min(BUCKETS as u64);
        if self.armed > 0 {
            for back in 0..passed {
                let list = ((tick - back) % BUCKETS as u64) as u32;
                let mut entry = self.heads[list as usize];
                while let Some(&link) = self.links.get(entry as usize) {
                    if (tick as u32).wrapping_sub(link.due).cast_signed() >= 0 {
                        self.disarm(entry);
                        self.push(DUE, entry);
                    }
                    entry = link.next;
                }
            }
        }
        self.at = self.at.max(tick);
    }

    /// A timer that went off.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let entry = self.heads[DUE as usize];
        if entry == NONE {
            return None;
        }
        self.disarm(entry);
        Some(entry)
    }

    /// No timer goes off before this time. `None` if none will.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.armed == 0 {
            return None;
        }
        let time = |tick: u64| Instant::from_nanos(tick.saturating_mul(self.tick_nanos));
        if self.heads[DUE as usize] != NONE {
            return Some(time(self.at));
        }
        // Word by word from the next list on; the first word comes again, for what is before it.
        let from = ((self.at + 1) % BUCKETS as u64) as usize;
        for step in 0..=WORDS {
            let word = (from / 64 + step) % WORDS;
            let mask = if step == 0 { u64::MAX << (from % 64) } else { u64::MAX };
            let bits = self.bits[word] & mask;
            if bits != 0 {
                let list = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (list + BUCKETS - from) % BUCKETS;
                return Some(time(self.at + 1 + ahead as u64));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: u64 = 1000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against a list of deadlines.
        #[test]
        fn each_goes_off_once_and_in_its_time(
            start in 0_u64..1 << 50,
            steps in prop::collection::vec(
                (0_u32..8, 0_u64..20_000_000, 0_u64..3_000_000, any::<bool>()), 1..80),
        ) {
            let mut wheel = Wheel::new(8, Duration::from_nanos(TICK));
            let mut model = [None; 8];
            let mut now = start;
            for (entry, delay, step, off) in steps {
                if off {
                    wheel.disarm(entry);
                    model[entry as usize] = None;
                } else {
                    wheel.arm(entry, at(now), Duration::from_nanos(delay));
                    model[entry as usize] = Some(now + delay);
                }
                if let Some(first) = model.iter().flatten().min() {
                    let told = wheel.poll_timeout().expect("one is armed").as_nanos();
                    prop_assert!(told < first + 2 * TICK, "{told} {first}");
                } else {
                    prop_assert_eq!(wheel.poll_timeout(), None);
                }
                now += step;
                wheel.advance(at(now));
                while let Some(entry) = wheel.pop() {
                    let due = model[entry as usize].take().expect("it was armed");
                    prop_assert!(due <= now);
                }
                for due in model.iter().flatten() {
                    prop_assert!(due + 2 * TICK > now, "{due} is late at {now}");
                }
            }
        }
    }

    #[test]
    fn an_earlier_time_is_not_put_off() {
        let mut wheel = Wheel::new(1, Duration::from_nanos(TICK));
        assert!(wheel.arm_before(0, at(0), Duration::from_nanos(50 * TICK)));
        assert!(!wheel.arm_before(0, at(0), Duration::from_nanos(60 * TICK)));
        assert!(wheel.arm_before(0, at(0), Duration::from_nanos(40 * TICK)));
        assert_eq!(wheel.poll_timeout(), Some(at(40 * TICK)));
    }
}
