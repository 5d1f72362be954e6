//! Asking for cache lines before they are needed.
//!
//! Lines that another core has just written, or that nobody has touched for long, take some tens to
//! hundreds of nanoseconds to arrive. Asked for together and early, they arrive together, while
//! other work is done. A hint only: nothing depends on it, and where the target has no such
//! instruction in stable Rust nothing happens.

/// Bytes of a cache line, on every target that has the hint here.
const LINE: usize = 64;

/// Asks for every cache line of `bytes`.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        prefetch_line(line.as_ptr());
    }
    // A slice that does not begin with a line ends in one more.
    if let Some(last) = bytes.last() {
        prefetch_line(last);
    }
}

/// Asks for the cache lines of the first `len` bytes of `value`, of all of it if it is shorter.
/// What it points to is not asked for.
#[inline]
pub fn prefetch_value<T>(value: &T, len: usize) {
    let first = core::ptr::from_ref(value).cast::<u8>();
    let len = len.min(size_of::<T>());
    for at in (0..len).step_by(LINE) {
        prefetch_line(first.wrapping_add(at));
    }
    // As above, unless the type says that it begins with a line.
    if align_of::<T>() < LINE && len > 0 {
        prefetch_line(first.wrapping_add(len - 1));
    }
}

/// Asks for the cache lines of `len` bytes from the beginning of the line at `address` on, whosever
/// they are: where bytes are expected that may not be looked at yet.
#[inline]
pub fn prefetch_expected(address: usize, len: usize) {
    for at in (0..len).step_by(LINE) {
        prefetch_line(core::ptr::without_provenance(address.wrapping_add(at)));
    }
}

#[inline]
pub(crate) fn prefetch_line(byte: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see and never faults, whatever the
        // address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(byte.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = byte;
}
