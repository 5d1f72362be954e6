//! The key service over sockets: a service on one thread, and clients' fetches on another.
//!
//! Each is a poll loop over connections of TLS that do no I/O themselves. A loop is told what time
//! it is, once a turn; only the threads read the clock. So an application can drive a loop inline,
//! and a test can be at any time.
//!
//! | module | what it is |
//! |---|---|
//! | [`server`] | accepts connections, within limits, and has their messages answered |
//! | [`addresses`] | where a service is, as people type it |
//! | [`client`] | connects to services, and fetches from them for threads and futures |
//! | [`keeper`] | an owner's regions, their rotations and the policy, behind a server |
//! | [`key_cache`] | a client's regions, whose keys are fetched and renewed for threads and tasks |
//! | [`core_dumps`] | switching them off, for programs that hold keys |
//! | [`clock`] | the time and the date, for the threads |
//! | `link` | messages over one connection of TLS |
//! | `poller` | which sockets are ready, and waking who waits for them |
//!
//! No connection can hold more than a message each way, and none outlives its limits.

pub mod addresses;
pub mod client;
pub mod clock;
pub mod core_dumps;
pub mod keeper;
pub mod key_cache;
mod link;
mod policy_file;
mod poller;
mod random;
pub mod server;

pub use policy_file::{PolicyFileError, PolicyFrom};
