//! The driver's work for StaR: portals, protection domains, memory regions and windows.
//!
//! A portal is one engine's: that which has the fewest, of those that take questions. All about it
//! is asked there.

use core::{ops::Range, time::Duration};
use std::sync::Arc;

use rma_app::{
    home::PortalTag,
    sleep::Sleep,
    star::{MemoryRegion, MemoryWindow, ProtectionDomain, StarParts, StarVerbs},
};
use rma_shm::{Mapping, Region};
use rma_star::{
    keys::PdKey,
    library::{Verbs, VerbsConfig, VerbsPlace},
    limits::{QPS_MAX, SLOTS_MAX},
    mr_table::Access,
    portal::{StarPort, StarPortal, StarPortalMemory},
};

use super::{
    books::{Asker, Orphan},
    error::StarError,
    questions::{AllocPd, AttachStar, BindMw, DeallocPd, DeregMr, DetachStar, RegMr},
};
use crate::{
    driver::{
        Driver,
        control::{ControlPath, Question},
        ledger::Ledger,
        shards::Shards,
        tenant::Tenant,
    },
    error::HostError,
};

/// With what a portal of StaR is made.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct StarPortalConfig {
    /// How many work requests may be outstanding at once, of all its queue pairs together: 1 to
    /// 2^24. Default: 1024.
    pub work_requests: u32,
    /// How many queue pairs there may be at once: 1 to 2^20. Default: 64.
    pub queue_pairs: u32,
    /// Of how many connections this host may be the stateful side. The host's table of these has a
    /// row for each ([`StarConfigBuilder::connections`]), also while there are none. 0: this host
    /// is the stateless side of all. Default: 64.
    ///
    /// [`StarConfigBuilder::connections`]: rma_star::config::StarConfigBuilder::connections
    pub stateful_connections: u32,
    /// The settings of the library. The host sets [`VerbsConfig::valid`] to what its engine has.
    pub verbs: VerbsConfig,
}

impl Default for StarPortalConfig {
    fn default() -> Self {
        Self {
            work_requests: 1024,
            queue_pairs: 64,
            stateful_connections: 64,
            verbs: VerbsConfig::default(),
        }
    }
}

rma_core::settings!(StarPortalConfig);

/// The facts about its host that a portal must know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StarTerms {
    /// The longest packet that the host takes, in octets.
    pub(crate) packet_len_max: u16,
    /// W of its engine.
    pub(crate) valid: Duration,
}

impl<P: ControlPath> Driver<P> {
    /// Allocates a portal of StaR. `None` if dropped portals, whose connections have frames under
    /// way, have what may be enough: to be asked again once the engine has gone on.
    pub(crate) fn star_portal(
        &mut self,
        tenant: Option<&Tenant>,
        config: &StarPortalConfig,
        terms: StarTerms,
    ) -> Result<Option<StarVerbs>, HostError> {
        let StarPortalConfig { work_requests, queue_pairs, stateful_connections, verbs } = *config;
        if !(1..=SLOTS_MAX).contains(&work_requests) || !(1..=QPS_MAX).contains(&queue_pairs) {
            return Err(StarError::PortalSize { work_requests, queue_pairs }.into());
        }
        let footprint = StarPortalMemory::footprint(work_requests, queue_pairs)
            .map_err(|_too_large| StarError::PortalSize { work_requests, queue_pairs })?;
        let account = self.account(tenant)?;
        self.reclaim()?;
        let taken = self.ledger.take_star_portal(
            account,
            work_requests,
            stateful_connections,
            self.shards.for_star_portals(),
        );
        let charge = match taken {
            Ok(charge) => charge,
            Err(error) => {
                let is_worth_asking_again = self.reclaim_tagged()?;
                return if is_worth_asking_again { Ok(None) } else { Err(error.into()) };
            }
        };
        let engine = charge.engine;
        let path = &self.shards.0[engine].path;
        let (life, bell) = (path.life(), path.bell());
        let sleep = if life.is_inline() {
            None
        } else {
            Some(Sleep::new().map_err(|source| {
                self.ledger.refund(&charge);
                HostError::System { what: "creating an eventfd", source }
            })?)
        };
        let memory = Arc::new(Mapping::heap(footprint));
        let memory = StarPortalMemory::format(&memory, work_requests, queue_pairs)
            .expect("a mapping of its footprint");
        let mut port = StarPort::new(memory.clone());
        let flag = self.ledger.services.star.flags.lend();
        port.set_flag(flag.clone());
        port.set_stateful_max(stateful_connections);
        port.set_tenant(self.ledger.accounts().identity(account).1);
        if let Some(sleep) = &sleep {
            port.set_sleeper(sleep.bell());
        }
        let tag = PortalTag::next();
        let question = AttachStar { port, tag, charge };
        let attached = self.shards.ask_at(engine, question, &mut self.ledger)?;
        let number = attached.book(&mut self.ledger)?;
        tracing::debug!(
            ?tag,
            number,
            engine,
            work_requests,
            queue_pairs,
            "portal of StaR allocated"
        );
        let place = VerbsPlace::new(number, self.addresses, terms.packet_len_max);
        let verbs = VerbsConfig { valid: terms.valid, ..verbs };
        let mut portal = StarPortal::new(memory, bell);
        portal.set_flag(flag);
        let verbs = Verbs::new(portal, place, verbs);
        let home = self.ledger.home.clone();
        Ok(Some(StarVerbs::new(StarParts { verbs, tag, home, life, sleep })))
    }

    /// Returns the owner of the portal of this tag, which asks for something.
    fn asker(&self, tag: PortalTag) -> Result<Asker, StarError> {
        self.ledger.star_asker(tag)
    }

