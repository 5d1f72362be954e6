//! StaR: its frames, and a host that is both sides of connections with itself.

mod station;
mod wire;

pub use station::StarSeen;
pub(super) use station::run;
pub(super) use wire::check;
