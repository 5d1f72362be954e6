//! Children of a program that has hosts open, by exec and by fork.
//!
//! One test at a time, in a binary of its own: a child inherits whatever is open at that moment.

mod descriptors;
mod forked_host;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of this program runs.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
