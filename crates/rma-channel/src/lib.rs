//! Message channels over one-sided operations, after "Efficient RDMA Communication Protocols"
//! (*the paper*; section numbers alone are its).
//!
//! The paper sorts every known way to move messages over remote memory into six families and twenty
//! channels. What is here so far: [`ring`], circular buffers and the records in them, and of the
//! channels [`ring_buffer`]'s two with an inlined bell. The others are not here yet.
//!
//! # What it is not
//!
//! No I/O, no clock, no thread, no `unsafe`: channels issue through a
//! [`CommandExecutor`](rma_core::executor::CommandExecutor), look at registered memory, and are
//! told the time. Nothing that others can write is believed.
//!
//! # Words
//!
//! A *channel* has one direction: a sender, a receiver. The *head* is up to where its sender has
//! used a ring up, the *tail* up to where its receiver has processed it. A *bell* is a word by
//! which a message says that it is there. A *publishing* write (not in the paper) is one whose last
//! word lands last: [`Publish::Ordered`](rma_core::executor::Publish::Ordered). A message is
//! *accepted* when its sender knows that it is in the receiver's memory, and *processed* when the
//! tail has passed it.

#![forbid(unsafe_code)]

mod flow;
pub mod link;
pub mod ring;
pub mod ring_buffer;
pub mod sender;

pub use link::Link;
pub use sender::{SendError, SendHandle, SendState};
