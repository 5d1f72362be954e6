//! The keys that regions had before their last Rekeys (not in the paper): nothing is admitted under
//! one, but whoever still uses one is told so, whatever strangers ask (P11).
//!
//! A key is kept for two timeouts, which covers a request that was sent the moment before the Rekey
//! by a peer with the same timeout, and then erased. All regions share one table of a fixed size,
//! and a region has four places of it at most. Where it is full, the oldest key goes; of a host of
//! several tenants, one of whoever has more than a floor, as in [`shares`](super::shares) (P13).
//!
//! Keys stay expanded, as their regions had them: after a rotation, all who used the region are
//! refused within a round trip, and wait for it.

use crate::{crypto::RegionKeySchedule, region::RegionId, tenant::TenantIndex, time::Instant};
use arrayvec::ArrayVec;

/// How many keys are kept, of all regions together. More: more regions can be rotated within two
/// timeouts. Fewer: a request that fails is compared with fewer, and the less memory.
const KEYS_MAX: usize = 256;

/// How many of them may be one region's. More: more rotations within the flight of an op, and more
/// work for each request that fails for two timeouts afterwards.
pub(super) const KEYS_PER_REGION: usize = 4;

pub(super) struct PreviousKeys {
    places: Box<[Option<PreviousKey>]>,
    /// No place from here on has a key.
    used: usize,
    /// No region has had more keys here since there was none at all.
    depth: usize,
    /// The key that a request is compared with that no key here is for, so that this takes as long.
    decoy: RegionKeySchedule,
    /// Keys that had to go before their time, and were not counted yet.
    lost: u64,
}

struct PreviousKey {
    region: RegionId,
    /// The tenant of the region.
    tenant: TenantIndex,
    /// The revision of the key among all that the table of regions has held.
    revision: u64,
    /// Zeroized when it is dropped.
    key: RegionKeySchedule,
    /// When it is erased. `None` until the NIC is next told the time: it was replaced between
    /// turns.
    until: Option<Instant>,
}

/// The facts of a failed request that are compared with old keys.
pub(super) struct ToCompare<'a> {
    /// The region's, and then decoys.
    pub(super) keys: ArrayVec<&'a RegionKeySchedule, KEYS_PER_REGION>,
    /// How many of them are the region's. A request that is right under another proves nothing: the
    /// decoy is no secret.
    pub(super) own: usize,
}

impl PreviousKeys {
    /// How many keys are kept at most.
    pub(super) const KEYS: u32 = KEYS_MAX as u32;

    /// Bytes that each of them takes.
    pub(super) const ENTRY_LEN: usize = size_of::<Option<PreviousKey>>();

    pub(super) fn new(decoy: RegionKeySchedule) -> Self {
        let places = (0..KEYS_MAX).map(|_| None).collect();
        Self { places, used: 0, depth: 0, decoy, lost: 0 }
    }

    /// `region`, which is `tenant`'s, had `key` until now. Where there is no room, the oldest goes:
    /// of the region, or of whoever makes room.
    pub(super) fn push(
        &mut self,
        region: RegionId,
        tenant: TenantIndex,
        revision: u64,
        key: RegionKeySchedule,
    ) {
        let of_region = |it: &PreviousKey| it.region == region;
        let count = self.keys().filter(|it| of_region(it)).count();
        if count == KEYS_PER_REGION {
            self.forget_oldest(of_region);
        } else if self.keys().count() == KEYS_MAX {
            let who = self.who_makes_room(tenant);
            self.forget_oldest(|it| it.tenant == who);
        }
        let Some(index) = self.places.iter().position(Option::is_none) else { return };
        self.places[index] = Some(PreviousKey { region, tenant, revision, key, until: None });
        self.used = self.used.max(index + 1);
        self.depth = self.depth.max((count + 1).min(KEYS_PER_REGION));
    }

