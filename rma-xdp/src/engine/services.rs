//! The services of a host's engines, and their ports.
//!
//! A service more is one of [`Stacks`] (two stand beside each other in a [`Both`]), has ports of
//! its own among those that the device is opened with, and does its part of the housekeeping as a
//! [`HostService`]. The host makes it when it opens, and the driver reaches it past the others
//! ([`EngineSide`]).

use core::ops::Range;
#[cfg(feature = "capture")]
use std::sync::Arc;

use rma_app::TscClock;
#[cfg(feature = "capture")]
use rma_core::capture::Verdicts;
#[cfg(feature = "star")]
use rma_core::service::Both;
use rma_core::{
    addr::{LocalAddresses, Pid},
    backend::{RxFrame, TxFrame},
    crypto::EngineId,
    engine::Engine,
    error::{DropReason, RegionError},
    nic::{ReceiveLenMax, RegionEntry, RegionTable, TenantIndex},
    one_rma::OneRma,
    packet::Tail,
    port::Port,
    portal::PortalPort,
    quantum::Quantum,
    region::RegionId,
    seat::Word,
    service::Service,
    time::{Clock, Instant},
};
use rma_shm::Line;
#[cfg(feature = "star")]
use rma_star::service::Star;

use crate::{
    device::backend::{AnyBackend, HostBackend},
    driver::control::EngineSide,
    iv_blocks::BlockSupply,
};

/// An engine of a host.
pub(crate) type HostEngine<B = AnyBackend> = Engine<B, TscClock, Stacks>;

/// The services of an engine (StaR figure 6: stacks side by side). One branch for each stage of a
/// turn, and nothing for each frame: a host without StaR pays no more for there being such.
#[derive(Debug)]
#[cfg_attr(
    feature = "star",
    expect(
        clippy::large_enum_variant,
        reason = "an engine has one, and 1RMA alone is to have no pointer to follow"
    )
)]
pub(crate) enum Stacks {
    /// 1RMA alone.
    OneRma(OneRma),
    /// StaR beside it.
    #[cfg(feature = "star")]
    WithStar(Box<Both<OneRma, Star>>),
}

impl Stacks {
    /// The same services, with StaR beside them if there is one.
    #[cfg(feature = "star")]
    pub(crate) fn beside(self, star: Option<Star>) -> Self {
        match (self, star) {
            (Self::OneRma(one_rma), Some(star)) => {
                Self::WithStar(Box::new(Both::new(one_rma, star)))
            }
            (stacks, _) => stacks,
        }
    }

    const fn one_rma_mut(&mut self) -> &mut OneRma {
        match self {
            Self::OneRma(one_rma) => one_rma,
            #[cfg(feature = "star")]
            Self::WithStar(both) => &mut both.first,
        }
    }
}

/// Does the same with whichever services there are.
macro_rules! whichever {
    ($stacks:expr, $services:ident => $does:expr) => {
        match $stacks {
            Stacks::OneRma($services) => $does,
            #[cfg(feature = "star")]
            Stacks::WithStar($services) => $does,
        }
    };
}

impl Service for Stacks {
    fn addresses(&self) -> &LocalAddresses {
        whichever!(self, services => services.addresses())
    }

    fn serves(&self, port: Port) -> bool {
        whichever!(self, services => services.serves(port))
    }

    fn frame_len(&self, port: Port, octets: &[u8]) -> Result<usize, DropReason> {
        whichever!(self, services => services.frame_len(port, octets))
    }

    fn note_packet(&mut self, port: Port, frames: usize) {
        whichever!(self, services => services.note_packet(port, frames));
    }

    fn drop_tail(&mut self, port: Port, tail: Tail) {
        whichever!(self, services => services.drop_tail(port, tail));
    }

    fn owner_of(&self, frame: &RxFrame<'_>) -> Option<EngineId> {
        whichever!(self, services => services.owner_of(frame))
    }

    fn take_keys(&mut self) {
        whichever!(self, services => services.take_keys());
    }

    fn note_paid(&mut self) {
        whichever!(self, services => services.note_paid());
    }

    fn poll_word(&mut self) -> Option<Word> {
        whichever!(self, services => services.poll_word())
    }

    fn handle_word(&mut self, line: &Line) {
        whichever!(self, services => services.handle_word(line));
    }

