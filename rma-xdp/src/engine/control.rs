//! The control path: what the driver asks of an engine, between its turns.
//!
//! An inline engine is asked directly. An engine on its own thread is asked through a queue that it
//! looks into between turns. Nothing is allocated or freed on the engine's side: what it gets is
//! boxed already, and what it has no more use for goes back.

use core::ops::Range;

use rma_app::life::Life;
use rma_core::{
    addr::Pid,
    crypto::{DerivedRegionKey, KeyBinding, RegionKey},
    error::RegionError,
    nic::RegionEntry,
    one_rma::OneRma,
    portal::PortalPort,
    region::RegionId,
};

use crate::error::HostError;

/// How the driver reaches its engine.
pub(crate) trait ControlPath {
    /// The answer to a question whose asker gave up waiting, if the engine has taken it: waits for
    /// it. The driver settles it before it asks anything else, as nothing tells it from the next
    /// answer.
    fn late_answer(&mut self) -> Result<Option<Answer>, HostError>;

    /// Asks, and waits for the answer.
    fn ask(&mut self, request: Request) -> Result<Answer, Unanswered>;

    /// The life of the engine, for those who wait for it.
    fn life(&self) -> Life;
}

/// A question without an answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: HostError,
    /// The question, if the engine has not seen it. Otherwise it has done what it was asked, or
    /// will: its answer is the next [`ControlPath::late_answer`].
    pub(crate) unseen: Option<Box<Request>>,
}

/// What the driver asks.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be freed on the engine's thread")]
pub(crate) enum Request {
    Register(Box<RegionEntry>),
    Deregister(RegionId),
    Rekey(RegionId, RegionKey),
    Derive(RegionId, KeyBinding),
    Attach(PortalPort, Pid),
    Detach(Range<u16>),
}

/// What the engine answers, in the order of the questions.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the engine's thread")]
pub(crate) enum Answer {
    Registered(Result<RegionId, (RegionError, Box<RegionEntry>)>),
    Deregistered(RegionId, Result<Box<RegionEntry>, RegionError>),
    Rekeyed(Result<(), RegionError>),
    Derived(Result<DerivedRegionKey, RegionError>),
    Attached(Range<u16>),
    /// No port while ops of the portal are in flight.
    Detached(Range<u16>, Option<PortalPort>),
}

/// Does what was asked. Runs on the engine's thread.
pub(crate) fn answer(one_rma: &mut OneRma, request: Request) -> Answer {
    match request {
        Request::Register(entry) => {
            Answer::Registered(one_rma.nic_mut().regions_mut().register(entry))
        }
        Request::Deregister(region) => {
            Answer::Deregistered(region, one_rma.nic_mut().regions_mut().deregister(region))
        }
        Request::Rekey(region, key) => {
            Answer::Rekeyed(one_rma.nic_mut().regions_mut().rekey(region, &key))
        }
        Request::Derive(region, binding) => {
            let entry = one_rma.nic().regions().get(region);
            let entry = entry.ok_or(RegionError::NotRegistered { region });
            Answer::Derived(entry.map(|entry| entry.key.derive(&binding)))
        }
        Request::Attach(port, pid) => {
            let slots = port.slots().clone();
            one_rma.nic_mut().configure_slots(slots.clone(), Some(pid));
            one_rma.attach(port);
            Answer::Attached(slots)
        }
        Request::Detach(slots) => {
            let port = detach(one_rma, slots.clone());
            Answer::Detached(slots, port)
        }
    }
}

fn detach(one_rma: &mut OneRma, slots: Range<u16>) -> Option<PortalPort> {
    let port = one_rma.detach(&slots)?;
    one_rma.nic_mut().configure_slots(slots, None);
    Some(port)
}
