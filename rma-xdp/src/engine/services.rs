//! What a host serves: which services its engines have, and on which ports.
//!
//! A service more is one of [`Services`] (two stand beside each other in a
//! [`Both`](rma_core::service::Both)), has a port of its own among those that the device is opened
//! with, and does its part of the housekeeping as a [`HostService`]. The host makes it when it
//! opens, and what the driver asks of 1RMA goes on past it (`EngineSide`).

use rma_app::TscClock;
use rma_core::{engine::Engine, nic::ReceiveLenMax, one_rma::OneRma, port::Port, service::Service};

use crate::{device::backend::AnyBackend, iv_blocks::BlockSupply};

/// The services of a host.
pub(crate) type Services = OneRma;

/// An engine of a host.
pub(crate) type HostEngine<B = AnyBackend> = Engine<B, TscClock, Services>;

/// The UDP ports that the services of a host listen on, of which 1RMA has `one_rma`.
pub(crate) fn ports(one_rma: u16) -> Vec<Port> {
    vec![Port(one_rma)]
}

/// What an engine thread needs of a service beyond serving it: cold work, between turns.
pub(crate) trait HostService: Service {
    /// Whether it can send nothing for want of counter values.
    fn is_starved(&self) -> bool;

    /// Sees that it has counter values.
    fn refill(&mut self, supply: &BlockSupply);

    /// Writes down for other threads how full its tables are.
    fn publish_gauges(&self);

    /// Follows a device whose MTU may have changed. Neither allocates nor blocks.
    fn follow_receive_len_max(&mut self, receive: ReceiveLenMax);
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
}
