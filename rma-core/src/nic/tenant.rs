//! Shares of a NIC by a host's tenants.

use crate::tenant::TenantIndex;

/// How many command slots and regions each tenant has.
#[derive(Debug)]
pub(super) struct Presence {
    counts: [u32; TenantIndex::COUNT],
    /// How many tenants have any.
    tenants: u32,
}

impl Presence {
    pub(super) const NOBODY: Self = Self { counts: [0; TenantIndex::COUNT], tenants: 0 };

    /// `tenant` gets one more.
    pub(super) const fn enter(&mut self, tenant: TenantIndex) {
        let count = &mut self.counts[tenant.index()];
        *count += 1;
        if *count == 1 {
            self.tenants += 1;
        }
    }

    /// `tenant` has one less.
    pub(super) const fn leave(&mut self, tenant: TenantIndex) {
        let count = &mut self.counts[tenant.index()];
        *count -= 1;
        if *count == 0 {
            self.tenants -= 1;
        }
    }

    /// Whether more than one tenant has anything.
    #[inline]
    pub(super) const fn is_shared(&self) -> bool {
        self.tenants > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_is_shared_as_long_as_two_tenants_have_anything_of_it() {
        let mut presence = Presence::NOBODY;
        let [one, other] = [0, 5].map(TenantIndex::of);
        presence.enter(one);
        presence.enter(one);
        assert!(!presence.is_shared());
        presence.enter(other);
        presence.leave(one);
        assert!(presence.is_shared());
        presence.leave(one);
        assert!(!presence.is_shared());
        assert_eq!(TenantIndex::of(TenantIndex::COUNT + 5), other);
    }
}
