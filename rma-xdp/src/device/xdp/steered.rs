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
use crate::device::{engines::Engines, net::PathTable};

/// The sockets of an interface, one for each receive queue: what comes over its wire for the UDP
/// ports goes to them, past the kernel's network stack. For who writes and reads packets himself,
/// with their headers; an [`XdpBackend`](super::XdpBackend) does so for frames.
///
/// Dropped, they leave the interface as it was.
#[derive(Debug)]
pub struct SteeredSockets {
    share: Box<Share>,
    counters: Arc<Counters>,
}

impl SteeredSockets {
    /// Opens the interface, whose MTU is `mtu`, as [`XdpBackend::open`](super::XdpBackend::open)
    /// does. Must be called in the network namespace of the interface.
    ///
    /// # Errors
    /// An [`XdpError`] for each cause, with the next step. Nothing stays attached or bound.
    pub fn open(config: &XdpConfig, mtu: u32) -> Result<Self, XdpError> {
        let config = XdpConfig { engines: Engines::One, ..config.clone() };
        config.check()?;
        let counters = Arc::default();
        let (paths, _) = PathTable::new(mtu);
        let attachment = Arc::new(Attachment::open(&config, &paths, Learnt::default())?);
        let mut shares = Share::open_each(&attachment, &config, &[Some(&counters)])?;
        let share = shares.pop().flatten().expect("one for the engine");
        Ok(Self { share, counters })
    }

    /// Describes the attachment, and what works less well than it could.
    #[must_use]
    pub fn describe(&self) -> &Description {
        self.share.attachment.description()
    }

    /// Returns the sockets' counters, for any thread to read.
    #[must_use]
    pub const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The socket of a receive queue. That of the first one transmits, too. `None` if there is no
    /// such queue.
    pub fn socket_mut(&mut self, queue: usize) -> Option<&mut Socket> {
        self.share.queues.get_mut(queue).map(|queue| &mut queue.socket)
    }
}