    /// Asks the engine that serves the portal of this owner.
    fn ask_star<Q: Question>(&mut self, asker: Asker, question: Q) -> Result<Q::Answer, HostError> {
        self.shards.ask_at(asker.engine, question, &mut self.ledger)
    }

    /// A protection domain for a portal, with this secret, which is new.
    pub(crate) fn alloc_pd(
        &mut self,
        portal: PortalTag,
        key: PdKey,
    ) -> Result<ProtectionDomain, HostError> {
        self.reclaim()?;
        let asker = self.asker(portal)?;
        let charge = self.ledger.take_pd(portal)?;
        let question = AllocPd { asker, key, charge };
        let pd = self.ask_star(asker, question)?.book(&mut self.ledger)?;
        // Never the key.
        tracing::debug!(?portal, ?pd, "protection domain allocated");
        Ok(ProtectionDomain::new(pd, portal))
    }

    /// Ends a protection domain with all its memory regions.
    pub(crate) fn dealloc_pd(&mut self, pd: &ProtectionDomain) -> Result<(), HostError> {
        let asker = self.asker(pd.portal())?;
        let answer = self.ask_star(asker, DeallocPd { asker, pd: pd.id() })?;
        Ok(answer.book(&mut self.ledger)?)
    }

    /// Registers a span of `memory` in a protection domain.
    pub(crate) fn reg_mr(
        &mut self,
        pd: &ProtectionDomain,
        memory: Arc<Region>,
        span: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, HostError> {
        self.reclaim()?;
        let asker = self.asker(pd.portal())?;
        let len = span.end.saturating_sub(span.start);
        let charge = self.ledger.take_mr(asker.tag, Some(len))?;
        let question = RegMr {
            asker,
            pd: pd.id(),
            memory: memory.clone(),
            span: span.clone(),
            access,
            charge,
        };
        let mr = self.ask_star(asker, question)?.book(&mut self.ledger)?;
        tracing::debug!(?mr, len, ?access, "memory region registered");
        Ok(MemoryRegion::new(mr, pd, memory, span))
    }

    /// Whether `len` bytes could be registered now for whom a protection domain is.
    pub(crate) fn admits_mr(&mut self, pd: &ProtectionDomain, len: u64) -> Result<(), HostError> {
        self.reclaim()?;
        let charge = self.ledger.take_mr(pd.portal(), Some(len))?;
        self.ledger.refund(&charge);
        Ok(())
    }

    /// Binds a window to a span of a memory region.
    pub(crate) fn bind_mw(
        &mut self,
        mr: &MemoryRegion,
        span: Range<u64>,
        access: Access,
    ) -> Result<MemoryWindow, HostError> {
        self.reclaim()?;
        let asker = self.asker(mr.portal())?;
        let charge = self.ledger.take_mr(asker.tag, None)?;
        let question = BindMw { asker, pd: mr.pd(), mr: mr.id(), span, access, charge };
        let id = self.ask_star(asker, question)?.book(&mut self.ledger)?;
        Ok(MemoryWindow::new(id, mr))
    }

    /// Takes a memory region back.
    pub(crate) fn dereg_mr(&mut self, mr: &MemoryRegion) -> Result<(), HostError> {
        let asker = self.asker(mr.portal())?;
        let answer = self.ask_star(asker, DeregMr { asker, pd: mr.pd(), mr: mr.id() })?;
        Ok(answer.book(&mut self.ledger)?)
    }

    /// Takes a memory window back.
    pub(crate) fn dealloc_mw(&mut self, mw: &MemoryWindow) -> Result<(), HostError> {
        let asker = self.asker(mw.portal())?;
        let answer = self.ask_star(asker, DeregMr { asker, pd: mw.pd(), mr: mw.id() })?;
        Ok(answer.book(&mut self.ledger)?)
    }

    /// Takes back a dropped portal, if nothing of it is under way and its engine takes questions.
    /// Returns whether that was asked; `None` if it is no portal of StaR.
    pub(crate) fn take_star_back(&mut self, tag: PortalTag) -> Result<Option<bool>, HostError> {
        let Ok(asker) = self.asker(tag) else { return Ok(None) };
        if !self.shards.takes_questions(asker.engine) {
            self.ledger.retire_tag(tag);
            return Ok(Some(false));
        }
        self.ask_star(asker, DetachStar(asker))?.book(&mut self.ledger);
        Ok(Some(true))
    }
}

impl<P: ControlPath> Shards<P> {
    /// The engines that a portal may be given to: those that take questions. If none does, the
    /// first, which says why.
    fn for_star_portals(&self) -> Vec<usize> {
        let all = 0..self.count();
        let takes: Vec<_> = all.filter(|&index| self.takes_questions(index)).collect();
        if takes.is_empty() { vec![0] } else { takes }
    }

    /// Has undone what engines have of StaR and nobody knows of, as far as they take questions.
    pub(crate) fn undo_star_orphans(&mut self, ledger: &mut Ledger) -> Result<(), HostError> {
        for orphan in ledger.services.star.orphans.clone() {
            let at = orphan.asker().engine;
            if !self.takes_questions(at) || !ledger.services.star.orphans.contains(&orphan) {
                continue;
            }
            let _ = match orphan {
                Orphan::Pd(asker, pd) => {
                    self.ask_at(at, DeallocPd { asker, pd }, ledger)?.book(ledger)
                }
                Orphan::Mr(asker, pd, mr) => {
                    self.ask_at(at, DeregMr { asker, pd, mr }, ledger)?.book(ledger)
                }
            };
            // Whatever it was answered: there are no windows on it, as nobody knows of it.
            ledger.services.star.orphans.retain(|&other| other != orphan);
        }
        Ok(())
    }
}
