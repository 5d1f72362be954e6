//! A service whose events are written before its replies go: no record, no grant.
//!
//! What an application's own RPC, or [`crate::io`], has messages answered by, and what rotates keys
//! goes through as well, so that its events stand in the same log in their order.

use rma_core::time::Instant;

use crate::{
    audit::{Event, log::Log},
    peer::Peer,
    policy::Authorizer,
    secret::Octets,
    service::{Handled, Service},
    time::Now,
};

/// A service with its log, if it has one.
#[derive(Debug)]
pub struct Recorded<A> {
    service: Service<A>,
    log: Option<Log>,
}

impl<A: Authorizer> Recorded<A> {
    /// Writes what `service` does to `log`.
    #[must_use]
    pub const fn new(service: Service<A>, log: Log) -> Self {
        Self { service, log: Some(log) }
    }

    /// A service whose owner wants no log: what it gives is nowhere to be read afterwards.
    #[must_use]
    pub const fn without_log(service: Service<A>) -> Self {
        Self { service, log: None }
    }

    /// The service whose events are written.
    #[must_use]
    pub const fn service(&self) -> &Service<A> {
        &self.service
    }

    /// Returns the log that they are written to.
    #[must_use]
    pub const fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    //= 1rma#4.2-rotation-is-logged
    /// Answers a message: what is given is written first, or it is not given.
    pub fn handle(&mut self, now: Now, peer: &Peer, message: &[u8]) -> Octets {
        self.handle_and_see(now, peer, message, |_| ())
    }

    /// [`Self::handle`], which also shows each event of a reply that is sent.
    pub fn handle_and_see(
        &mut self,
        now: Now,
        peer: &Peer,
        message: &[u8],
        see: impl FnMut(&Event),
    ) -> Octets {
        let Handled { reply, events } = self.service.handle(now, peer, message);
        match self.log.as_mut().map_or(Ok(()), |log| log.write(now.boot, &events)) {
            Ok(()) => {
                events.iter().for_each(see);
                reply
            }
            Err(_) => self.service.unrecorded(message),
        }
    }

    /// Changes the service, and writes what that says. The change stands even if it cannot be
    /// written, as an owner's rotation must not wait for a disk; the log counts it as lost.
    pub fn change<T>(
        &mut self,
        now: Now,
        act: impl FnOnce(&mut Service<A>) -> (T, Vec<Event>),
    ) -> T {
        let (value, events) = act(&mut self.service);
        if let Some(log) = &mut self.log {
            _ = log.write(now.boot, &events);
        }
        value
    }

    /// Does what must be done by now, and says when it wants to be asked again.
    pub fn poll(&mut self, now: Now) -> Option<Instant> {
        let log = self.log.as_mut()?;
        log.poll(now.boot);
        log.poll_timeout()
    }
}
