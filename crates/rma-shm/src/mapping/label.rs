//! The label of a part of a mapping, by which a side that joins it notices early if the other side
//! expects another layout.
//!
//! A label protects from mistakes, not from anybody: a process that shares the mapping can write
//! any label. So a side knows kind, version and size of what it joins beforehand, compares the
//! label with them once, and keeps its own.

use super::{ALIGN, Mapping};
use crate::sync::{MappingWord, Ordering};

/// The label of a part of a mapping. Its first three words there are kind, version and size, in the
/// byte order of the machine; the label takes [`Label::FOOTPRINT`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The kind of part, as eight letters.
    pub kind: [u8; 8],
    /// The version of the layout. It changes with every change that the other side would see.
    pub version: u64,
    /// The size of the part, in units of its own.
    pub size: u64,
}

/// The reason why a thing cannot be put into a part of a mapping, or is not found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The offset is not one that anything may lie at.
    #[error("nothing can lie at offset {at} of a mapping: use a multiple of {ALIGN}")]
    Misaligned {
        /// The offset.
        at: usize,
    },
    /// The mapping ends before.
    #[error(
        "{len} bytes at offset {at} do not lie in a mapping of {mapping_len} bytes: make it longer"
    )]
    TooShort {
        /// The offset.
        at: usize,
        /// The bytes needed there.
        len: usize,
        /// The bytes of the mapping.
        mapping_len: usize,
    },
    /// Something else lies there, or nothing.
    #[error(
        "at offset {at} there is `{}` and no `{}`: format it before it is joined, and pass on the right descriptor",
        .found.escape_ascii(),
        .wanted.escape_ascii()
    )]
    Kind {
        /// The offset.
        at: usize,
        /// The kind that was found.
        found: [u8; 8],
        /// The wanted kind.
        wanted: [u8; 8],
    },
    /// The other side has another version of the layout.
    #[error(
        "`{}` at offset {at} has version {found} of its layout, and this process knows version {wanted}: \
         run the same release on both sides",
        .kind.escape_ascii()
    )]
    Version {
        /// The offset.
        at: usize,
        /// The kind.
        kind: [u8; 8],
        /// The version there.
        found: u64,
        /// This side's version.
        wanted: u64,
    },
    /// The other side has formatted it for another size.
    #[error(
        "`{}` at offset {at} is made for {found} and not for {wanted}: both sides must ask for the same size",
        .kind.escape_ascii()
    )]
    Size {
        /// The offset.
        at: usize,
        /// The kind.
        kind: [u8; 8],
        /// The size there.
        found: u64,
        /// The size that this side has been told.
        wanted: u64,
    },
}

impl Label {
    /// The bytes that a label takes. What it labels begins behind it.
    pub const FOOTPRINT: usize = ALIGN;

    /// Zeroes `len` bytes at offset `at` of `mapping` and labels them, the kind last. `fill` writes
    /// the other content before that: so a side that sees the kind sees all of it.
    ///
    /// # Errors
    ///
    /// If no `len` bytes may lie there, and with what `fill` says. Then there is no such label.
    pub fn format<T>(
        &self,
        mapping: &Mapping,
        at: usize,
        len: usize,
        fill: impl FnOnce() -> Result<T, LayoutError>,
    ) -> Result<T, LayoutError> {
        let words = mapping.part(at, len.max(Self::FOOTPRINT))?;
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        let filled = fill()?;
        words[1].store(self.version, Ordering::Relaxed);
        words[2].store(self.size, Ordering::Relaxed);
        words[0].store(u64::from_ne_bytes(self.kind), Ordering::Release);
        Ok(filled)
    }

    /// Whether `len` bytes at offset `at` of `mapping` bear this label. Each of its words is looked
    /// at once.
    ///
    /// # Errors
    ///
    /// With the first thing that is otherwise.
    pub fn check(&self, mapping: &Mapping, at: usize, len: usize) -> Result<(), LayoutError> {
        let words = mapping.part(at, len.max(Self::FOOTPRINT))?;
        let found = |word: &MappingWord| word.load(Ordering::Acquire);
        let &Self { kind, version, size } = self;
        match found(&words[0]).to_ne_bytes() {
            found if found == kind => {}
            found => return Err(LayoutError::Kind { at, found, wanted: kind }),
        }
        match found(&words[1]) {
            found if found == version => {}
            found => return Err(LayoutError::Version { at, kind, found, wanted: version }),
        }
        match found(&words[2]) {
            found if found == size => Ok(()),
            found => Err(LayoutError::Size { at, kind, found, wanted: size }),
        }
    }
}
