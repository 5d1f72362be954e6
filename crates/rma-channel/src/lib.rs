//! Message channels over one-sided operations, after "Efficient RDMA Communication Protocols"
//! (*the paper*; section numbers alone are its).
//!
//! The paper sorts every known way to move messages over remote memory into six families and twenty
//! channels ([`table::Kind`]): there is no best one, so [`choose`](mod@choose) leads from needs to
//! kinds, as `docs/CHANNELS.md` does in words. Each channel here has a module of its own in that of
//! its family, with two ends, which are opened at two hosts ([`Gate`](rma_core::gate::Gate)), told
//! what the other end has to say ([`Terms`]), and then issue through a [`Link`]. What ends do is
//! the same for all: [`Sender`] and [`Receiver`], after the paper's API (§6).
//!
//! A channel has one direction; [`duplex`](mod@duplex) makes two of them acknowledge each other.
//!
//! Rings are built on [`ring`]: circular buffers and the records in them.
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

mod arrivals;
pub mod choose;
pub mod close;
pub mod duplex;
mod epochs;
mod flow;
mod image;
mod into;
pub mod link;
pub mod numbered;
pub mod open;
pub mod read_ring;
pub mod read_slot;
pub mod readers;
mod reading;
pub mod receiver;
pub mod ring;
pub mod ring_buffer;
pub mod send_recv;
pub mod sender;
mod sending;
pub mod shared_ring;
pub mod table;
pub mod terms;
#[cfg(test)]
mod tests;
pub mod write_slot;

pub use close::{Close, Registered};
pub use duplex::{DuplexReceiver, DuplexSender, duplex};
pub use into::IntoReceiver;
pub use link::Link;
pub use open::{AnyEnd, AnyInto, AnyReceiver, AnySender, ChannelConfig, KindError};
pub use receiver::{
    Blocking, Claim, Claims, Incoming, Message, ReceiveError, ReceiveHandle, ReceiveInto,
    ReceiveState, Receiver, RecoverError,
};
pub use rma_core::gate::Peer;
pub use sender::{Outgoing, SendError, SendHandle, SendRegion, SendState, Sender};
pub use table::Kind;
pub use terms::{Half, OpenError, Terms, TermsError};
