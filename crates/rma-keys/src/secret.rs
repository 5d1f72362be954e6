//! Keys while this crate holds them: erased when they are dropped, never shown, never copied
//! unasked.
//!
//! The protocol's own types of keys are small values that are copied about, as commands carry them
//! through the memory of portals. Here keys wait, for as long as an epoch or in a buffer; so they
//! have owners. Neither type is `Clone`.

use core::{fmt, ops::Deref};

use rma_core::crypto::{DerivedRegionKey, RegionKey};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// How long a key is, in octets.
pub const KEY_LEN: usize = 16;

/// The octets of a message that may hold keys: erased on drop, and shown by their number alone.
#[derive(PartialEq, Eq)]
pub struct Octets(Zeroizing<Vec<u8>>);

impl Octets {
    /// Takes octets in, without a copy.
    #[must_use]
    pub fn new(octets: Vec<u8>) -> Self {
        Self(Zeroizing::new(octets))
    }
}

impl From<Zeroizing<Vec<u8>>> for Octets {
    fn from(octets: Zeroizing<Vec<u8>>) -> Self {
        Self(octets)
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Octets({})", self.len())
    }
}

/// A K_r that waits: of a region's present epoch, or of its next.
pub struct RegionSecret([u8; KEY_LEN]);

impl RegionSecret {
    /// A key from 16 octets of a cryptographically secure random source; those are erased.
    #[must_use]
    pub fn new(octets: &mut [u8; KEY_LEN]) -> Self {
        let secret = Self(*octets);
        octets.zeroize();
        secret
    }

    /// Another owner of the same key: not `Clone`, so that no copy is made unasked.
    pub(crate) const fn copied(&self) -> Self {
        Self(self.0)
    }

    /// The key, for a Rekey or a host. This copy is the caller's to forget.
    #[must_use]
    pub const fn region_key(&self) -> RegionKey {
        RegionKey::from_bytes(self.0)
    }
}

/// A K_d on its way from a service to its holder.
#[derive(PartialEq, Eq)]
pub struct GrantedKey([u8; KEY_LEN]);

impl GrantedKey {
    /// Takes a key in.
    #[must_use]
    pub const fn new(key: &DerivedRegionKey) -> Self {
        Self(*key.expose())
    }

    /// Takes a key in from its octets.
    #[must_use]
    pub const fn from_octets(octets: &[u8; KEY_LEN]) -> Self {
        Self(*octets)
    }

    /// The key, for a grant. This copy is the caller's to forget.
    #[must_use]
    pub const fn derived_key(&self) -> DerivedRegionKey {
        DerivedRegionKey::from_bytes(self.0)
    }
}

/// Both kinds: erased on drop, and told apart by their names alone.
macro_rules! erased_and_hidden {
    ($($name:ident)+) => {$(
        impl Drop for $name {
            fn drop(&mut self) {
                self.0.zeroize();
            }
        }

        impl ZeroizeOnDrop for $name {}

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(secret)"))
            }
        }
    )+};
}

erased_and_hidden!(RegionSecret GrantedKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown_and_the_octets_that_they_came_from_are_erased() {
        let mut octets = [0x5a; KEY_LEN];
        let secret = RegionSecret::new(&mut octets);
        assert_eq!(octets, [0; KEY_LEN]);
        assert_eq!(secret.region_key().expose(), &[0x5a; KEY_LEN]);
        let granted = GrantedKey::new(&DerivedRegionKey::from_bytes([0x5a; KEY_LEN]));
        assert_eq!(granted.derived_key().expose(), &[0x5a; KEY_LEN]);
        let octets = Octets::new(vec![0x5a; 20]);
        assert_eq!(*octets, [0x5a; 20]);
        let text = format!("{secret:?} {granted:?} {octets:?}");
        assert_eq!(text, "RegionSecret(secret) GrantedKey(secret) Octets(20)");
    }

    #[test]
    fn both_erase_themselves() {
        fn erases<T: ZeroizeOnDrop>() -> bool {
            core::mem::needs_drop::<T>()
        }
        assert!(erases::<RegionSecret>() && erases::<GrantedKey>());
    }
}
