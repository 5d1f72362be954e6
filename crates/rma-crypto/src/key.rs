//! Keys, and what is precomputed from them.
//!
//! All that is kept here is overwritten with zeros when it is dropped, and `Debug` does not show
//! it. What a key is for, and who may have it, is the caller's business.

use core::{fmt, hint::black_box};

use zeroize::optimization_barrier;

#[cfg(target_arch = "x86_64")]
use crate::lanes::{Expanded, Rounds};
use crate::portable::{PortableKey, PortableSchedule};

/// Octets of a key.
pub const KEY_LEN: usize = 16;

/// An AES-128 key. Zeroized on drop.
///
/// Comparing takes the same time whatever the keys are.
#[derive(Clone)]
#[repr(transparent)]
pub struct Key([u8; KEY_LEN]);

impl Key {
    /// The key with these octets. The caller's copy is the caller's to erase.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Looks at octets as at a key, for callers that have a type of their own for keys.
    #[must_use]
    pub const fn from_ref(bytes: &[u8; KEY_LEN]) -> &Self {
        let key = core::ptr::from_ref(bytes).cast::<Self>();
        // SAFETY: `Key` is `repr(transparent)` over the octets, so the reference stays valid, and
        // for as long.
        unsafe { &*key }
    }

    /// The key's octets.
    #[must_use]
    pub const fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    pub(crate) const fn expose_mut(&mut self) -> &mut [u8; KEY_LEN] {
        &mut self.0
    }
}

impl Default for Key {
    /// Sixteen zero octets: a place for [`derive`](crate::AeadProvider::derive) to write to.
    fn default() -> Self {
        Self([0; KEY_LEN])
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        is_same(&self.0, &other.0)
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        self.0 = [0; KEY_LEN];
        optimization_barrier(self);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// Whether 16 octets are the same, without a branch on where they differ.
pub(crate) fn is_same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    black_box(u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b)) == 0
}

/// A key with everything precomputed, for when it seals or opens frames one at a time and more than
/// once.
///
/// In a batch, set-up costs little: a [`Key`] does as well there, and is a twentieth of the size.
/// Zeroized on drop.
#[derive(Clone)]
pub struct PreparedKey {
    pub(crate) key: Key,
    pub(crate) form: PreparedForm,
}

/// The form in which a provider has precomputed a key. A provider that meets another's form begins
/// from the key again.
#[derive(Clone)]
pub(crate) enum PreparedForm {
    Portable(PortableKey),
    #[cfg(target_arch = "x86_64")]
    Expanded(Expanded),
}

impl fmt::Debug for PreparedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreparedKey(secret)")
    }
}

/// A key that other keys are derived from, with its AES key schedule and the subkeys of AES-CMAC.
/// Zeroized on drop.
#[derive(Clone)]
pub struct KeySchedule {
    /// For the providers that another one's form does not help.
    #[cfg(target_arch = "x86_64")]
    pub(crate) key: Key,
    pub(crate) form: ScheduleForm,
}

/// As [`PreparedForm`].
#[derive(Clone)]
pub(crate) enum ScheduleForm {
    Portable(PortableSchedule),
    #[cfg(target_arch = "x86_64")]
    Rounds(Rounds),
}

impl fmt::Debug for KeySchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySchedule(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AeadProvider, Portable};

    #[test]
    fn debug_output_shows_no_key() {
        let key = Key::from_bytes([0x5a; 16]);
        let (prepared, schedule) = (Portable.prepare(&key), Portable.schedule(&key));
        let text = format!("{key:?} {prepared:?} {schedule:?}");
        assert!(!text.contains("5a") && !text.contains("90"), "{text}");
    }

    #[test]
    fn keys_are_equal_if_all_their_octets_are() {
        let key = Key::from_bytes([7; 16]);
        assert_eq!(&key, Key::from_ref(&[7; 16]));
        for bit in 0..128 {
            let mut other = [7; 16];
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(&key, Key::from_ref(&other));
        }
    }

    #[test]
    fn a_dropped_key_leaves_zeros() {
        let mut place = core::mem::ManuallyDrop::new(Key::from_bytes([0xa5; 16]));
        // SAFETY: dropped here once; `ManuallyDrop` does not do it again, and what is read after is
        // plain octets.
        unsafe { core::mem::ManuallyDrop::drop(&mut place) };
        assert_eq!(place.0, [0; 16]);
    }
}
