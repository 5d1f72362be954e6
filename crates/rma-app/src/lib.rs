//! The application's end of 1RMA: what a program links that issues ops and does not run the engine
//! that serves them.
//!
//! An application has a [`Portal`], and over it, if it likes, [`Transfers`] of any
//! size or a [`Client`] for futures. It issues, polls and waits. The engine is elsewhere, on
//! another thread or later in another process, and all that joins the two is memory that both see
//! and a file descriptor to be woken by.
//!
//! This crate opens no device, runs no engine, registers no memory, and links nothing that does: no
//! BPF, no netlink, no AF_XDP. Portals are made by others: see [`home`]. It has no `unsafe`, and
//! its only system calls are those that read the clock, sleep and wake.
//!
//! Applications find all of this in the crate `rma-xdp`, beside the host that makes portals. The
//! examples here use it from there, so `rma-xdp` is what they are tested with.
//!
//! | module | what it is |
//! |---|---|
//! | [`portal`] | [`Portal`]: ops of up to 4 KiB, and waiting for their completions |
//! | [`transfers`] | [`Transfers`]: transfers of any size, polled or waited for |
//! | [`client`] | [`Client`]: the same as futures, messages and atomics among them |
//! | [`channels`] | [`Channels`]: message channels, waited for; [`AsyncChannels`]: as futures |
//! | [`star`] | [`StarVerbs`](star::StarVerbs): queue pairs of StaR, polled or waited for |
//! | [`buffer`] | [`BufferPool`]: memory that is lent to the NIC |
//! | [`cells`] | [`Cells`]: values that are read one-sided while they change |
//! | [`gauges`] | [`ExecutorGauges`]: what executors tell of themselves |
//! | [`wait`], [`clock`], [`idle`], [`event_fd`], [`sleep`] | the time, and how a thread waits |
//! | [`home`], [`lease`], [`life`] | what a maker of portals needs |

#![forbid(unsafe_code)]

pub mod buffer;
pub mod cells;
#[cfg(feature = "channel")]
pub mod channels;
pub mod client;
pub mod clock;
pub mod error;
pub mod event_fd;
pub mod gauges;
pub mod home;
pub mod idle;
pub mod lease;
pub mod life;
mod options;
mod polling;
pub mod portal;
#[cfg(test)]
mod scripted;
mod settlement;
pub mod sleep;
#[cfg(feature = "star")]
pub mod star;
pub mod transfers;
pub mod wait;

pub use buffer::{Acquire, BufPiece, BufferPool, BufferPoolError, RegionBuf};
pub use cells::{CellError, CellLayout, CellLens, CellValue, Cells};
#[cfg(feature = "channel")]
pub use channels::{
    ChannelError, Channels,
    futures::{AsyncChannels, Received, Rx, SendBuf, Tx},
};
pub use client::{Client, Message, Op, Poller, Receiver, Recv, Transfer};
pub use clock::TscClock;
pub use error::{StartError, TransferError, WaitError};
pub use gauges::ExecutorGauges;
pub use idle::IdlePolicy;
pub use lease::PortalLease;
pub use options::TransferOptions;
pub use portal::Portal;
pub use settlement::Settlement;
pub use transfers::Transfers;
