//! The driver's questions about StaR, a type for each question, as in `driver::questions`.
//!
//! All is asked for a portal, of the engine that serves it, and the engine does nothing for one
//! portal to what another has. What is asked for is charged already: `undo` refunds it, and what an
//! engine did too late is booked all the same, as an orphan to take back.

use core::ops::Range;
use std::sync::Arc;

use rma_app::home::PortalTag;
use rma_shm::Region;
use rma_star::{
    keys::PdKey,
    mr_table::{Access, MrError},
    names::{MrId, PdId},
    portal::StarPort,
};

use super::{
    books::{Asker, Orphan},
    error::StarError,
};
use crate::driver::{
    accounts::pools::Charge,
    control::{EngineSide, Question},
    ledger::Ledger,
};

/// Has a portal served.
#[derive(Debug)]
pub(crate) struct AttachStar {
    pub(crate) port: StarPort,
    pub(crate) tag: PortalTag,
    pub(crate) charge: Charge,
}

/// The engine's answer to [`AttachStar`].
#[derive(Debug)]
pub(crate) struct AttachedStar {
    tag: PortalTag,
    charge: Charge,
    number: Option<u16>,
}

impl AttachedStar {
    /// Enters the portal, and says its number.
    pub(crate) fn book(self, ledger: &mut Ledger) -> Result<u16, StarError> {
        let Self { tag, charge, number } = self;
        let Some(number) = number else {
            ledger.refund(&charge);
            return Err(StarError::TooManyPortals);
        };
        ledger.star_attached(tag, number, charge);
        Ok(number)
    }
}

impl Question for AttachStar {
    type Answer = AttachedStar;

    fn answer(self, engine: &mut dyn EngineSide) -> AttachedStar {
        let Self { port, tag, charge } = self;
        let number = engine.star().and_then(|(star, _)| star.attach(port));
        AttachedStar { tag, charge, number }
    }

    fn undo(self, ledger: &mut Ledger) {
        ledger.refund(&self.charge);
    }

    fn settle(answer: AttachedStar, ledger: &mut Ledger) {
        let tag = answer.tag;
        if answer.book(ledger).is_ok() {
            // Nobody has got it.
            ledger.retire_tag(tag);
        }
    }
}

/// Takes a portal back that was dropped, with all that it has.
#[derive(Debug)]
pub(crate) struct DetachStar(pub(super) Asker);

/// The engine's answer to [`DetachStar`].
#[derive(Debug)]
pub(crate) struct DetachedStar {
    tag: PortalTag,
    /// None while frames of its connections are under way. Freed by the asker.
    port: Option<StarPort>,
}

impl DetachedStar {
    /// Frees what the portal had, or has it asked for again.
    pub(crate) fn book(self, ledger: &mut Ledger) {
        let Self { tag, port } = self;
        if port.is_none() {
            return ledger.retire_tag(tag);
        }
        tracing::debug!(?tag, "what a dropped portal of StaR had is free again");
        ledger.services.star.orphans.retain(|orphan| orphan.asker().tag != tag);
        ledger.star_detached(tag);
    }
}

impl Question for DetachStar {
    type Answer = DetachedStar;

    fn answer(self, engine: &mut dyn EngineSide) -> DetachedStar {
        let Asker { tag, number, .. } = self.0;
        let port = engine.star().and_then(|(star, now)| star.detach(now, number));
        DetachedStar { tag, port }
    }

    fn undo(self, ledger: &mut Ledger) {
        ledger.retire_tag(self.0.tag);
    }

    fn settle(answer: DetachedStar, ledger: &mut Ledger) {
        answer.book(ledger);
    }
}

/// Makes a protection domain: `ibv_alloc_pd`.
#[derive(Debug)]
pub(crate) struct AllocPd {
    pub(crate) asker: Asker,
    pub(crate) key: PdKey,
    pub(crate) charge: Charge,
}

