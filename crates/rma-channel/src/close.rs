//! Closing an end: it gives back what it has registered at its host (not in the paper).
//!
//! A host has so many regions, and a region that nobody deregisters stays: so each end knows all
//! that was registered for it, by its opening and by whom it has let in since, and gives it back
//! when it is closed. What an opening that fails has registered is given back at once.
//!
//! # What is under way
//!
//! *Of others*: their ops on what was given back end with REMOTE_AUTHENTICATION_FAILURE, by which
//! they know that it was not applied; so the other end of the channel is broken. What has come and
//! was not received is lost.
//!
//! *Of this end*: the NIC looks a region's name up each time that it wants bytes of it, and the
//! name means nothing any longer. So nothing of it is sent or stored from then on, though its
//! memory is there as long as somebody has a handle to it. An op that was to send from there, or to
//! load into it, ends with TIMEOUT, as one whose answer was lost; one that the NIC has not taken
//! yet with INVALID_COMMAND. Whoever must know what became of a message waits for that before it
//! closes the end. Ops from and to memory of the application's go on.
//!
//! In a [`Link`](crate::Link) remains, as of ends that are dropped, what became of their calls.

use std::sync::Arc;

use rma_core::{
    crypto::RegionKey,
    grant::Grant,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

use crate::registrar::{Peer, Registrar};

/// Whoever has registered something at its host, and gives it back: an end of a channel, or a half
/// of which there was to be one.
pub trait Close {
    /// Returns what it has registered. A caller that gives it back must not use the end afterwards.
    fn registered(&mut self) -> &mut Registered;

    /// Gives back what it has registered, at the host where that was.
    ///
    /// # Errors
    /// If the host refuses: it is another one, or its engine is gone. (Who wants to try again
    /// keeps the end, and asks [`Close::registered`].)
    fn close<R: Registrar>(mut self, registrar: &mut R) -> Result<(), R::Error>
    where
        Self: Sized,
    {
        self.registered().give_back(registrar)
    }
}

/// Regions and receive queues that were registered for one end, in this order.
#[derive(Debug, Default)]
#[must_use = "what is not given back stays registered as long as its host is there"]
pub struct Registered(Vec<RegisteredRegion>);

impl Registered {
    /// How many there are: as many regions of the host, by which its limits count.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// Gives all of it back, the last one first: what makes events in a queue before the queue.
    ///
    /// # Errors
    /// As [`Close::close`]. What was not given back is still here.
    pub fn give_back<R: Registrar>(&mut self, registrar: &mut R) -> Result<(), R::Error> {
        while let Some(region) = self.0.last() {
            registrar.deregister(region)?;
            self.0.pop();
        }
        Ok(())
    }

    /// Keeps what `open` registers. If that fails it is given back, as far as the host lets it.
    pub(crate) fn keep<R: Registrar, T, E>(
        &mut self,
        registrar: &mut R,
        open: impl FnOnce(&mut Recorder<'_, R>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut recorder = Recorder { registrar, registered: Self::default() };
        let opened = open(&mut recorder);
        let Recorder { registrar, mut registered } = recorder;
        match opened {
            Ok(_) => self.0.append(&mut registered.0),
            // The cause of the failure says more than the reason why nothing can be given back.
            Err(_) => drop(registered.give_back(registrar)),
        }
        opened
    }
}

/// An end that knows all that `open` has registered for it.
pub(crate) fn opened<R: Registrar, T: Close, E>(
    registrar: &mut R,
    open: impl FnOnce(&mut Recorder<'_, R>) -> Result<T, E>,
) -> Result<T, E> {
    opened_with(registrar, |registrar| Ok((open(registrar)?, ()))).map(|(end, ())| end)
}

/// The same, with the terms for the other end.
pub(crate) fn opened_with<R: Registrar, T: Close, U, E>(
    registrar: &mut R,
    open: impl FnOnce(&mut Recorder<'_, R>) -> Result<(T, U), E>,
) -> Result<(T, U), E> {
    let mut registered = Registered::default();
    let (mut end, told) = registered.keep(registrar, open)?;
    *end.registered() = registered;
    Ok((end, told))
}

/// A registrar, and what it has registered.
#[derive(Debug)]
pub(crate) struct Recorder<'a, R> {
    registrar: &'a mut R,
    registered: Registered,
}

impl<R: Registrar> Registrar for Recorder<'_, R> {
    type Error = R::Error;

    fn peer(&self) -> Peer {
        self.registrar.peer()
    }

    fn key(&mut self) -> Result<RegionKey, R::Error> {
        self.registrar.key()
    }

    fn register(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, R::Error> {
        let region = self.registrar.register(memory, key, permissions, events)?;
        self.registered.0.push(region.clone());
        Ok(region)
    }

    fn receive_queue(
        &mut self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, R::Error> {
        let queue = self.registrar.receive_queue(layout, permissions)?;
        self.registered.0.push(queue.region().clone());
        Ok(queue)
    }

    fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), R::Error> {
        self.registrar.deregister(region)?;
        self.registered.0.retain(|it| it.id() != region.id());
        Ok(())
    }

    fn grant(
        &mut self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, R::Error> {
        self.registrar.grant(region, peer, op_type)
    }

    fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), R::Error> {
        self.registrar.rekey(region, key)
    }
}
