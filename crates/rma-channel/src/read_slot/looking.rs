//! Receivers that look for messages by themselves, of senders that issue nothing (§4.5).

use rma_core::{gate::Gate, op::OpType};

use super::{Joined, receiver::SlotReceiver};
use crate::{
    close::opened,
    into::{Finds, IntoReceiver},
    read_ring::{ReaderConfig, receiver::Pace},
    table::Kind,
    terms::{OpenError, Terms},
};

/// A way to find messages by looking for them.
pub(crate) trait Looks: Finds + Sized {
    /// The kind of channel.
    const KIND: Kind;

    /// The op types that grants are for: its seat, messages, and bells elsewhere.
    const GRANTS: &[OpType];

    fn open(host: &dyn Gate, joined: &Joined, pace: Pace) -> Result<Self, OpenError>;
}

fn join<F: Looks>(
    host: &dyn Gate,
    config: ReaderConfig,
    terms: &Terms,
) -> Result<(Joined, IntoReceiver<F>), OpenError> {
    let joined = super::check(host, F::KIND, config.name, F::GRANTS, terms)?;
    let finds = F::open(host, &joined, Pace::new(config.every))?;
    let into = joined.clone().into_receiver(host, finds)?;
    Ok((joined, into))
}

#[expect(private_bounds, reason = "both ways to look are in this module's parent")]
impl<F: Looks> IntoReceiver<F> {
    /// A receiver's end, of what its sender has told.
    ///
    /// # Errors
    /// If the terms are not for this receiver, or the host has no room.
    pub fn join(host: &dyn Gate, config: ReaderConfig, terms: &Terms) -> Result<Self, OpenError> {
        opened(host, |host| Ok(join(host, config, terms)?.1))
    }
}

#[expect(private_bounds, reason = "both ways to look are in this module's parent")]
impl<F: Looks> SlotReceiver<F> {
    /// A receiver's end, of what its sender has told.
    ///
    /// # Errors
    /// As [`IntoReceiver::join`].
    pub fn join(host: &dyn Gate, config: ReaderConfig, terms: &Terms) -> Result<Self, OpenError> {
        opened(host, |host| {
            let (joined, into) = join(host, config, terms)?;
            Self::new(host, &joined, into)
        })
    }
}
