//! All that the driver asks of engines: a type for each question.
//!
//! Which engines are asked is of the type, too. What is about a portal goes to the one that has its
//! slots ([`ToOne`]), what changes a region to every one ([`ToAll`]), as each has a row for it; and
//! what only looks at a region may go to any ([`ToAny`]).

use core::ops::Range;
use std::sync::Arc;

use rma_core::{
    addr::Pid,
    crypto::{DerivedRegionKey, EngineId, KeyBinding, RegionKey},
    error::RegionError,
    nic::{RegionEntry, TenantIndex},
    portal::PortalPort,
    region::RegionId,
};

use super::{
    control::{EngineSide, Question},
    ledger::Ledger,
};

/// A question to the one engine that has certain command slots.
pub(super) trait ToOne: Question {
    fn slots(&self) -> &Range<u16>;
}

/// A question to every engine of a host that has not ended. All give the same answer, because all
/// are asked the same in the same order, and the driver names what they have.
pub(super) trait ToAll: Question {}

/// A question that every engine of a host answers alike.
pub(super) trait ToAny: Question {}

/// Puts a region into the table, under this name.
#[derive(Debug)]
pub(super) struct Register(pub(super) RegionId, pub(super) Box<RegionEntry>);

impl ToAll for Register {}

impl Question for Register {
    /// The entry goes back if there is no room for it.
    type Answer = Result<(), (RegionError, Box<RegionEntry>)>;

    fn answer(self, engine: &mut dyn EngineSide) -> Self::Answer {
        engine.regions().register_as(self.0, self.1)
    }

    fn undo(self, _: &mut Ledger) {}

    /// Nothing: the name is an orphan since the round that this was part of.
    fn settle(_: Self::Answer, _: &mut Ledger) {}
}

/// Takes a region out of the table.
#[derive(Debug)]
pub(super) struct Deregister(pub(super) RegionId);

/// The table's content for a region.
#[derive(Debug)]
pub(super) struct Deregistered {
    region: RegionId,
    _entry: Result<Box<RegionEntry>, RegionError>,
}

impl Deregistered {
    /// Ends what the region is charged for, and frees its name. The one error is that the NIC does
    /// not have it: that was wanted, too.
    pub(super) fn book(self, ledger: &mut Ledger) {
        ledger.services.orphans.retain(|&orphan| orphan != self.region);
        ledger.accounts().deregistered(self.region);
        ledger.names.give_back(self.region);
    }
}

impl ToAll for Deregister {}

impl Question for Deregister {
    type Answer = Deregistered;

    fn answer(self, engine: &mut dyn EngineSide) -> Deregistered {
        Deregistered { region: self.0, _entry: engine.deregister(self.0) }
    }

    fn undo(self, _: &mut Ledger) {}

    /// Nothing: the region is an orphan since the round that this was part of.
    fn settle(_: Deregistered, _: &mut Ledger) {}
}

/// Gives a region another key: asked of its home, which puts it on its way to the other engines.
#[derive(Debug)]
pub(super) struct Rekey(pub(super) RegionId, pub(super) RegionKey);

impl Question for Rekey {
    type Answer = Result<(), RegionError>;

    fn answer(self, engine: &mut dyn EngineSide) -> Self::Answer {
        engine.regions().rekey(self.0, &self.1).map(|_number| ())
    }

    fn undo(self, _: &mut Ledger) {}

    fn settle(_: Self::Answer, _: &mut Ledger) {}
}

/// Has an engine take the keys that are on their way to it.
#[derive(Debug)]
pub(crate) struct TakeKeys;

impl ToAll for TakeKeys {}

impl Question for TakeKeys {
    type Answer = ();

    fn answer(self, engine: &mut dyn EngineSide) {
        engine.regions().take_keys();
    }

    fn undo(self, _: &mut Ledger) {}

    fn settle((): Self::Answer, _: &mut Ledger) {}
}

