//! Findings about a machine and its interfaces: what is wrong for 1RMA over AF_XDP, and what mends
//! it. No paper has this.
//!
//! Contract:
//! - A snapshot is data: checks are pure functions from it to findings ([`Finding`]), so a
//!   snapshot that a user sends is a test.
//! - Asking changes nothing. Mending is apart, and only changes what it was told to by name.
//! - A check that could not see something says so: [`State::Unknown`] is never [`State::Ok`].
//!
//! Invariant: whatever the kernel, a file or a journal says, nothing here panics.

pub mod checks;
pub mod finding;
pub mod genl;
pub mod mend;
pub mod page;
pub mod path;
pub mod see;
pub mod setting;
pub mod snapshot;
mod text;

pub use checks::{Wanted, check};
pub use finding::{Class, Finding, State};
pub use see::Look;
pub use setting::Setting;
pub use snapshot::{SESSION_PORT, Snapshot};
