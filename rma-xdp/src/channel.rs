//! Message channels over this host and its ops: the twenty kinds of [`rma_channel`], which says
//! which suits whom. A [`HostRegistrar`] opens ends of them; [`Channels`] waits for them and
//! [`AsyncChannels`] has futures.

#[doc(inline)]
pub use rma_app::{AsyncChannels, ChannelError, Channels, Received, Rx, SendBuf, Tx};
#[doc(inline)]
pub use rma_channel::*;

pub use crate::host::registrar::HostRegistrar;