/// Names another engine as the home of regions. Of their old one all have taken all keys.
#[derive(Debug)]
pub(super) struct MoveHomes(pub(super) Arc<[RegionId]>, pub(super) EngineId);

impl ToAll for MoveHomes {}

impl Question for MoveHomes {
    /// Freed by the asker.
    type Answer = Arc<[RegionId]>;

    fn answer(self, engine: &mut dyn EngineSide) -> Self::Answer {
        let Self(regions, home) = self;
        regions.iter().for_each(|&region| engine.regions().move_home(region, home));
        regions
    }

    fn undo(self, _: &mut Ledger) {}

    /// Nothing: they are moved again, to the same engine, until all have answered.
    fn settle(_: Self::Answer, _: &mut Ledger) {}
}

/// Derives K_d from the key that a region has now.
#[derive(Debug)]
pub(super) struct Derive(pub(super) RegionId, pub(super) KeyBinding);

impl ToAny for Derive {}

impl Question for Derive {
    type Answer = Result<DerivedRegionKey, RegionError>;

    fn answer(self, engine: &mut dyn EngineSide) -> Self::Answer {
        let Self(region, binding) = self;
        let entry = engine.regions().get(region).ok_or(RegionError::NotRegistered { region })?;
        Ok(entry.key.derive(&binding))
    }

    fn undo(self, _: &mut Ledger) {}

    fn settle(_: Self::Answer, _: &mut Ledger) {}
}

/// Has a portal served.
#[derive(Debug)]
pub(super) struct Attach {
    pub(super) port: PortalPort,
    pub(super) pid: Pid,
    pub(super) tenant: TenantIndex,
}

impl ToOne for Attach {
    fn slots(&self) -> &Range<u16> {
        self.port.slots()
    }
}

impl Question for Attach {
    /// Its slots.
    type Answer = Range<u16>;

    fn answer(self, engine: &mut dyn EngineSide) -> Range<u16> {
        let Self { port, pid, tenant } = self;
        let slots = port.slots().clone();
        engine.attach(port, pid, tenant);
        slots
    }

    fn undo(self, ledger: &mut Ledger) {
        ledger.accounts().give_slots_back(self.port.slots().clone());
    }

    fn settle(slots: Range<u16>, ledger: &mut Ledger) {
        // Nobody has got a portal for them.
        ledger.retire(slots);
    }
}

/// Takes a portal back that was dropped.
#[derive(Debug)]
pub(super) struct Detach {
    pub(super) slots: Range<u16>,
    /// Receive queues whose events wake it: they stay, and wake nobody.
    pub(super) queues: Box<[RegionId]>,
}

/// The fate of a portal.
#[derive(Debug)]
pub(super) struct Detached {
    pub(super) slots: Range<u16>,
    /// None while ops of the portal are in flight.
    pub(super) port: Option<PortalPort>,
    /// Freed by the asker.
    _queues: Box<[RegionId]>,
}

impl Detached {
    /// Frees the slots, or has them asked for again.
    pub(super) fn book(self, ledger: &mut Ledger) {
        let Self { slots, port, .. } = self;
        if port.is_some() {
            tracing::debug!(?slots, "slots of a dropped portal are free again");
            ledger.accounts().give_slots_back(slots);
        } else {
            ledger.retire(slots);
        }
    }
}

impl ToOne for Detach {
    fn slots(&self) -> &Range<u16> {
        &self.slots
    }
}

impl Question for Detach {
    type Answer = Detached;

    fn answer(self, engine: &mut dyn EngineSide) -> Detached {
        let Self { slots, queues } = self;
        let port = engine.detach(&slots);
        if port.is_some() {
            for &queue in &queues {
                // The one error is that it is registered no longer.
                let _ = engine.regions().bind_queue(queue, None);
            }
        }
        Detached { slots, port, _queues: queues }
    }

    fn undo(self, ledger: &mut Ledger) {
        ledger.retire(self.slots);
    }

    fn settle(answer: Detached, ledger: &mut Ledger) {
        answer.book(ledger);
    }
}
