//! A part of a mapping as something with a type, for those who look at it so often that they keep a
//! pointer.
//!
//! The bounds are checked once, when the part is made. It keeps the mapping, so the pointer stays
//! good. (Not under loom, whose words are no words of a mapping.)
#![cfg(not(loom))]

use super::{ALIGN, LayoutError, Mapping, WORD};
use crate::sync::Word;
use core::{fmt, ops::Deref, ptr::NonNull};
use std::sync::Arc;

/// Types that consist of whole atomic words, and of nothing else.
///
/// # Safety
///
/// Every field is a [`Word`], or an array or a struct of such, and there is no padding.
pub(crate) unsafe trait Words {}

/// A word with [`ALIGN`] bytes of its own, so that who writes it disturbs no neighbour.
#[repr(C, align(128))]
pub(crate) struct Lone {
    word: Word,
    /// Words, too, so that whatever is written there is nobody's concern.
    _spare: [Word; ALIGN / WORD - 1],
}

const _: () = assert!(size_of::<Lone>() == ALIGN && align_of::<Lone>() == ALIGN);

// SAFETY: it is sixteen words.
unsafe impl Words for Lone {}

impl Deref for Lone {
    type Target = Word;

    #[inline]
    fn deref(&self) -> &Word {
        &self.word
    }
}

/// A `T` in a mapping, which it keeps, and more of the mapping behind it.
pub(crate) struct Part<T> {
    first: NonNull<T>,
    /// From `first` on, in bytes: at least a `T`.
    len: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: it is a shared owner of a mapping, which may be sent and shared, and a place in it.
unsafe impl<T: Words> Send for Part<T> {}
// SAFETY: it gives access to atomic words, which are `Sync`, and to nothing else.
unsafe impl<T: Words> Sync for Part<T> {}

impl<T: Words> Part<T> {
    /// Makes the part at offset `at`: `len` bytes, which are at least a `T`.
    pub(crate) fn new(mapping: &Arc<Mapping>, at: usize, len: usize) -> Result<Self, LayoutError> {
        const {
            assert!(align_of::<T>() <= ALIGN && size_of::<T>().is_multiple_of(WORD));
        }
        let len = len.max(size_of::<T>());
        mapping.part(at, len)?;
        // SAFETY: `part` has checked that the mapping goes on for `len` bytes from there.
        let first = unsafe { mapping.first.byte_add(at) };
        Ok(Self { first: first.cast(), len, mapping: Arc::clone(mapping) })
    }

    /// How many values of type `U` there is room for behind the `T`.
    pub(crate) const fn room_behind<U: Words>(&self) -> usize {
        (self.len - size_of::<T>()) / size_of::<U>()
    }

    /// The value `index` of an array that begins behind the `T`.
    ///
    /// # Safety
    ///
    /// `index` is less than [`Part::room_behind`].
    #[inline]
    pub(crate) unsafe fn behind<U: Words>(&self, index: usize) -> &U {
        const {
            assert!(size_of::<T>().is_multiple_of(align_of::<U>()));
            assert!(align_of::<U>() <= align_of::<T>());
        }
        // SAFETY: the end of a `T` of the mapping's is in the mapping, or at its end.
        let array = unsafe { self.first.add(1) }.cast::<U>();
        // SAFETY: the caller says that this value, too, lies in the mapping.
        let value = unsafe { array.add(index) };
        // SAFETY: it is there as long as the mapping, which `self` keeps; any bit pattern is one
        // (`Words`); it is aligned, as a `T` is to more and ends at a multiple.
        unsafe { value.as_ref() }
    }
}

impl<T: Words> Deref for Part<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `new` has checked that a `T` lies there, aligned; it is there as long as the
        // mapping, which `self` keeps; any bit pattern is one (`Words`).
        unsafe { self.first.as_ref() }
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self { first: self.first, len: self.len, mapping: Arc::clone(&self.mapping) }
    }
}

impl<T> fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("len", &self.len).field("mapping", &self.mapping).finish()
    }
}
