//! A device without faults, and the clock that goes with it.

use core::cell::Cell;
use std::collections::VecDeque;

use rma_core::{
    backend::{Backend, RxFrame, Transmit},
    time::{Clock, Instant},
    wire::FRAME_LEN_MAX,
};

/// What lies on the wire.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) arriving: VecDeque<(Transmit, Vec<u8>)>,
    pub(super) sent: VecDeque<(Transmit, Vec<u8>)>,
}

impl Backend for Wire {
    fn rx_burst(&mut self, max: usize, mut on_frame: impl FnMut(RxFrame<'_>)) -> usize {
        let burst = max.min(self.arriving.len());
        for (transmit, mut bytes) in self.arriving.drain(..burst) {
            on_frame(received(transmit, &mut bytes));
        }
        burst
    }

    fn tx_burst(
        &mut self,
        max: usize,
        mut fill: impl FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> usize {
        let mut out = [0; FRAME_LEN_MAX];
        let before = self.sent.len();
        while self.sent.len() - before < max
            && let Some(transmit) = fill(&mut out)
        {
            self.sent.push_back((transmit, out[..transmit.len].to_vec()));
        }
        self.sent.len() - before
    }

    fn flush(&mut self, _: Instant) {}
}

/// A frame as it arrives.
pub(super) fn received(transmit: Transmit, bytes: &mut [u8]) -> RxFrame<'_> {
    let Transmit { source, destination, .. } = transmit;
    RxFrame { source, destination, reply_len_max: 1472, bytes }
}

/// A clock that somebody else moves.
#[derive(Default)]
pub(super) struct HandClock(pub(super) Cell<Instant>);

impl Clock for HandClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}
