//! Keys that a service gives, while ops go on under them: rotations, restarts, withdrawals, and a
//! service that is gone. Over UDP on loopback, with real TLS. No privileges needed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod inline;
mod rotations;
mod services;
