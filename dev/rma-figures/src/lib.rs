//! The project's figures and those of the papers, for the program `rma-figures` and its tests.
//!
//! It stands on `rma-bench`, whose hosts, floors and loops it measures with. It is not published,
//! and nothing that ships depends on it.

// It panics when the reader of a pipe has gone: see `rma_bench::out`.
#![deny(clippy::print_stdout)]

pub mod allocator;
pub mod bad_tenant;
mod bare;
pub mod channels;
pub mod clients;
pub mod cores;
pub mod crypto;
pub mod death;
pub mod error;
pub mod failover;
pub mod figures;
pub mod handover;
pub mod instructions;
pub mod issue;
mod joined;
pub mod key_rotation;
pub mod key_service;
pub mod kv;
pub mod lone;
mod memory;
pub mod panel;
pub mod paper;
pub mod parts;
pub mod phases;
pub mod queue_pairs;
pub mod scale;
pub mod service;
pub mod settle;
pub mod simulated;
pub mod stations;
pub mod transfers;
pub mod turn;
pub mod useless;
