//! StaR beside 1RMA on each engine of a host, if the host serves it: how it is made.

#[cfg(feature = "capture")]
use std::sync::Arc;

#[cfg(feature = "capture")]
use rma_core::capture::Verdicts;
use rma_core::{
    addr::LocalAddresses,
    crypto::{AeadProvider, CounterBlock, EngineId},
    nic::ReceiveLenMax,
    port::Port,
};
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    service::Star,
};

use crate::{
    driver::{
        Capacities,
        tenant::{DriverConfig, Resource},
    },
    engine::services::HostService,
    error::HostError,
    iv_blocks::BlockSupply,
    random::random_bucket_secret,
};

/// The settings of a host that are StaR's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StarSetting {
    pub(crate) config: Option<StarConfigBuilder>,
    pub(crate) stateless_port: Port,
    pub(crate) stateful_port: Port,
}

/// The parts of a host that its engines' StaR needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StarHost {
    pub(crate) addresses: LocalAddresses,
    pub(crate) receive_len_max: ReceiveLenMax,
    pub(crate) aead: &'static dyn AeadProvider,
    /// The number of its engine, and of all of them.
    pub(crate) engine: u16,
    pub(crate) engines: u16,
}

impl StarSetting {
    /// The ports of the host, if it has these without StaR.
    pub(crate) fn beside(&self, mut ports: Vec<Port>) -> Vec<Port> {
        ports.extend(self.config.iter().flat_map(|_| [self.stateless_port, self.stateful_port]));
        ports
    }

    /// StaR for an engine, if it is to be served; and what is left of the engine's counter values.
    pub(crate) fn open(
        &self,
        host: StarHost,
        block: CounterBlock,
    ) -> Result<(CounterBlock, Option<Star>), HostError> {
        let Some(config) = &self.config else { return Ok((block, None)) };
        let secret = random_bucket_secret()?;
        let (block, of_star) = block.halves();
        let of_host = StarPlace::at(host.addresses).with(|it| {
            it.stateless_port = self.stateless_port;
            it.stateful_port = self.stateful_port;
            it.receive_len_max = host.receive_len_max;
            (it.engine, it.engines) = (EngineId(host.engine), host.engines);
            it.secret = secret;
        });
        let config = config.divided(host.engines)?.build(of_host)?;
        Ok((block, Some(Star::with_aead(config, of_star, host.aead))))
    }

    /// Adds how much of StaR's tables the driver may hand out, at each of so many engines.
    pub(crate) fn capacities(
        &self,
        mut capacities: Capacities,
        driver: &DriverConfig,
        engines: u16,
    ) -> Result<Capacities, HostError> {
        let Some(config) = &self.config else { return Ok(capacities) };
        let StarConfigBuilder { pds, mrs, connections, .. } = config.divided(engines)?;
        capacities[Resource::ProtectionDomains] = pds.into();
        capacities[Resource::MemoryRegions] = mrs.into();
        capacities[Resource::StatefulConnections] = connections.into();
        capacities[Resource::WorkRequests] = driver.work_requests;
        Ok(capacities)
    }
}

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
            // Too small an MTU changes nothing: what arrives may still fit.
            let _ = self.set_receive_len_max(receive);
        }
    }

    #[cfg(feature = "capture")]
    fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>) {
        Self::set_verdicts(self, verdicts);
    }
}
