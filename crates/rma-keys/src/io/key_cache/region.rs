//! A region by name, and waiting for its keys.

use core::{
    fmt,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    sync::Arc,
    task::Wake,
    thread::{self, Thread},
};

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    op::OpType,
    process::Forked,
    time::Instant,
};

use super::{KeyCache, state::Waiter};
use crate::{
    cache::RingId,
    identity::SpiffeId,
    io::client::FetchError,
    name::RegionName,
    ring::{GiveUp, KeyedGrant, Standing},
};

/// The reason why there is no key of a region.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoKey {
    /// There is none, and the service has said why.
    #[error("no key of {region} from {service}: {why}{}", addresses.shown(*why))]
    GaveUp {
        /// The region.
        region: RegionName,
        /// The service of the region.
        service: SpiffeId,
        /// The reason.
        why: GiveUp,
        /// The addresses that the service has compared.
        addresses: Box<Addresses>,
    },
    /// None has come in time.
    #[error("no key of {region} in {} ms: {why}", waited.as_millis())]
    Late {
        /// The region.
        region: RegionName,
        /// The service of the region.
        service: SpiffeId,
        /// How long it was waited for.
        waited: Duration,
        /// The hindrance of the service's answers, as far as is known.
        why: Box<FetchError>,
    },
    /// The cache is that of the process which this one was forked from.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The addresses that a service compares, as this machine sees them.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Those that keys were asked for.
    pub asked_for: LocalAddresses,
    /// The address that the connection to the service comes from, if there was one.
    pub connected_from: Option<HostAddr>,
}

impl Addresses {
    /// Returns the sentence for a person about the addresses: of a denial a service says no more
    /// than that.
    const fn shown(&self, why: GiveUp) -> Shown<'_> {
        Shown(self, why)
    }
}

struct Shown<'a>(&'a Addresses, GiveUp);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Addresses { asked_for, connected_from: Some(from) }, GiveUp::Denied) = self else {
            return Ok(());
        };
        f.write_str(" (keys were asked for ")?;
        for (index, address) in asked_for.iter().enumerate() {
            write!(f, "{}{address}", if index > 0 { " and " } else { "" })?;
        }
        write!(f, " over a connection from {from}")?;
        if asked_for.iter().all(|it| it != *from) {
            f.write_str(
                ": a service gives keys to the connection's own address alone, unless its rule lists others as `initiators`",
            )?;
        }
        f.write_str(")")
    }
}

/// A region of a service, by its name, for some types of op. Clones are the same; its keys are no
/// longer renewed when the last is gone.
#[derive(Clone, Debug)]
pub struct KeyedRegion {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    grants: KeyCache,
    ring: RingId,
    name: RegionName,
    service: SpiffeId,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The one error is that it is the parent's, which has it still.
        let _ = self.grants.with_cache(|cache, _| cache.release(self.ring));
    }
}

impl KeyedRegion {
    pub(super) fn new(grants: KeyCache, ring: RingId, name: RegionName, service: SpiffeId) -> Self {
        Self { held: Arc::new(Held { grants, ring, name, service }) }
    }

    /// Its name at the service.
    #[must_use]
    pub fn name(&self) -> &RegionName {
        &self.held.name
    }

    /// The identity of the service.
    #[must_use]
    pub fn service(&self) -> &SpiffeId {
        &self.held.service
    }

    /// Returns the cache's ring that holds its keys.
    #[must_use]
    pub fn ring(&self) -> RingId {
        self.held.ring
    }

    /// The cache that has its keys.
    #[must_use]
    pub fn key_cache(&self) -> &KeyCache {
        &self.held.grants
    }

    /// The grant to go by just now, if there is a key that was not refused. Nothing is fetched for
    /// that: [`KeyedRegion::ready`] does. In a child that was forked there is none.
    #[must_use]
    pub fn grant(&self, op_type: OpType) -> Option<KeyedGrant> {
        let Held { grants, ring, .. } = &*self.held;
        grants.with_cache(|cache, now| cache.grant(now, *ring, op_type)).ok()?
    }

    /// Waits until there is a key, or it is known that there is none; for no longer than `most`,
    /// from when it is first polled.
    pub fn ready(&self, most: Duration) -> Ready {
        Ready { region: self.clone(), most, began: None, ticket: None }
    }

    /// Blocks this thread until there is a grant for such ops: for those that poll afterwards.
    ///
    /// # Errors
    /// If there is none, or none has come in time.
    pub fn wait_grant(&self, op_type: OpType, most: Duration) -> Result<KeyedGrant, NoKey> {
        park_on(self.ready(most))?;
        self.grant(op_type).ok_or_else(|| self.gave_up(GiveUp::Denied))
    }

    /// The error of a region of which the cache has given up.
    #[must_use]
    pub fn gave_up(&self, why: GiveUp) -> NoKey {
        let Held { grants, ring, name, service } = &*self.held;
        let addresses = match grants.addresses(*ring) {
            Ok(addresses) => addresses.into(),
            Err(forked) => return forked.into(),
        };
        let (region, service) = (name.clone(), service.clone());
        NoKey::GaveUp { region, service, why, addresses }
    }

    /// The error of a region whose keys have not come after `waited`.
    #[must_use]
    pub fn late(&self, waited: Duration) -> NoKey {
        self.held.grants.late(self.held.ring, waited)
    }
}

/// Waits for a key of a region: [`KeyedRegion::ready`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Ready {
    region: KeyedRegion,
    most: Duration,
    began: Option<Instant>,
    ticket: Option<u64>,
}

impl Future for Ready {
    type Output = Result<(), NoKey>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (ring, most) = (this.region.held.ring, this.most);
        let (began, ticket) = (&mut this.began, &mut this.ticket);
        let mut unused = None;
        let stands = this.region.held.grants.owner.shared.with(|state, now| {
            let began = *began.get_or_insert(now);
            let until = began + most;
            match state.cache.standing(now, ring) {
                Standing::Waiting if now < until && !state.has_ended => {
                    let waker = Some(context.waker().clone());
                    let (new, before) = state.wait(*ticket, Waiter { ring, until, waker });
                    (*ticket, unused) = (Some(new), before);
                    None
                }
                standing => Some((standing, now.since(began))),
            }
        })?;
        drop(unused);
        match stands {
            None => Poll::Pending,
            Some((Standing::Ready, _)) => Poll::Ready(Ok(())),
            Some((Standing::GaveUp(why), _)) => Poll::Ready(Err(this.region.gave_up(why))),
            Some((Standing::Waiting, waited)) => Poll::Ready(Err(this.region.late(waited))),
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            // The one error is that it is the parent's.
            let Ok(mut state) = self.region.held.grants.owner.shared.lock() else { return };
            let waiter = state.stop_waiting(ticket);
            // The lock first: with its last waker, a task may go that has a region.
            drop(state);
            drop(waiter);
        }
    }
}

/// The smallest executor: it parks the thread.
fn park_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
