//! What hosts stand on: the steering program, the backends of AF_XDP, addresses and paths as the
//! kernel has them.

mod narrow_paths;
mod net_paths;
mod own_addresses;
mod packet_metrics;
mod steering;
mod xdp_backend;
