//! AF_XDP sockets that the steering program fills, with nothing over them: [`SteeredSockets`].

use std::sync::Arc;

use super::{
    attachment::{Attachment, Learnt},
    config::XdpConfig,
    counters::Counters,
    description::Description,
    error::XdpError,
    share::Share,
    socket::Socket,
};
use crate::device::net::PathTable;

/// The sockets of an interface, one for each receive queue: what comes over its wire for the UDP
/// ports goes to them, past the kernel's network stack. For who writes and reads packets himself,
/// with their headers; an [`XdpBackend`](super::XdpBackend) does so for frames.
///
/// Dropped, they leave the interface as it was.
#[derive(Debug)]
pub struct SteeredSockets {
    /// Of each engine's.
    shares: Box<[Box<Share>]>,
    counters: Arc<Counters>,
}

impl SteeredSockets {
    /// Opens the interface, whose MTU is `mtu`, as [`XdpBackend::open`](super::XdpBackend::open)
    /// does. Must be called in the network namespace of the interface.
    ///
    /// # Errors
    /// An [`XdpError`] for each cause, with the next step. Nothing stays attached or bound.
    pub fn open(config: &XdpConfig, mtu: u32) -> Result<Self, XdpError> {
        config.check()?;
        let counters = Arc::default();
        let (paths, _) = PathTable::new(mtu);
        let attachment = Arc::new(Attachment::open(config, &paths, Learnt::default())?);
        let each = vec![Some(&counters); attachment.engines as usize];
        let shares = Share::open_each(&attachment, config, &each)?;
        Ok(Self { shares: shares.into_iter().flatten().collect(), counters })
    }

    /// Describes the attachment, and what works less well than it could.
    #[must_use]
    pub fn describe(&self) -> &Description {
        self.shares[0].attachment.description()
    }

    /// Returns the sockets' counters, for any thread to read.
    #[must_use]
    pub const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The socket of a receive queue. As many of the first ones transmit, too, as the configuration
    /// has engines. `None` if there is no such queue.
    pub fn socket_mut(&mut self, queue: usize) -> Option<&mut Socket> {
        let engines = self.shares.len();
        let queue = self.shares[queue % engines].queues.get_mut(queue / engines)?;
        Some(&mut queue.socket)
    }
}
