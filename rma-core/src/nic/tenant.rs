//! The tenants of a host, as a NIC counts them (not in the paper, where a NIC knows processes
//! only): by a small number, so that shares are kept in arrays of a fixed size (P5).

/// One of the tenants that a NIC tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantIndex(u8);

impl TenantIndex {
    /// How many a NIC tells apart. More: more memory, and whoever needs a share waits for longer.
    /// Fewer: more tenants have a share together.
    pub const COUNT: usize = 64;

    /// The host itself.
    pub const HOST: Self = Self(0);

    /// The one with this number. Numbers from [`TenantIndex::COUNT`] on begin anew: those tenants
    /// have a share together.
    #[must_use]
    pub const fn of(number: usize) -> Self {
        Self((number % Self::COUNT) as u8)
    }

    /// Its number.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        // The compiler does not know that of the octet.
        self.0 as usize % Self::COUNT
    }
}

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
