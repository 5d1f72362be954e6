//! The only place that names atomics, fences and `Arc`, so that loom can stand in for them.
//!
//! Built with `--cfg loom`, the ring and the doorbell run on loom's types, and `tests/loom.rs`
//! walks through every interleaving that the memory model allows. [`MappingWord`] is never loom's:
//! a mapping is a flat block of memory, not a set of modelled objects. So under loom rings and
//! doorbells have memory of their own, and all else of them is the same.

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
