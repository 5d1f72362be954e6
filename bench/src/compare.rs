//! The kernel's own sockets between the same two namespaces: the alternative for those without
//! AF_XDP.
//!
//! On a veth pair without an XDP program, as the kernel has it at its best, and with both sides
//! spinning on a core of their own, as our engines do. Messages there and back ([`ping_pong`],
//! [`echo`]), datagrams one way ([`segmented`]), and bytes of a memory that are asked for and
//! answered ([`fetch`](fetch::fetch)), also encrypted.

mod batched;
mod end;
pub mod fetch;
mod gso;
mod link;
#[cfg(feature = "quic")]
mod quic;
pub(crate) mod remote;
mod tls;
mod udp;
mod waiting;

pub use self::{
    gso::segmented,
    link::Sockets,
    udp::{Transport, echo, ping_pong},
};
