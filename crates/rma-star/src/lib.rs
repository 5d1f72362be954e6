//! StaR: reliable connections whose state lives on the side that has few, after "StaR: Breaking the
//! Scalability Limit for RDMA" (ICNP 2021; *the paper*). A service of the engine of
//! [`rma_core`], beside 1RMA.
//!
//! # Vocabulary
//!
//! Of the two ends of a connection, **Z** is the *stateless side* (the paper's server: very many
//! connections), **F** the *stateful side* (the paper's client: few). Roles belong to a connection
//! and not to a host, which can be Z in one and F in another. F keeps the state of both, and guides
//! Z's engine frame by frame; Z's engine keeps nothing per connection and acts only on what a frame
//! proves. The other words are those of verbs: a *protection domain* (PD) of Z owns connections, of
//! which each end is a *queue pair* (QP), and *memory regions* (MR); a *work queue element* (WQE)
//! is what an application posts, a *completion queue element* (CQE) what it gets back. *Ours* marks
//! what the paper does not have.
//!
//! # Layers, top down
//!
//! | module | knows | does not know |
//! |---|---|---|
//! | [`library`] | the application's side: queue pairs, completions, timers, set-up | engines, keys of data |
//! | [`service`] | whose a post or a frame is: both kinds of processing as one service | what they do |
//! | `stateless`, `stateful` | what each side's engine does with frames and posts | each other |
//! | [`pd_table`], [`mr_table`] | protection domains, memory regions and windows of this host | frames |
//! | [`portal`] | what application and engine share: posts, reports, the words of connections | frames, keys |
//! | [`wire`] | frames, octet by octet | who sends them, who takes them, where their keys lie |
//! | [`keys`], [`aad`] | which key a frame is under, and what its tag covers | tables, who may have it |
//! | [`handover`] | what a change of roles hands over | frames, who gives and takes |
//! | [`names`], [`clock`], [`error`] | what things are called on the wire, and Z's time | frames |
//! | [`verbs`], [`limits`] | what is posted and completes; what is fixed | all else |
//!
//! This crate reads no clock, starts no thread, makes no system call and has no `unsafe`.

#![forbid(unsafe_code)]

pub mod aad;
pub mod clock;
pub mod config;
pub mod counters;
pub mod error;
pub mod handover;
pub mod keys;
pub mod library;
pub mod limits;
pub mod mr_table;
pub mod names;
mod octets;
pub mod pd_table;
pub mod portal;
mod portals;
mod sealer;
pub mod service;
mod stateful;
mod stateless;
mod tables;
#[cfg(test)]
mod tests;
pub mod verbs;
pub mod wire;
