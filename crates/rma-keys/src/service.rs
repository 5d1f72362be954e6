//! The answers to a peer that asks: the server's side of the paper's out-of-band RPC (§3.1, §4.2),
//! without I/O and without a clock.
//!
//! [`Service::handle`] takes the octets of one message from a peer that a transport has
//! authenticated, and gives the octets of the reply, with the events for the audit log. The events
//! must be written first: if they cannot be, [`Service::unrecorded`] is what is sent instead.
//! [`Service::answer`] does the same for requests that came in another form.
//!
//! Invariants: no key is given for longer than its epoch or its rule allows; what is forbidden and
//! what does not exist are answered alike; nothing is remembered of who was given what, but for how
//! often each has asked.

mod given;
mod limiter;

use core::{num::NonZeroU32, time::Duration};

use rma_core::time::Instant;

pub use limiter::Rate;

use crate::{
    audit::{Asked, Denial, Event, What},
    catalog::{Catalog, CatalogError, Region, Term},
    epoch::{Epoch, Life},
    jitter::Jitter,
    limits::{REFRESH_MIN, RETRY_MAX},
    message::{
        self,
        malformed::Malformed,
        reply::{Answer, Refusal, Reply},
        request::{Request, Wanted},
    },
    name::RegionName,
    peer::Peer,
    policy::{Ask, Authorizer, Decision, Policy},
    secret::{Octets, RegionSecret},
    time::Now,
};
use given::Given;
use limiter::Limiter;

/// The settings of a service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    /// The rate that one client may ask at, by identity and address. Default: 1,000 regions a
    /// second, and a burst of 10,000.
    pub of_client: Rate,
    /// The rate that all clients together may ask at. Default: 20,000 regions a second, in bursts
    /// of as many.
    pub of_all: Rate,
    /// How many clients are told apart. A further one takes the place of the one that has asked
    /// nothing for longest, once that may ask as much as at first. Default: 16,384.
    pub clients_max: usize,
    /// The seed of random waiting times. Services with the same one make their clients come at the
    /// same times.
    pub seed: u64,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        let rate = |per_second, burst| Rate {
            per_second: NonZeroU32::new(per_second).expect("not zero"),
            burst,
        };
        Self {
            of_client: rate(1_000, 10_000),
            of_all: rate(20_000, 20_000),
            clients_max: 16_384,
            seed: 0,
        }
    }
}

/// The counters of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounters {
    /// Messages that were handled, whatever became of them.
    pub messages: u64,
    /// Regions whose keys were given.
    pub granted: u64,
    /// Regions whose latest keys the client had.
    pub current: u64,
    /// Regions that were refused.
    pub denied: u64,
    /// Regions that the client's host has no address for.
    pub no_address_of_family: u64,
    /// Requests that were turned away, as too much was asked.
    pub not_now: u64,
    /// Those of them that no line of the audit log tells of: who asked has not come back, and was
    /// forgotten when others came.
    pub untold: u64,
    /// Messages that were none.
    pub malformed: u64,
    /// Messages of another version.
    pub other_version: u64,
    /// Requests under a certificate that had ended.
    pub certificate_ended: u64,
    /// Regions that were given although their epoch had ended, as their rotator is late.
    pub late_epochs: u64,
}

/// The reply to a message, and what it says to the audit log.
#[derive(Debug)]
pub struct Handled<R> {
    /// The reply to send.
    pub reply: R,
    /// The events to write before it is sent.
    pub events: Vec<Event>,
}

/// The result of loading a new policy.
#[derive(Debug)]
pub struct Reloaded {
    /// The regions that it takes something away of. Each must be rotated now, with
    /// [`Service::replace`].
    pub withdrawn: Vec<RegionName>,
    /// The event to write.
    pub event: Event,
}

/// Gives keys out.
#[derive(Debug)]
pub struct Service<A> {
    catalog: Catalog,
    authorizer: A,
    limiter: Limiter,
    jitter: Jitter,
    counters: ServiceCounters,
    /// The number of the last event.
    sequence: u64,
}

impl<A: Authorizer> Service<A> {
    /// A service without regions. `life` is 8 octets of a secure random source, drawn anew each
    /// time that it starts.
    #[must_use]
    pub fn new(life: Life, authorizer: A, config: ServiceConfig) -> Self {
        let ServiceConfig { of_client, of_all, clients_max, seed } = config;
        Self {
            catalog: Catalog::new(life),
            authorizer,
            limiter: Limiter::new(of_client, of_all, clients_max),
            jitter: Jitter(seed),
            counters: ServiceCounters::default(),
            sequence: 0,
        }
    }

