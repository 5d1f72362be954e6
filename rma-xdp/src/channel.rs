//! Message channels over this host and its ops: the twenty kinds of [`rma_channel`], which says
//! which suits whom. Ends are opened at a host; [`Channels`] waits for them and
//! [`AsyncChannels`] has futures.

#[doc(inline)]
pub use rma_app::{AsyncChannels, ChannelError, Channels, Received, Rx, SendBuf, Tx};
#[doc(inline)]
pub use rma_channel::*;
