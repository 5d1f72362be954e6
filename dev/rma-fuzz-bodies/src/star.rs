//! StaR: its frames, and a host that is both sides of connections with itself.

mod ring;
mod station;
mod wire;

pub use ring::StarRingSeen;
pub(super) use ring::run as ring;
pub use station::StarSeen;
pub(super) use station::run;
pub(super) use wire::check;