    fn handle_frames(&mut self, now: Instant, clock: &impl Clock, frames: &mut [RxFrame<'_>]) {
        whichever!(self, services => services.handle_frames(now, clock, frames));
    }

    fn take_commands(&mut self, now: Instant) -> usize {
        whichever!(self, services => services.take_commands(now))
    }

    fn handle_timeout(&mut self, now: Instant) {
        whichever!(self, services => services.handle_timeout(now));
    }

    fn complete(&mut self) -> usize {
        whichever!(self, services => services.complete())
    }

    fn latency_class_seen_at(&self) -> Option<Instant> {
        whichever!(self, services => services.latency_class_seen_at())
    }

    fn frames_waiting(&self) -> usize {
        whichever!(self, services => services.frames_waiting())
    }

    fn has_frames(&self) -> bool {
        whichever!(self, services => services.has_frames())
    }

    fn gathers(&self, now: Instant) -> bool {
        whichever!(self, services => services.gathers(now))
    }

    fn poll_transmits(
        &mut self,
        now: Instant,
        frames: &mut [TxFrame<'_>],
        quantum: &mut Quantum,
    ) -> usize {
        whichever!(self, services => services.poll_transmits(now, frames, quantum))
    }

    fn wants_transmit(&self) -> bool {
        whichever!(self, services => services.wants_transmit())
    }

    fn wake_sleepers(&mut self) {
        whichever!(self, services => services.wake_sleepers());
    }

    fn announce_sleep(&self) {
        whichever!(self, services => services.announce_sleep());
    }

    fn awake(&self) {
        whichever!(self, services => services.awake());
    }

    fn is_idle(&self) -> bool {
        whichever!(self, services => services.is_idle())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        whichever!(self, services => services.poll_timeout())
    }
}

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

#[cfg(feature = "star")]
impl HostService for Star {
    fn is_starved(&self) -> bool {
        self.counter().left() == 0
    }

    fn refill(&mut self, supply: &BlockSupply) {
        supply.turn(self.counter_mut());
    }

    fn publish_gauges(&self) {}

    fn follow_receive_len_max(&mut self, receive: ReceiveLenMax) {
        if receive != self.config().place().receive_len_max {
            // As above.
            let _ = self.set_receive_len_max(receive);
        }
    }

    #[cfg(feature = "capture")]
    fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>) {
        Self::set_verdicts(self, verdicts);
    }
}

#[cfg(feature = "star")]
impl<A: HostService, B: HostService> HostService for Both<A, B> {
    fn is_starved(&self) -> bool {
        self.first.is_starved() || self.second.is_starved()
    }

    fn refill(&mut self, supply: &BlockSupply) {
        self.first.refill(supply);
        self.second.refill(supply);
    }

    fn publish_gauges(&self) {
        self.first.publish_gauges();
        self.second.publish_gauges();
    }

    fn follow_receive_len_max(&mut self, receive: ReceiveLenMax) {
        self.first.follow_receive_len_max(receive);
        self.second.follow_receive_len_max(receive);
    }

    #[cfg(feature = "capture")]
    fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>) {
        self.first.set_verdicts(verdicts.clone());
        self.second.set_verdicts(verdicts);
    }
}

impl HostService for Stacks {
    fn is_starved(&self) -> bool {
        whichever!(self, services => services.is_starved())
    }

    fn refill(&mut self, supply: &BlockSupply) {
        whichever!(self, services => services.refill(supply));
    }

    fn publish_gauges(&self) {
        whichever!(self, services => services.publish_gauges());
    }

    fn follow_receive_len_max(&mut self, receive: ReceiveLenMax) {
        whichever!(self, services => services.follow_receive_len_max(receive));
    }

    #[cfg(feature = "capture")]
    fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>) {
        whichever!(self, services => services.set_verdicts(verdicts));
    }
}

/// An engine as the driver's questions see it.
pub(crate) struct Side<'a> {
    stacks: &'a mut Stacks,
    #[cfg(feature = "star")]
    now: Instant,
}

impl<'a> Side<'a> {
    /// Of this engine, now.
    pub(crate) fn of<B: HostBackend>(engine: &'a mut HostEngine<B>) -> Self {
        Self {
            #[cfg(feature = "star")]
            now: engine.clock().now(),
            stacks: engine.service_mut(),
        }
    }
}

impl EngineSide for Side<'_> {
    fn regions(&mut self) -> &mut RegionTable {
        self.stacks.one_rma_mut().nic_mut().regions_mut()
    }

    fn deregister(&mut self, region: RegionId) -> Result<Box<RegionEntry>, RegionError> {
        self.stacks.one_rma_mut().nic_mut().deregister(region)
    }

    fn attach(&mut self, port: PortalPort, pid: Pid, tenant: TenantIndex) {
        let one_rma = self.stacks.one_rma_mut();
        one_rma.nic_mut().configure_slots_of(port.slots().clone(), Some(pid), tenant);
        one_rma.attach(port);
    }

    fn detach(&mut self, slots: &Range<u16>) -> Option<PortalPort> {
        let one_rma = self.stacks.one_rma_mut();
        let port = one_rma.detach(slots)?;
        one_rma.nic_mut().configure_slots(slots.clone(), None);
        Some(port)
    }

    #[cfg(feature = "star")]
    fn star(&mut self) -> Option<(&mut Star, Instant)> {
        match &mut *self.stacks {
            Stacks::OneRma(_) => None,
            Stacks::WithStar(both) => Some((&mut both.second, self.now)),
        }
    }
}
