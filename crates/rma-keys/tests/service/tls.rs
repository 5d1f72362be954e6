//! The key service with certificates and sockets: who is let in, and what is served then.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod attacks;
mod certificates;
mod client;
mod directory;
mod files;
mod server;