/// The engine's answer to [`AllocPd`].
#[derive(Debug)]
pub(crate) struct AllocatedPd {
    asker: Asker,
    charge: Charge,
    result: Result<PdId, StarError>,
}

impl AllocatedPd {
    /// Enters the protection domain, and says its number.
    pub(crate) fn book(self, ledger: &mut Ledger) -> Result<PdId, StarError> {
        let Self { asker, charge, result } = self;
        match result {
            Ok(pd) => ledger.pd_allocated(asker.tag, pd, charge),
            Err(_) => ledger.refund(&charge),
        }
        result
    }
}

impl Question for AllocPd {
    type Answer = AllocatedPd;

    fn answer(self, engine: &mut dyn EngineSide) -> AllocatedPd {
        let Self { asker, key, charge } = self;
        let result = match engine.star() {
            None => Err(StarError::NotServed),
            Some((star, _)) => star.alloc_pd(asker.number, &key).map_err(StarError::Pd),
        };
        AllocatedPd { asker, charge, result }
    }

    fn undo(self, ledger: &mut Ledger) {
        ledger.refund(&self.charge);
    }

    fn settle(answer: AllocatedPd, ledger: &mut Ledger) {
        let asker = answer.asker;
        if let Ok(pd) = answer.book(ledger) {
            ledger.services.star.orphans.push(Orphan::Pd(asker, pd));
        }
    }
}

/// Ends a protection domain with all its memory regions: `ibv_dealloc_pd`.
#[derive(Debug)]
pub(crate) struct DeallocPd {
    pub(crate) asker: Asker,
    pub(crate) pd: PdId,
}

/// The engine's answer to [`DeallocPd`].
#[derive(Debug)]
pub(crate) struct DeallocatedPd {
    asker: Asker,
    pd: PdId,
    result: Result<(), StarError>,
}

impl DeallocatedPd {
    /// Ends what it is charged for. The one error is that there is none: that was wanted, too.
    pub(crate) fn book(self, ledger: &mut Ledger) -> Result<(), StarError> {
        let Self { asker, pd, result } = self;
        let orphan = Orphan::Pd(asker, pd);
        ledger.services.star.orphans.retain(|other| match *other {
            Orphan::Mr(of, its, _) => (of, its) != (asker, pd),
            Orphan::Pd(..) => *other != orphan,
        });
        ledger.pd_deallocated(asker.tag, pd);
        result
    }
}

impl Question for DeallocPd {
    type Answer = DeallocatedPd;

    fn answer(self, engine: &mut dyn EngineSide) -> DeallocatedPd {
        let Self { asker, pd } = self;
        let result = match engine.star() {
            None => Err(StarError::NotServed),
            Some((star, _)) => star.dealloc_pd(asker.number, pd).map_err(StarError::Pd),
        };
        DeallocatedPd { asker, pd, result }
    }

    fn undo(self, _: &mut Ledger) {}

    fn settle(answer: DeallocatedPd, ledger: &mut Ledger) {
        let _ = answer.book(ledger);
    }
}

/// Registers memory in a protection domain: `ibv_reg_mr`.
#[derive(Debug)]
pub(crate) struct RegMr {
    pub(crate) asker: Asker,
    pub(crate) pd: PdId,
    pub(crate) memory: Arc<Region>,
    pub(crate) span: Range<u64>,
    pub(crate) access: Access,
    pub(crate) charge: Charge,
}

/// Binds a memory window: `ibv_bind_mw`.
#[derive(Debug)]
pub(crate) struct BindMw {
    pub(crate) asker: Asker,
    pub(crate) pd: PdId,
    pub(crate) mr: MrId,
    pub(crate) span: Range<u64>,
    pub(crate) access: Access,
    pub(crate) charge: Charge,
}

/// The engine's answer about memory to register, or a window.
#[derive(Debug)]
pub(crate) struct RegisteredMr {
    asker: Asker,
    pd: PdId,
    charge: Charge,
    result: Result<MrId, StarError>,
    /// Of a region. Freed by the asker, if it was not registered.
    memory: Option<Arc<Region>>,
}

