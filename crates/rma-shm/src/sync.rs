//! The only place that names atomics, fences and `Arc`, so that loom can stand in for them.
//!
//! Built with `--cfg loom`, rings, doorbells and regions run on loom's types, and `tests/loom.rs`
//! walks through every interleaving that the memory model allows. [`MappingWord`] is never loom's:
//! a mapping is a flat block of memory, not a set of modelled objects. So under loom they have
//! words of their own, and all else of them is the same.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicU64 as Word, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64 as Word, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;

/// A word of a mapping: eight bytes, aligned to eight.
pub(crate) use core::sync::atomic::AtomicU64 as MappingWord;

/// A word of a region.
#[cfg(not(loom))]
pub(crate) use self::MappingWord as RegionWord;
#[cfg(loom)]
pub(crate) use self::Word as RegionWord;
