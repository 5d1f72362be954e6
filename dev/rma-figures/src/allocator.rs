//! Counts of a thread's requests to the allocator: the binary's own allocator counts, so that
//! figures of memory show real requests, not sums of sizes.

use core::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    hint::black_box,
};
use std::alloc::System;

/// The requests of a thread to the allocator since the thread began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Bytes that it was given.
    pub given: u64,
    /// Bytes that it has given back.
    pub back: u64,
}

thread_local! {
    // Without a destructor, and without a first use that would allocate.
    static ASKED: Cell<Asked> = const { Cell::new(Asked { given: 0, back: 0 }) };
}

impl Asked {
    /// Runs `work` and returns its requests to the allocator, with its result.
    pub fn by<T>(work: impl FnOnce() -> T) -> (Self, T) {
        let before = ASKED.get();
        let result = work();
        let after = ASKED.get();
        let asked = Self { given: after.given - before.given, back: after.back - before.back };
        (asked, result)
    }

    /// Adds what was asked by `work`, and returns what that returned.
    pub fn add<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (asked, result) = Self::by(work);
        self.give(asked);
        result
    }

    /// Adds what was asked otherwise.
    pub const fn give(&mut self, Self { given, back }: Self) {
        self.given += given;
        self.back += back;
    }

    /// Bytes that it has.
    #[must_use]
    pub const fn kept(&self) -> i64 {
        self.given.wrapping_sub(self.back).cast_signed()
    }
}

/// Whether the allocator of this program counts.
#[must_use]
pub fn counts() -> bool {
    Asked::by(|| drop(black_box(Box::new(0_u8)))).0.given > 0
}

/// The system's allocator, which counts what each thread asks of it.
#[derive(Debug)]
pub struct Counting;

fn count(given: usize, back: usize) {
    let asked = ASKED.get();
    ASKED.set(Asked { given: asked.given + given as u64, back: asked.back + back as u64 });
}

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`, which is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
