//! The parties beside the clients: a reader of another region, and the third party that rotates
//! with the Rekey op.

use rma_bench::{client::Client, error::PairError};
use rma_core::time::Instant;
use rma_xdp::{Grant, OpStatus, OpType, Portal, time::Clock};

use super::{
    desk::{Desk, Step},
    history::{Deed, What},
    scene::SIZE,
};

/// A reader of a region whose key stays.
pub(super) struct Other {
    portal: Portal,
    grant: Grant,
    issued: Instant,
}

impl Other {
    pub(super) const fn new(portal: Portal, grant: Grant) -> Self {
        Self { portal, grant, issued: Instant::ZERO }
    }

    pub(super) fn is_reading(&self) -> bool {
        self.portal.outstanding() > 0
    }

    /// Issues a read at `place`, if none is under way.
    pub(super) fn issue(&mut self, client: &Client, place: u64) -> Result<(), PairError> {
        if !self.is_reading() {
            self.issued = client.clock.now();
            let offset = place * u64::from(SIZE);
            self.portal.read(&self.grant, offset, &client.local, 0, SIZE)?;
        }
        Ok(())
    }

    /// Returns its last deed, if its read has ended.
    pub(super) fn poll(&mut self, clock: &impl Clock) -> Option<Deed> {
        let ok = self.portal.poll()?.status == OpStatus::Ok;
        let what = if ok { What::Read } else { What::Refused };
        Some(Deed { row: 0, what, from: self.issued, to: clock.now() })
    }
}

/// Rotates for the owner, over the network.
pub(super) struct ThirdParty {
    portal: Portal,
    /// For Rekey, under the key that the region goes by.
    grant: Grant,
    /// The present step, and its beginning.
    step: Option<(Step, Instant)>,
}

impl ThirdParty {
    pub(super) const fn new(portal: Portal, grant: Grant) -> Self {
        Self { portal, grant, step: None }
    }

    /// Goes on with what the owner asks for. Returns a change that it has made.
    pub(super) fn turn(&mut self, client: &Client, desk: &Desk) -> Result<Option<Deed>, PairError> {
        if let Some(step) = desk.step.take() {
            match step {
                Step::Rekey(key) => self.portal.rekey(&self.grant, key)?,
                Step::Probe(key) => {
                    let probe = Grant { op_type: OpType::Read, ..self.grant }.under(&key);
                    self.portal.read(&probe, 0, &client.local, 0, SIZE)?
                }
            };
            self.step = Some((step, client.clock.now()));
        }
        let Some((step, from)) = self.step else { return Ok(None) };
        let Some(completion) = self.portal.poll() else { return Ok(None) };
        self.step = None;
        let (Step::Rekey(key) | Step::Probe(key)) = step;
        desk.ended.put(completion.status);
        if completion.status != OpStatus::Ok {
            return Ok(None);
        }
        self.grant = self.grant.under(&key);
        Ok(Some(Deed { row: 0, what: What::Swap, from, to: client.clock.now() }))
    }
}
