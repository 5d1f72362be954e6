//! The wall clock, which hosts read where no mark tells what counter values are fresh.

/// Nanoseconds since 1970. `None` if that is negative or more than fits.
#[must_use]
pub(super) fn wall_clock_nanos() -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "this is the wall clock's module")]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).ok()?;
    since.as_nanos().try_into().ok()
}

/// The wall clock, believed only where it can be right: not near 1970, where a machine without a
/// clock battery begins each time anew, and not so far on that the counter would come near its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock(pub(super) fn() -> Option<u64>);

impl WallClock {
    /// The beginning of 2025.
    const EARLIEST: u64 = 1_735_689_600_000_000_000;
    /// The year 2262.
    const LATEST: u64 = 1 << 63;

    pub(super) fn now(self) -> Option<u64> {
        (self.0)().filter(|now| (Self::EARLIEST..Self::LATEST).contains(now))
    }
}
