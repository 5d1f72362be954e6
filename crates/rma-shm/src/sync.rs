//! The only place that names atomics, fences and `Arc`, so that loom can stand in for them.
//!
//! Built with `--cfg loom`, the ring and the doorbell run on loom's types, and `tests/loom.rs`
//! walks through every interleaving that the memory model allows. [`RegionWord`] is never loom's: a
//! region is a flat block of memory, not a set of modelled objects.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;

/// A word of a registered region: eight bytes, aligned to eight.
pub(crate) use core::sync::atomic::AtomicU64 as RegionWord;