    /// Returns the tenant that loses a key for one of `tenant`: that tenant itself, if it has its
    /// floor; otherwise who has most.
    fn who_makes_room(&self, tenant: TenantIndex) -> TenantIndex {
        let mut counts = [0_usize; TenantIndex::COUNT];
        self.keys().for_each(|key| counts[key.tenant.index()] += 1);
        let others = (0..).zip(&counts).filter(|&(who, &count)| count > 0 && who != tenant.index());
        let floor = KEYS_MAX / 2 / (others.clone().count() + 1);
        let most = others.max_by_key(|&(_, &count)| count);
        match most {
            Some((who, _)) if counts[tenant.index()] < floor => TenantIndex::of(who),
            _ => tenant,
        }
    }

    /// The keys to compare a request for `region` with that did not come under its present one. As
    /// many for each region, and for what is none: only the rotations of the host as a whole can be
    /// told from how long that takes.
    pub(super) fn to_compare(&self, region: RegionId) -> ToCompare<'_> {
        let mut keys = ArrayVec::new();
        for previous in self.keys().filter(|it| it.region == region) {
            keys.push(&previous.key);
        }
        let own = keys.len();
        while keys.len() < self.depth {
            keys.push(&self.decoy);
        }
        ToCompare { keys, own }
    }

    /// Erases what has had its time: two `timeout_nanos`, counted from the first call after the
    /// Rekey. Returns how many keys had to go before that since the last call.
    pub(super) fn handle_timeout(&mut self, now: Instant, timeout_nanos: u64) -> u64 {
        let until = now.after_nanos(timeout_nanos.saturating_mul(2));
        for place in &mut self.places[..self.used] {
            if let Some(key) = place
                && *key.until.get_or_insert(until) <= now
            {
                // In place, so that no copy stays.
                *place = None;
            }
        }
        self.shrink();
        core::mem::take(&mut self.lost)
    }

    /// Whether [`PreviousKeys::handle_timeout`] would do nothing at any time.
    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0 && self.lost == 0
    }

    /// When [`PreviousKeys::handle_timeout`] has work next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.keys().map(|key| key.until.unwrap_or(Instant::ZERO)).min()
    }

    fn keys(&self) -> impl Iterator<Item = &PreviousKey> {
        self.places[..self.used].iter().flatten()
    }

    /// Forgets the oldest of those that `is_one`, of which there is one.
    fn forget_oldest(&mut self, is_one: impl Fn(&PreviousKey) -> bool) {
        let oldest = self.keys().filter(|it| is_one(it)).map(|it| it.revision).min();
        for place in &mut self.places[..self.used] {
            if place.as_ref().map(|it| it.revision) == oldest {
                *place = None;
            }
        }
        self.lost += 1;
        self.shrink();
    }

    fn shrink(&mut self) {
        self.used = self.places.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if self.used == 0 {
            self.depth = 0;
        }
    }
}

