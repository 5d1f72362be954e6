//! A device without faults, and the clock that goes with it.

use core::cell::Cell;
use std::collections::VecDeque;

use rma_core::{
    backend::{Backend, RxFrame, Transmit, TxFrame},
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
    fn rx_burst(&mut self, max: usize, mut on_frames: impl FnMut(&mut [RxFrame<'_>])) -> usize {
        let burst = max.min(self.arriving.len());
        let mut arrived: Vec<_> = self.arriving.drain(..burst).collect();
        let frames = arrived.iter_mut().map(|(transmit, bytes)| received(*transmit, bytes));
        on_frames(&mut frames.collect::<Vec<_>>());
        burst
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut out = vec![[0; FRAME_LEN_MAX]; max];
        let mut frames: Vec<_> = out.iter_mut().map(|bytes| TxFrame::new(bytes)).collect();
        let filled = fill(&mut frames);
        for TxFrame { bytes, transmit } in &frames[..filled] {
            self.sent.extend(transmit.map(|it| (it, bytes[..it.len].to_vec())));
        }
        filled
    }

    fn flush(&mut self, _: Instant) {}
}

/// A frame as it arrives.
pub(super) fn received(transmit: Transmit, bytes: &mut [u8]) -> RxFrame<'_> {
    let Transmit { source, destination, port, .. } = transmit;
    RxFrame { source, destination, port, reply_len_max: 1472, link: None, bytes }
}

/// A clock that somebody else moves.
#[derive(Default)]
pub(super) struct HandClock(pub(super) Cell<Instant>);

impl Clock for HandClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}
