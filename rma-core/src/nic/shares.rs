//! Shares of one table by tenant (P13, not in the paper).
//!
//! One half of the table is set aside, in equal *floors*: one for each tenant that has something in
//! the table or had lately, and one for whoever comes next. What a tenant has beyond its floor
//! comes from the other half, by whatever rule the table has besides. So a floor is free for its
//! tenant, whatever the others do together. With "no more than is free" instead, which is the rule
//! among initiators, eight tenants that act together leave a ninth less than a hundredth.
//!
//! A host that only one tenant uses has no shares: that tenant has all.

use crate::{tenant::TenantIndex, time::Instant};

/// For how many timeouts a tenant that has nothing in a table any more keeps its floor. Longer: the
/// others have less after it has gone. Shorter: a tenant that asks seldom finds the place that is
/// free for whoever comes next, and shares that one.
const KEPT_TIMEOUTS: u64 = 10;

/// The shares of a host's tenants in one table.
#[derive(Debug)]
pub struct Shares {
    capacity: u32,
    tenants: Box<[Share; TenantIndex::COUNT]>,
    /// No tenant from here on has ever had anything.
    known: usize,
    /// The amount that all have together.
    used: u32,
    /// As far as it was told.
    now: Instant,
    kept_nanos: u64,
}

/// The share of one tenant.
#[derive(Clone, Copy, Debug)]
struct Share {
    used: u32,
    /// When it last took something. `None`: never.
    took_at: Option<Instant>,
}

impl Shares {
    /// Bytes that each tenant takes in each table that is shared so.
    pub(super) const TENANT_LEN: usize = size_of::<Share>();

    /// Of a table of so much.
    #[must_use]
    pub fn new(capacity: u32, timeout_nanos: u64) -> Self {
        let none = Share { used: 0, took_at: None };
        let kept_nanos = timeout_nanos.saturating_mul(KEPT_TIMEOUTS);
        let tenants = Box::new([none; TenantIndex::COUNT]);
        Self { capacity, tenants, known: 0, used: 0, now: Instant::ZERO, kept_nanos }
    }

    /// It is `now`.
    #[inline]
    pub const fn note_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Whether `tenant` may take so much more, of what is free. A tenant that has nothing always
    /// may: a floor is never less than one of what the table has.
    #[must_use]
    #[inline]
    pub fn admits(&self, tenant: TenantIndex, amount: u32) -> bool {
        // While all have less than a half together, nobody has anything of a floor that is not its
        // own.
        self.used + amount <= self.capacity / 2
            || self.tenants[tenant.index()].used == 0
            || self.is_within(tenant, amount)
    }

    /// Whether no other tenant than `tenant` has anything, or had lately: then it has all.
    #[must_use]
    pub fn is_alone(&self, tenant: TenantIndex) -> bool {
        let others = self.tenants[..self.known].iter().enumerate();
        !others.filter(|(index, _)| *index != tenant.index()).any(|(_, it)| self.is_there(it))
    }

    /// Whether `tenant` has more than its floor would be if `other` came: of that it may have to
    /// make room.
    #[must_use]
    pub fn is_beyond_floor(&self, tenant: TenantIndex, other: TenantIndex) -> bool {
        let has_come = usize::from(!self.is_there(&self.tenants[other.index()])) as u32;
        self.tenants[tenant.index()].used > self.capacity / 2 / (self.floors() + has_come)
    }

    fn is_there(&self, share: &Share) -> bool {
        let is_kept = |at: Instant| self.now.nanos_since(at) < self.kept_nanos;
        share.used > 0 || share.took_at.is_some_and(is_kept)
    }

    /// One for each tenant that is there, and one for whoever comes next.
    fn floors(&self) -> u32 {
        self.tenants[..self.known].iter().filter(|it| self.is_there(it)).count() as u32 + 1
    }

    #[cold]
    fn is_within(&self, tenant: TenantIndex, amount: u32) -> bool {
        let tenants = &self.tenants[..self.known];
        let floors = self.floors();
        let floor = self.capacity / 2 / floors;
        let beyond = |used: u32| used.saturating_sub(floor);
        let used = self.tenants[tenant.index()].used;
        let all = tenants.iter().map(|share| beyond(share.used)).sum::<u32>();
        let own = beyond(used + amount);
        own == 0 || all - beyond(used) + own <= self.capacity - floors * floor
    }

    /// `tenant` takes so much.
    #[inline]
    pub fn take(&mut self, tenant: TenantIndex, amount: u32) {
        self.known = self.known.max(tenant.index() + 1);
        self.used += amount;
        let share = &mut self.tenants[tenant.index()];
        share.used += amount;
        share.took_at = Some(self.now);
    }

