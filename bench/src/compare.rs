//! What the kernel's own sockets do between the same two namespaces: what somebody would use who
//! has no AF_XDP.
//!
//! On a veth pair without an XDP program, as the kernel has it at its best, and with both sides
//! spinning on a core of their own, as our engines do. Nothing is encrypted, and each message is a
//! system call on either side.

mod gso;
mod link;
mod service;
mod udp;
mod waiting;

pub use self::{
    gso::segmented,
    link::Sockets,
    service::Service,
    udp::{Transport, echo, ping_pong},
};
