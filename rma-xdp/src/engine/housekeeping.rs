//! The housekeeping of an engine, between its turns: cold work that follows the machine.

#[cfg(feature = "capture")]
use crate::device::tap::TapEnd;
use crate::{
    device::backend::HostBackend,
    engine::services::{HostEngine, HostService},
    iv_blocks::BlockSupply,
};

/// Follows the device and its MTU, sees that the counter has values, and publishes how full the NIC
/// is.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    counter: BlockSupply,
    turns_left: u32,
    #[cfg(feature = "capture")]
    taps: TapEnd,
}

/// Turns between two times of housekeeping: often enough for gauges, an MTU and an interface that
/// is back, too seldom to be seen in a profile.
const TURNS: u32 = 1024;

impl Housekeeping {
    pub(crate) const fn new(
        counter: BlockSupply,
        #[cfg(feature = "capture")] taps: TapEnd,
    ) -> Self {
        Self {
            counter,
            turns_left: 0,
            #[cfg(feature = "capture")]
            taps,
        }
    }

    /// Next turn, whatever the count: much time has passed.
    pub(crate) const fn due(&mut self) {
        self.turns_left = 0;
    }

    pub(crate) fn turn<B: HostBackend>(&mut self, engine: &mut HostEngine<B>) {
        // Without counter values nothing can be sent: then the next block is looked for in every
        // turn.
        let out_of_values = engine.service().is_starved();
        if let Some(left) = self.turns_left.checked_sub(1).filter(|_| !out_of_values) {
            self.turns_left = left;
            return;
        }
        self.turns_left = TURNS;
        engine.service_mut().refill(&self.counter);
        engine.service().publish_gauges();
        engine.backend_mut().follow();
        let receive = engine.backend().receive_len_max();
        engine.service_mut().follow_receive_len_max(receive);
        #[cfg(feature = "capture")]
        if let Some(tap) = self.taps.take() {
            engine.service_mut().set_verdicts(tap.as_ref().map(|tap| tap.verdicts().clone()));
            if let Some(tap) = engine.backend_mut().swap_tap(tap) {
                self.taps.give_back(tap);
            }
        }
    }
}
