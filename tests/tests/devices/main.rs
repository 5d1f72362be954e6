//! The kernel below a host: the steering program, AF_XDP sockets, addresses and paths.

mod narrow_paths;
mod net_paths;
mod networks;
mod own_addresses;
mod packet_metrics;
mod several_engines;
mod steering;
mod xdp_backend;
