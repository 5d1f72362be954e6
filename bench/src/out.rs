//! Standard output: results for people and machines, to a reader that may leave.
//!
//! `println!` panics once the reader of a pipe has gone (`rma-bench demo | head`).
//! [`line!`](crate::line) notes it instead. From then on
//! [`Interrupt::is_set`](crate::interrupt::Interrupt::is_set) says that the program should end, so
//! that a run nobody reads ends in the ordinary way, with everything removed; and nothing more is
//! written.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    sync::OnceLock,
};

/// The error after which nothing more can be written. As global as standard output itself.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Writes a line to standard output, formatted as by `println!`. Never panics.
#[macro_export]
macro_rules! line {
    ($($arg:tt)*) => { $crate::out::write_line(::core::format_args!($($arg)*)) };
}

/// The function behind [`line!`](crate::line).
pub fn write_line(text: fmt::Arguments<'_>) {
    if FAILURE.get().is_some() {
        return;
    }
    if let Err(error) = writeln!(io::stdout(), "{text}") {
        // Another thread may have been first, with the same news.
        let _ = FAILURE.set(error);
    }
}

/// Returns the error after which nothing more can be written; `None` as long as it can.
#[must_use]
pub fn failure() -> Option<&'static io::Error> {
    FAILURE.get()
}

/// Whether the reader of standard output has gone, as `head` does when it has seen enough.
#[must_use]
pub fn reader_is_gone() -> bool {
    failure().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
