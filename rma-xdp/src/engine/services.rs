//! The services of a host's engines, as what runs an engine needs them between turns: cold work as
//! a [`HostService`], and what the driver asks as an [`EngineSide`].

use core::ops::Range;
#[cfg(feature = "capture")]
use std::sync::Arc;

use rma_app::TscClock;
#[cfg(feature = "capture")]
use rma_core::capture::Verdicts;
use rma_core::{
    addr::Pid,
    engine::Engine,
    error::RegionError,
    nic::{ReceiveLenMax, RegionEntry, RegionTable, TenantIndex},
    one_rma::OneRma,
    portal::PortalPort,
    region::RegionId,
    service::{Both, Service},
    time::Clock,
};

use crate::{
    device::backend::{AnyBackend, HostBackend},
    driver::control::EngineSide,
    iv_blocks::BlockSupply,
    services::{Side, Stacks},
};

/// An engine of a host.
pub(crate) type HostEngine<B = AnyBackend> = Engine<B, TscClock, Stacks>;

/// The cold work that an engine thread needs of a service, between turns.
pub(crate) trait HostService: Service {
    /// Whether it can send nothing for want of counter values.
    fn is_starved(&self) -> bool;

    /// Sees that it has counter values.
    fn refill(&mut self, supply: &BlockSupply);

    /// Writes down for other threads how full its tables are.
    fn publish_gauges(&self);

    /// Follows a device whose MTU may have changed. Neither allocates nor blocks.
    fn follow_receive_len_max(&mut self, receive: ReceiveLenMax);

    /// Has somebody told what becomes of each frame, or nobody.
    #[cfg(feature = "capture")]
    fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>);
}

impl HostService for OneRma {
    fn is_starved(&self) -> bool {
        self.nic().counter_values_left() == 0
    }

    fn refill(&mut self, supply: &BlockSupply) {
        supply.turn(self.nic_mut());
    }

    fn publish_gauges(&self) {
        self.nic().publish_gauges();
    }

    fn follow_receive_len_max(&mut self, receive: ReceiveLenMax) {
        if receive != self.nic().config().place().receive_len_max {
            // Too small an MTU changes nothing: what arrives may still fit.
            let _ = self.nic_mut().set_receive_len_max(receive);
        }
    }

    #[cfg(feature = "capture")]
    fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>) {
        self.nic_mut().set_verdicts(verdicts);
    }
}

impl<A: HostService, B: HostService> HostService for Both<A, B> {
    fn is_starved(&self) -> bool {
        self.first.is_starved() || self.second.as_ref().is_some_and(B::is_starved)
    }

    fn refill(&mut self, supply: &BlockSupply) {
        self.first.refill(supply);
        self.second.iter_mut().for_each(|it| it.refill(supply));
    }

    fn publish_gauges(&self) {
        self.first.publish_gauges();
        self.second.iter().for_each(B::publish_gauges);
    }

    fn follow_receive_len_max(&mut self, receive: ReceiveLenMax) {
        self.first.follow_receive_len_max(receive);
        self.second.iter_mut().for_each(|it| it.follow_receive_len_max(receive));
    }

    #[cfg(feature = "capture")]
    fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>) {
        self.second.iter_mut().for_each(|it| it.set_verdicts(verdicts.clone()));
        self.first.set_verdicts(verdicts);
    }
}

impl<'a> Side<'a> {
    /// Of this engine, now.
    pub(crate) fn of<B: HostBackend>(engine: &'a mut HostEngine<B>) -> Self {
        let now = engine.clock().now();
        Self::new(engine.service_mut(), now)
    }
}

impl EngineSide for Side<'_> {
    fn regions(&mut self) -> &mut RegionTable {
        self.one_rma.nic_mut().regions_mut()
    }

    fn deregister(&mut self, region: RegionId) -> Result<Box<RegionEntry>, RegionError> {
        self.one_rma.nic_mut().deregister(region)
    }

    fn attach(&mut self, port: PortalPort, pid: Pid, tenant: TenantIndex) {
        let one_rma = &mut *self.one_rma;
        one_rma.nic_mut().configure_slots_of(port.slots().clone(), Some(pid), tenant);
        one_rma.attach(port);
    }

    fn detach(&mut self, slots: &Range<u16>) -> Option<PortalPort> {
        let one_rma = &mut *self.one_rma;
        let port = one_rma.detach(slots)?;
        one_rma.nic_mut().configure_slots(slots.clone(), None);
        Some(port)
    }
}
