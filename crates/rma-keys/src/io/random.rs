//! Random octets of the kernel's: never of a generator of our own.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// So many of them, 256 at most.
///
/// # Errors
/// If the kernel has no such call.
pub(super) fn octets<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    // They come in one piece once the kernel's source is seeded, which is waited for.
    let filled = getrandom(&mut octets, GetRandomFlags::empty())?;
    assert_eq!(filled, N, "getrandom gave less than it promises");
    Ok(octets)
}