    /// Its regions and their epochs.
    #[must_use]
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the authorizer that decides.
    #[must_use]
    pub const fn authorizer(&self) -> &A {
        &self.authorizer
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> ServiceCounters {
        ServiceCounters { untold: self.limiter.untold(), ..self.counters }
    }

    /// Handles the octets of one message, and gives those of the reply, under the same number.
    pub fn handle(&mut self, now: Now, peer: &Peer, message: &[u8]) -> Handled<Octets> {
        let Handled { reply, events } = match Request::decode(message) {
            Ok(request) => self.answer(now, peer, &request),
            Err(why) => self.refuse_malformed(now, peer, why),
        };
        Handled { reply: reply.encode(message::number(message)), events }
    }

    //= 1rma#4.2-bootstrap
    /// Answers one request. Its limits are those of what was decoded: a request that an application
    /// has made up itself is to keep them.
    pub fn answer(&mut self, now: Now, peer: &Peer, request: &Request) -> Handled<Reply> {
        self.counters.messages += 1;
        let mut events = Vec::new();
        if let Err(refused) = self.admit(now, peer, request.regions.len(), &mut events) {
            return Handled { reply: Reply::Refused(refused), events };
        }
        let answers = request.regions.iter().map(|wanted| {
            let (answer, what) = self.answer_one(now, peer, request, wanted);
            events.push(self.event(now, Some(peer), what));
            answer
        });
        Handled { reply: Reply::Answers(answers.collect()), events }
    }

    /// The reply to `message` in place of one whose events could not be written.
    #[must_use]
    pub fn unrecorded(&mut self, message: &[u8]) -> Octets {
        self.counters.not_now += 1;
        let retry = Duration::from_secs(1) + self.jitter.part_of(Duration::from_secs(1));
        Reply::Refused(Refusal::NotNow { retry }).encode(message::number(message))
    }

    fn refuse_malformed(&mut self, now: Now, peer: &Peer, why: Malformed) -> Handled<Reply> {
        self.counters.messages += 1;
        let mut events = Vec::new();
        if let Err(refused) = self.admit(now, peer, 1, &mut events) {
            return Handled { reply: Reply::Refused(refused), events };
        }
        let refusal = if let Malformed::Version { .. } = why {
            self.counters.other_version += 1;
            Refusal::Version
        } else {
            self.counters.malformed += 1;
            let field = why.field().map(|it| it.to_string()).unwrap_or_default();
            Refusal::Wrong { field: field.into() }
        };
        events.push(self.event(now, Some(peer), What::Malformed { why }));
        Handled { reply: Reply::Refused(refusal), events }
    }

    /// Whether the peer may ask about so many regions at all.
    fn admit(
        &mut self,
        now: Now,
        peer: &Peer,
        regions: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        if let Err(away) = self.limiter.take(now.boot, peer, regions as u64) {
            self.counters.not_now += 1;
            let tell = away.tell.map(|requests| What::NotNow { requests });
            events.extend(tell.map(|what| self.event(now, Some(peer), what)));
            // Those who are turned away together come back apart.
            let retry = away.wait + self.jitter.part_of(away.wait.max(REFRESH_MIN));
            return Err(Refusal::NotNow { retry: retry.min(RETRY_MAX) });
        }
        if peer.not_after <= now.wall {
            self.counters.certificate_ended += 1;
            let what = What::CertificateEnded { not_after: peer.not_after };
            events.push(self.event(now, Some(peer), what));
            return Err(Refusal::CertificateEnded { seen: now.wall });
        }
        Ok(())
    }

    fn answer_one(
        &mut self,
        now: Now,
        peer: &Peer,
        request: &Request,
        wanted: &Wanted,
    ) -> (Answer, What) {
        let Wanted { name, ops, have } = wanted;
        let asked = Asked { region: name.clone(), ops: *ops, pid: request.pid };
        let ask = |initiator| Ask { peer, region: name, ops: *ops, initiator };
        let decide = |initiator| self.authorizer.decide(&ask(initiator), now.wall);
        let initiators = request.initiators;
        let may_have = || decide(None) != Decision::Denied;
        let Some(entry) = self.catalog.find(name) else {
            // Asked all the same, so that it takes about as long as if there were one.
            for initiator in initiators.iter() {
                let _ = decide(Some(initiator));
            }
            let _ = may_have();
            self.counters.denied += 1;
            let why = Denial::NoRegion;
            return (Answer::Denied, What::Denied { asked, initiators, why });
        };
        let responders = entry.region().responders;
        let common = || initiators.iter().filter(|&it| responders.toward(it).is_some());
        let allowed = common().find_map(|initiator| match decide(Some(initiator)) {
            Decision::Allowed { lifetime, rule } => Some((initiator, lifetime, rule)),
            Decision::Denied => None,
        });
        let Some((initiator, lifetime, rule)) = allowed else {
            let may_have = may_have();
            // Only who may have the region learns that its family is another.
            if common().count() == 0 && may_have {
                self.counters.no_address_of_family += 1;
                let what = What::NoAddressOfFamily { asked, initiators };
                return (Answer::NoAddressOfFamily, what);
            }
            self.counters.denied += 1;
            let why = if may_have { Denial::OtherAddress } else { Denial::NoRule };
            return (Answer::Denied, What::Denied { asked, initiators, why });
        };
        let given = Given { now: now.boot, entry, responders, initiator, asked, lifetime, rule };
        self.counters.late_epochs += u64::from(given.left(entry.latest()).is_zero());
        let refresh = given.refresh(&mut self.jitter);
        if *have == Some(entry.latest().epoch()) {
            self.counters.current += 1;
            return given.current(refresh);
        }
        self.counters.granted += 1;
        given.granted(refresh)
    }

    /// Publishes a region, whose responder goes by `secret`.
    ///
    /// # Errors
    /// As [`Catalog::publish`].
    pub fn publish(
        &mut self,
        now: Now,
        name: RegionName,
        region: Region,
        secret: &RegionSecret,
        term: Term,
    ) -> Result<(Epoch, Event), CatalogError> {
        let epoch = self.catalog.publish(name.clone(), region, secret, term)?;
        Ok((epoch, self.event(now, None, What::Published { region: name, epoch })))
    }

    /// Takes a region out.
    ///
    /// # Errors
    /// As [`Catalog::remove`].
    pub fn remove(&mut self, now: Now, name: &RegionName) -> Result<Event, CatalogError> {
        self.catalog.remove(name)?;
        Ok(self.event(now, None, What::Removed { region: name.clone() }))
    }

    /// Announces the key that a region will go by from `swap_at` on.
    ///
    /// # Errors
    /// As [`Catalog::announce`].
    pub fn announce(
        &mut self,
        now: Now,
        name: &RegionName,
        secret: &RegionSecret,
        swap_at: Instant,
        term: Term,
    ) -> Result<(Epoch, Event), CatalogError> {
        let epoch = self.catalog.announce(name, secret, swap_at, term)?;
        Ok((epoch, self.event(now, None, What::Announced { region: name.clone(), epoch })))
    }

    /// Announces a fresh key in place of what may be announced, to be installed at once.
    ///
    /// # Errors
    /// As [`Catalog::replace`].
    pub fn replace(
        &mut self,
        now: Now,
        name: &RegionName,
        secret: &RegionSecret,
        term: Term,
    ) -> Result<(Epoch, Event), CatalogError> {
        let epoch = self.catalog.replace(name, secret, now.boot, term)?;
        Ok((epoch, self.event(now, None, What::Replaced { region: name.clone(), epoch })))
    }

    /// The region goes by the key that was announced.
    ///
    /// # Errors
    /// As [`Catalog::install`].
    pub fn install(
        &mut self,
        now: Now,
        name: &RegionName,
        epoch: Epoch,
    ) -> Result<Event, CatalogError> {
        self.catalog.install(name, epoch)?;
        Ok(self.event(now, None, What::Installed { region: name.clone(), epoch }))
    }

    /// The present epoch of a region ends at `ends_at`, if it does not end before.
    ///
    /// # Errors
    /// As [`Catalog::hasten`].
    pub fn hasten(&mut self, name: &RegionName, ends_at: Instant) -> Result<(), CatalogError> {
        self.catalog.hasten(name, ends_at)
    }

    /// No key of a region that is given from now on is good beyond `ends_at`.
    ///
    /// # Errors
    /// As [`Catalog::limit`].
    pub fn limit(&mut self, name: &RegionName, ends_at: Instant) -> Result<(), CatalogError> {
        self.catalog.limit(name, ends_at)
    }

    fn event(&mut self, at: Now, peer: Option<&Peer>, what: What) -> Event {
        self.sequence += 1;
        let (life, sequence) = (self.catalog.life(), self.sequence);
        Event { life, sequence, at, peer: peer.cloned(), what }
    }
}

impl Service<Policy> {
    /// Goes by another policy from now on.
    pub fn reload(&mut self, now: Now, policy: Policy) -> Reloaded {
        let withdraws = |name: &&RegionName| self.authorizer.withdraws(&policy, name);
        let withdrawn: Vec<_> = self.catalog.names().filter(withdraws).cloned().collect();
        self.authorizer = policy;
        let event = self.event(now, None, What::Reloaded { withdrawn: withdrawn.len() });
        Reloaded { withdrawn, event }
    }
}
