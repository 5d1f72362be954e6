//! The floor: what the AF_XDP sockets alone can do, without a protocol.
//!
//! The same sockets, rings, chunks and doorbells as the backend uses
//! ([`rma_xdp::device::xdp::socket::Socket`]), with UDP packets that are written once, before the
//! clock starts, and never looked at again. Nothing that uses these sockets can be faster;
//! everything measured is printed beside it.
//!
//! It is not a benchmark of the protocol, and not reliable: a lost packet is counted and the
//! exchange is repeated, and a result with losses says so.
//!
//! Three kinds: one exchange at a time ([`ping_pong`], [`four_hops`]), for latencies; many under
//! way at once ([`pipeline`]), for ops in a second; packets in one direction ([`flood`]), for bytes
//! in a second.

mod exchange;
mod flood;
mod link;
mod pingpong;
mod pipeline;
mod wire;

pub use self::{
    exchange::{Exchange, Rate, Side, Sides},
    flood::flood,
    link::Link,
    pingpong::{FourHops, RoundTrips, four_hops, ping_pong},
    pipeline::pipeline,
    wire::clock,
};
pub(crate) use self::{pingpong::timed, wire::StopOnDrop};
