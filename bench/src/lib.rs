//! The parts of `rma-bench`, for the binary and for its tests.
//!
//! Not a measuring library for others: the crate is not published.

// It panics when the reader of a pipe has gone: see `out`.
#![deny(clippy::print_stdout)]

pub mod aead;
pub mod amount;
pub mod backend;
pub mod bytes;
pub mod capture;
pub mod client;
pub mod compare;
pub mod conditions;
pub mod cores;
mod cpu;
pub mod decrypt;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod drawing;
pub mod error;
pub mod failures;
pub mod floor;
pub mod generate;
pub mod grant_file;
pub mod grants;
pub mod inbox;
mod interface_news;
pub mod interrupt;
pub mod invite;
pub mod keys;
pub mod latency;
pub mod load;
pub mod machine;
pub mod measure;
pub mod mode;
pub mod model;
pub mod numa;
pub mod one_way;
pub mod out;
pub mod page;
pub mod pair;
pub mod peers;
pub mod pipelined;
pub mod program;
pub mod rates;
pub mod remote;
pub mod report;
pub mod rotation;
mod route;
pub mod saved;
pub mod serve;
pub mod session;
pub mod stat;
pub mod timeline;
pub mod verify;
