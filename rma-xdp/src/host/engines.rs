//! The hosts' view of their engines: [`EngineInfo`] (not in the paper, whose NIC is one).

use core::ops::Range;
use std::sync::Arc;

use rma_core::nic::NicCounters;

#[cfg(doc)]
use super::Host;
use super::HostOf;
use crate::{engine::EngineKind, metrics::EngineCells};

/// One engine of a host, and what has come to it.
///
/// A receive queue gets a packet by a hash of its addresses and ports, which knows nothing of
/// engines. An engine sends from ports whose answers come to it, so most frames land right; what
/// does not is handed over to the engine that it is for, which costs both. Requests for receive
/// queues and Rekeys may land anywhere.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineInfo {
    /// The receive queues that it had when the host was opened, by their numbers on the interface.
    /// None over UDP.
    pub queues: Vec<u32>,
    /// The core that its thread is pinned to.
    pub core: Option<usize>,
    /// The command slots that it has.
    pub slots: Range<u16>,
    /// Whether it runs.
    pub is_up: bool,
    /// Frames that came to it and were for another engine, and were given to that.
    pub handed_over: u64,
    /// Frames that were for another engine and lost, as that one did not keep up.
    pub handed_over_lost: u64,
    /// Frames that came to other engines and were for this one. Of all that its NIC has received
    /// ([`NicCounters::frames_received`], and StaR's), the others landed right.
    pub taken_over: u64,
    /// The counters of its NIC.
    pub counters: Arc<NicCounters>,
}

impl<P: EngineKind> HostOf<P> {
    /// Lists the host's engines, in the order of their numbers. [`Host::metrics`] has the sums of
    /// what they count.
    ///
    /// ```
    /// # use rma_xdp::{Host, HostConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let host = Host::open(HostConfig::udp([127, 0, 0, 61]))?; // over UDP there is one
    /// let engines = host.engines();
    /// assert_eq!((engines.len(), engines[0].handed_over), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn engines(&self) -> Vec<EngineInfo> {
        self.metrics.engines().iter().map(EngineCells::info).collect()
    }
}

impl EngineCells {
    fn info(&self) -> EngineInfo {
        let Self { queues, core, slots, counters, handed_over, life, .. } = self;
        EngineInfo {
            queues: queues.clone(),
            core: *core,
            slots: slots.clone(),
            is_up: !life.has_ended(),
            handed_over: handed_over.given(),
            handed_over_lost: handed_over.lost(),
            taken_over: handed_over.taken(),
            counters: counters.clone(),
        }
    }
}
