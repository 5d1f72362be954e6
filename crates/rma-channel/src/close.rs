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

use core::cell::RefCell;
use std::sync::Arc;

use rma_core::{
    addr::HostAddr,
    crypto::RegionKey,
    gate::{Gate, Identity, Peer, Refused},
    grant::Grant,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

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
    fn close(mut self, host: &dyn Gate) -> Result<(), Refused>
    where
        Self: Sized,
    {
        self.registered().give_back(host)
    }
}

impl<T: Close + ?Sized> Close for Box<T> {
    fn registered(&mut self) -> &mut Registered {
        (**self).registered()
    }
}

/// Has an end give back what its field `registered` keeps.
macro_rules! gives_back {
    ($end:ident $(<$of:ident: $bound:path>)?) => {
        impl$(<$of: $bound>)? $crate::close::Close for $end$(<$of>)? {
            fn registered(&mut self) -> &mut $crate::close::Registered {
                &mut self.registered
            }
        }
    };
}
pub(crate) use gives_back;

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
    pub fn give_back(&mut self, host: &dyn Gate) -> Result<(), Refused> {
        while let Some(region) = self.0.last() {
            host.deregister(region)?;
            self.0.pop();
        }
        Ok(())
    }

    /// Keeps what `open` registers. If that fails it is given back, as far as the host lets it.
    pub(crate) fn keep<T, E>(
        &mut self,
        host: &dyn Gate,
        open: impl FnOnce(&dyn Gate) -> Result<T, E>,
    ) -> Result<T, E> {
        let recorder = Recorder { host, registered: RefCell::default() };
        let opened = open(&recorder);
        let mut registered = recorder.registered.into_inner();
        match opened {
            Ok(_) => self.0.append(&mut registered.0),
            // The cause of the failure says more than the reason why nothing can be given back.
            Err(_) => drop(registered.give_back(host)),
        }
        opened
    }
}

/// An end that knows all that `open` has registered for it.
pub(crate) fn opened<T: Close, E>(
    host: &dyn Gate,
    open: impl FnOnce(&dyn Gate) -> Result<T, E>,
) -> Result<T, E> {
    opened_with(host, |host| Ok((open(host)?, ()))).map(|(end, ())| end)
}

/// The same, with the terms for the other end.
pub(crate) fn opened_with<T: Close, U, E>(
    host: &dyn Gate,
    open: impl FnOnce(&dyn Gate) -> Result<(T, U), E>,
) -> Result<(T, U), E> {
    let mut registered = Registered::default();
    let (mut end, told) = registered.keep(host, open)?;
    *end.registered() = registered;
    Ok((end, told))
}

/// A host, and what it has registered.
struct Recorder<'a> {
    host: &'a dyn Gate,
    registered: RefCell<Registered>,
}

impl Gate for Recorder<'_> {
    fn identity(&self) -> Identity {
        self.host.identity()
    }

    fn key(&self) -> Result<RegionKey, Refused> {
        self.host.key()
    }

    fn register(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        let region = self.host.register(memory, key, permissions, events)?;
        self.registered.borrow_mut().0.push(region.clone());
        Ok(region)
    }

    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        let queue = self.host.receive_queue(layout, permissions)?;
        self.registered.borrow_mut().0.push(queue.region().clone());
        Ok(queue)
    }

    fn deregister(&self, region: &RegisteredRegion) -> Result<(), Refused> {
        self.host.deregister(region)?;
        self.registered.borrow_mut().0.retain(|it| it.id() != region.id());
        Ok(())
    }

    fn grant(
        &self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        self.host.grant(region, peer, op_type)
    }

    fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        self.host.rekey(region, key)
    }

    fn prepare(&self, initiator: HostAddr) {
        self.host.prepare(initiator);
    }
}
