//! The parts of `rma-bench`, for the binary and for its tests.
//!
//! Not a measuring library for others: the crate is not published.

// It panics when the reader of a pipe has gone: see `out`.
#![deny(clippy::print_stdout)]

pub mod aead;
pub mod allocator;
pub mod alone;
pub mod amount;
pub mod atomic_lat;
pub mod bad_tenant;
mod bare;
pub mod channels;
pub mod client;
pub mod clients;
pub mod compare;
pub mod crypto;
pub mod curve;
pub mod death;
pub mod demo;
pub mod error;
pub mod failover;
pub mod failures;
pub mod figures;
pub mod floor;
pub mod flows;
pub mod grant_file;
pub mod grants;
pub mod inbox;
pub mod instructions;
mod interface_news;
pub mod interrupt;
pub mod issue;
pub mod key_rotation;
pub mod key_service;
pub mod keys;
pub mod kv;
pub mod lat;
pub mod latency;
pub mod lone;
pub mod machine;
pub mod measure;
mod memory;
pub mod mode;
pub mod model;
pub mod one_way;
pub mod out;
pub mod pair;
pub mod parts;
pub mod phases;
pub mod pipelined;
pub mod plots;
pub mod queue_pairs;
pub mod rates;
pub mod rotation;
pub mod scale;
pub mod send_lat;
pub mod serve;
pub mod settle;
pub mod simulated;
pub mod star;
pub mod stations;
mod svg;
pub mod timeline;
pub mod transfers;
pub mod turn;
pub mod useless;
pub mod verify;
pub mod write_lat;
