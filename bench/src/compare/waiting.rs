//! Spinning on a socket that does not block.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use crate::floor::clock;

/// How long an answer may take before it counts as lost. On a busy machine a thread may be kept
/// from its core for a tenth of a second.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// Empty polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 1024;

/// Calls `receive` until it has received something, and returns that. `None` if it took too long,
/// the other end has gone, or `stop` says so.
pub(super) fn spin<T>(
    mut receive: impl FnMut() -> io::Result<T>,
    stop: impl Fn() -> bool,
) -> Option<T> {
    let (mut polls, mut start) = (0_u32, None);
    loop {
        match receive() {
            Ok(received) => return Some(received),
            Err(error) if is_transient(&error) => {}
            Err(_) => return None,
        }
        if stop() {
            return None;
        }
        polls += 1;
        if polls.is_multiple_of(POLLS_PER_LOOK) {
            let now = clock();
            if now - *start.get_or_insert(now) > LOST_AFTER {
                return None;
            }
        }
    }
}

/// Whether it may work the next time: there is nothing yet, or no room.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
        // The kernel's error when a transmit queue has no room.
        || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}