impl RegisteredMr {
    /// Enters the memory region or window, and says its number.
    pub(crate) fn book(self, ledger: &mut Ledger) -> Result<MrId, StarError> {
        let Self { asker, pd, charge, result, memory } = self;
        match result {
            Ok(mr) => ledger.mr_registered(asker.tag, pd, mr, charge, memory),
            Err(_) => ledger.refund(&charge),
        }
        result
    }

    /// It is there, and nobody knows.
    fn orphan(self, ledger: &mut Ledger) {
        let (asker, pd) = (self.asker, self.pd);
        if let Ok(mr) = self.book(ledger) {
            ledger.services.star.orphans.push(Orphan::Mr(asker, pd, mr));
        }
    }
}

impl Question for RegMr {
    type Answer = RegisteredMr;

    fn answer(self, engine: &mut dyn EngineSide) -> RegisteredMr {
        let Self { asker, pd, memory, span, access, charge } = self;
        let result = match engine.star() {
            None => Err(StarError::NotServed),
            Some((star, _)) => {
                star.reg_mr(asker.number, pd, memory.clone(), span, access).map_err(StarError::Mr)
            }
        };
        RegisteredMr { asker, pd, charge, result, memory: Some(memory) }
    }

    fn undo(self, ledger: &mut Ledger) {
        ledger.refund(&self.charge);
    }

    fn settle(answer: RegisteredMr, ledger: &mut Ledger) {
        answer.orphan(ledger);
    }
}

impl Question for BindMw {
    type Answer = RegisteredMr;

    fn answer(self, engine: &mut dyn EngineSide) -> RegisteredMr {
        let Self { asker, pd, mr, span, access, charge } = self;
        let result = match engine.star() {
            None => Err(StarError::NotServed),
            Some((star, _)) => star.bind_mw(asker.number, mr, span, access).map_err(StarError::Mr),
        };
        RegisteredMr { asker, pd, charge, result, memory: None }
    }

    fn undo(self, ledger: &mut Ledger) {
        ledger.refund(&self.charge);
    }

    fn settle(answer: RegisteredMr, ledger: &mut Ledger) {
        answer.orphan(ledger);
    }
}

/// Takes back a memory region or window: `ibv_dereg_mr`, `ibv_dealloc_mw`.
#[derive(Debug)]
pub(crate) struct DeregMr {
    pub(crate) asker: Asker,
    pub(crate) pd: PdId,
    pub(crate) mr: MrId,
}

/// The engine's answer to [`DeregMr`].
#[derive(Debug)]
pub(crate) struct DeregisteredMr {
    asker: Asker,
    pd: PdId,
    mr: MrId,
    /// The asker frees the memory.
    result: Result<Arc<Region>, StarError>,
}

impl DeregisteredMr {
    /// Ends what it is charged for, unless there are windows on it.
    pub(crate) fn book(self, ledger: &mut Ledger) -> Result<(), StarError> {
        let Self { asker, pd, mr, result } = self;
        if !matches!(result, Err(StarError::Mr(MrError::HasWindows { .. }))) {
            ledger.services.star.orphans.retain(|&orphan| orphan != Orphan::Mr(asker, pd, mr));
            ledger.mr_deregistered(asker.tag, pd, mr);
        }
        result.map(drop)
    }
}

impl Question for DeregMr {
    type Answer = DeregisteredMr;

    fn answer(self, engine: &mut dyn EngineSide) -> DeregisteredMr {
        let Self { asker, pd, mr } = self;
        let result = match engine.star() {
            None => Err(StarError::NotServed),
            Some((star, _)) => star.dereg_mr(asker.number, mr).map_err(StarError::Mr),
        };
        DeregisteredMr { asker, pd, mr, result }
    }

    fn undo(self, _: &mut Ledger) {}

    fn settle(answer: DeregisteredMr, ledger: &mut Ledger) {
        let _ = answer.book(ledger);
    }
}
