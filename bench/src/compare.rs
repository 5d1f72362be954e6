//! The kernel's own sockets between the same two namespaces: the alternative for those without
//! AF_XDP.
//!
//! On a veth pair without an XDP program, as the kernel has it at its best, and with both sides
//! spinning on a core of their own, as our engines do. Nothing is encrypted, and each message is a
//! system call on either side.

mod gso;
mod link;
mod udp;
mod waiting;

pub use self::{
    gso::segmented,
    link::Sockets,
    udp::{Transport, echo, ping_pong},
};