    /// `tenant` gives so much back.
    ///
    /// # Panics
    /// If it has not so much.
    #[inline]
    pub fn give_back(&mut self, tenant: TenantIndex, amount: u32) {
        let used = &mut self.tenants[tenant.index()].used;
        *used = used.checked_sub(amount).expect("what was taken is given back once");
        self.used -= amount;
    }

    /// Returns the share of each tenant.
    #[cfg(test)]
    pub(super) fn by_tenant(&self) -> [u32; TenantIndex::COUNT] {
        self.tenants.map(|share| share.used)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T: u64 = 100;

    fn tenant(index: usize) -> TenantIndex {
        TenantIndex::of(index)
    }

    /// Takes one at a time as long as it may. Returns how much it has then.
    fn fill(shares: &mut Shares, who: TenantIndex) -> u32 {
        while shares.used < shares.capacity && shares.admits(who, 1) {
            shares.take(who, 1);
        }
        shares.by_tenant()[who.index()]
    }

    #[test]
    fn a_tenant_finds_a_floor_however_many_others_have_taken_what_they_could() {
        for others in 1..TenantIndex::COUNT - 1 {
            let mut shares = Shares::new(4096, T);
            (0..others).for_each(|other| shares.take(tenant(other), 1));
            (0..others).for_each(|other| assert!(fill(&mut shares, tenant(other)) > 0));
            let floor = 2048 / (others as u32 + 2);
            let found = fill(&mut shares, tenant(others));
            assert!(found >= floor, "{found} of {floor} beside {others}");
        }
    }

    #[test]
    fn a_tenant_that_has_gone_keeps_its_floor_for_some_timeouts_only() {
        let mut shares = Shares::new(120, T);
        shares.take(tenant(1), 1);
        shares.give_back(tenant(1), 1);
        // Three floors of 20: of whoever was there, of whoever comes next, and its own.
        assert_eq!(fill(&mut shares, tenant(0)), 80);
        // Two floors of 30.
        shares.note_time(Instant::from_nanos(T * KEPT_TIMEOUTS));
        assert_eq!(fill(&mut shares, tenant(0)), 90);
    }

    #[test]
    fn the_first_tenant_gives_no_floor_away_for_ever() {
        let mut shares = Shares::new(120, T);
        assert_eq!(fill(&mut shares, tenant(0)), 90);
        assert_eq!(fill(&mut shares, tenant(1)), 20, "a third of a half");
        shares.give_back(tenant(0), 10);
        assert!(!shares.admits(tenant(0), 1), "it has more than its part still");
        assert_eq!(fill(&mut shares, tenant(2)), 15, "a quarter of a half");
    }

    #[test]
    fn a_tenant_with_more_than_a_floor_while_another_has_less_is_told_from_the_others() {
        let mut shares = Shares::new(120, T);
        let [one, other, third] = [0, 1, 2].map(tenant);
        assert!(shares.is_alone(one), "nobody has anything");
        shares.take(one, 31);
        assert!(shares.is_alone(one) && !shares.is_alone(other));
        // A floor is 20 if another comes, as there is one for whoever comes after that.
        assert!(shares.is_beyond_floor(one, other));
        shares.give_back(one, 11);
        assert!(!shares.is_beyond_floor(one, other));
        shares.take(other, 1);
        assert!(!shares.is_alone(one));
        assert!(shares.is_beyond_floor(one, third) && !shares.is_beyond_floor(one, other));
        shares.give_back(other, 1);
        assert!(!shares.is_alone(one), "not for some timeouts");
        shares.note_time(Instant::from_nanos(T * KEPT_TIMEOUTS));
        assert!(shares.is_alone(one));
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn giving_back_twice_is_a_broken_invariant() {
        Shares::new(1, T).give_back(tenant(0), 1);
    }

    proptest! {
        #[test]
        fn whatever_is_taken_and_given_back_a_floor_is_left_for_who_comes_next(
            steps in prop::collection::vec((0..20_usize, any::<bool>(), 1..8_u32), 1..400),
        ) {
            let mut shares = Shares::new(1024, T);
            for who in 0..20 {
                shares.take(tenant(who), 1);
            }
            for (who, takes, amount) in steps {
                let who = tenant(who);
                let has = shares.by_tenant()[who.index()];
                if takes && shares.admits(who, amount) {
                    shares.take(who, amount);
                } else if !takes {
                    shares.give_back(who, amount.min(has));
                }
                prop_assert!(shares.used <= 1024 - 512 / 21, "{:?}", shares.by_tenant());
                prop_assert_eq!(shares.used, shares.by_tenant().iter().sum::<u32>());
            }
        }
    }
}