impl core::fmt::Debug for PreviousKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PreviousKeys({} keys)", self.keys().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        addr::{HostAddr, Pid},
        crypto::{KeyBinding, RegionKey},
        op::OpType,
    };

    const T: u64 = 100;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// A key of which each octet is this.
    fn schedule(octet: u8) -> RegionKeySchedule {
        RegionKeySchedule::new(&RegionKey::from_bytes([octet; 16]))
    }

    /// Returns the keys that are compared with for a region: the octets of each key.
    fn compared(keys: &PreviousKeys, region: u32) -> Vec<u8> {
        let ends = [HostAddr::from_octets([0; 16]); 2];
        let [initiator, responder] = ends;
        let binding = KeyBinding { initiator, responder, pid: Pid(1), op_type: OpType::Read };
        let derived = |key: &RegionKeySchedule| *key.derive(&binding).expose();
        let octet = |key| (0..=u8::MAX).find(|&it| derived(&schedule(it)) == derived(key));
        let ToCompare { keys, own } = keys.to_compare(RegionId::from_bits(region));
        let mut firsts: Vec<u8> = keys.iter().filter_map(|&key| octet(key)).collect();
        assert!(firsts[..own].iter().all(|&first| first != 0), "decoys come last");
        assert!(firsts[own..].iter().all(|&first| first == 0), "decoys count for no region");
        firsts.sort_unstable();
        firsts
    }

    fn push(keys: &mut PreviousKeys, region: u32, revision: u64) {
        push_of(keys, 0, region, revision);
    }

    fn push_of(keys: &mut PreviousKeys, tenant: usize, region: u32, revision: u64) {
        let (region, tenant) = (RegionId::from_bits(region), TenantIndex::of(tenant));
        keys.push(region, tenant, revision, schedule(revision as u8));
    }

    fn empty() -> PreviousKeys {
        PreviousKeys::new(schedule(0))
    }

    #[test]
    fn every_region_and_what_is_none_is_compared_with_as_many_keys() {
        let mut keys = empty();
        assert!(compared(&keys, 1).is_empty());
        (1..=3).for_each(|revision| push(&mut keys, 1, revision));
        push(&mut keys, 2, 4);
        assert_eq!(compared(&keys, 1), [1, 2, 3]);
        assert_eq!(compared(&keys, 2), [0, 0, 4]);
        assert_eq!(compared(&keys, 99), [0, 0, 0]);
    }

    #[test]
    fn a_region_keeps_its_newest_four_and_what_goes_before_its_time_is_counted() {
        let mut keys = empty();
        (1..=6).for_each(|revision| push(&mut keys, 1, revision));
        assert_eq!(compared(&keys, 1), [3, 4, 5, 6]);
        assert_eq!(keys.handle_timeout(at(0), T), 2);
        assert_eq!(keys.handle_timeout(at(1), T), 0);
    }

    #[test]
    fn a_full_table_forgets_the_oldest_of_all() {
        let mut keys = empty();
        let count = KEYS_MAX as u32 + 1;
        (1..=count).for_each(|region| push(&mut keys, region, region.into()));
        assert_eq!(compared(&keys, 1), [0]);
        assert_eq!((compared(&keys, 2), compared(&keys, count)), (vec![2], vec![count as u8]));
        assert_eq!(keys.handle_timeout(at(0), T), 1);
    }

    #[test]
    fn a_tenant_that_rekeys_without_end_pushes_out_its_own_keys_alone() {
        let mut keys = empty();
        push_of(&mut keys, 1, 9_000, 1);
        (0..1_000).for_each(|turn| push_of(&mut keys, 2, turn, 2));
        assert_eq!(compared(&keys, 9_000), [1]);
        // The next tenant finds as much as its floor, which the tenant with most gives up.
        for round in 0..42 {
            push_of(&mut keys, 3, 10_000 + round, 3);
        }
        assert!((0..42).all(|round| compared(&keys, 10_000 + round) == [3]));
        assert_eq!(compared(&keys, 9_000), [1]);
    }

    #[test]
    fn a_key_is_erased_two_timeouts_after_the_turn_that_follows_its_rekey() {
        let mut keys = empty();
        push(&mut keys, 1, 7);
        assert_eq!(keys.poll_timeout(), Some(Instant::ZERO), "to be dated");
        keys.handle_timeout(at(1000), T);
        push(&mut keys, 1, 8);
        keys.handle_timeout(at(1010), T);
        assert_eq!(keys.poll_timeout(), Some(at(1200)));
        keys.handle_timeout(at(1199), T);
        assert_eq!(compared(&keys, 1), [7, 8]);
        keys.handle_timeout(at(1200), T);
        assert_eq!(compared(&keys, 1), [0, 8], "as long as there is any, as many as before");
        keys.handle_timeout(at(1210), T);
        assert_eq!((compared(&keys, 1), keys.poll_timeout()), (vec![], None));
        assert!(keys.is_empty());
    }
}
