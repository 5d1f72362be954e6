//! Hosts as applications have them, on the kernel of this machine: over UDP sockets on loopback,
//! and over AF_XDP on veth pairs, which needs root.

mod blocking_wait;
mod channels;
mod counter_restart;
mod keys;
mod metrics;
mod over_udp;
mod over_xdp;
mod transfers;
