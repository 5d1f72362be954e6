//! The tenant of a host that something is for (not in the paper, where a NIC knows processes only):
//! a small number, so that shares are kept in arrays of a fixed size (P5).

/// One of the tenants that a NIC tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantIndex(u8);

impl TenantIndex {
    /// How many a NIC tells apart. More: more memory, and who needs a share waits for longer.
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
        // Which the compiler does not know of the octet.
        self.0 as usize % Self::COUNT
    }
}
