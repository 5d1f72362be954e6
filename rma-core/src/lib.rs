//! The protocol of 1RMA (One-Shot Remote Memory Access, SIGCOMM 2020), without I/O.
//!
//! # Vocabulary
//!
//! An *initiator* runs an *op* on memory that a *responder* has registered as a *region*. Software
//! writes a [`Command`](command::Command) into a *command slot* of a
//! [`CommandPortal`](portal::CommandPortal); the [`Nic`](nic::Nic) lets the op *enter service* when
//! the *solicitation window* admits it, sends a *request*, lands the *responses* in local memory
//! and gives back one [`Completion`](command::Completion). The words are the paper's; what the
//! paper does not name is marked so.
//!
//! # Layers, top down
//!
//! | module | knows | does not know |
//! |---|---|---|
//! | [`executor`] | calls of any size, retry, order, pace | frames |
//! | [`gate`] | what a program asks of its host | who answers |
//! | [`portal`] | slots and rings of one application | frames |
//! | [`cc`] | congestion windows, by what completions say | ops, frames, the NIC |
//! | [`engine`] | whom to ask next: backend, service | what is in a frame, whose commands these are |
//! | [`service`], [`one_rma`] | whose a frame is, whose a command | what is in them |
//! | [`nic`] | the protocol: tables, windows, timeouts | sockets, threads, clocks |
//! | [`wire`], [`crypto`] | octets, keys and IVs | ops |
//! | [`seal`] | batches of frames for the AEAD, and what was authentic | whose frames, and why |
//! | [`watch`] | which portals are worth a look | what is in them |
//! | [`turns`] | how much a turn takes from each portal | what that is |
//! | [`counter_mark`] | which counter values nobody has had | files |
//! | [`backend`] | what an operating system must offer | the protocol |
//! | [`learnt_ports`] | from which ports answers come to this engine | how a device spreads them |
//! | [`path_limits`] | how long frames may be on the way to a host | how that is found |
//! | [`capture`] | how packets and fates are told in a file | files, and who captures |
//!
//! # How to drive a NIC
//!
//! [`Engine::turn`](engine::Engine::turn) does it for a program. A simulator calls the NIC itself:
//! `handle_*` for what happens, then `poll_transmit`, `poll_completion` and `poll_timeout` until
//! they have nothing more.
//!
//! This crate reads no clock, starts no thread, makes no system call and has no `unsafe`.

#![forbid(unsafe_code)]

#[macro_use]
mod settings;

pub mod addr;
mod assumed;
pub mod backend;
pub mod capture;
pub mod cc;
pub mod command;
pub mod counter_mark;
pub mod crypto;
pub mod engine;
pub mod error;
pub mod executor;
pub mod fair_queue;
pub mod gate;
pub mod grant;
pub mod granules;
pub mod index_list;
pub mod keylog;
pub mod learnt_ports;
pub mod limits;
pub mod nic;
pub mod notice_limiter;
pub mod one_rma;
pub mod op;
pub mod outcome;
pub mod packet;
pub mod path_limits;
pub mod port;
pub mod portal;
pub mod quantum;
pub mod receive_queue;
pub mod region;
pub mod seal;
pub mod seat;
pub mod service;
pub mod tally;
pub mod tenant;
pub mod time;
pub mod turns;
pub mod wake;
pub mod watch;
pub mod wire;

pub use rma_shm::{process, shortage};
